"""`qhead alarm fit` and `qhead alarm score`: an alarm for failures, from journals alone."""

from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import JsonOption, help_text

FIT = help_text(
    "Fit an alarm on the successful episodes of a run.",
    "Reads the journal and the side files that `qhead eval` wrote. Half of the successful episodes give a band of each"
    " signal over time, the other half a threshold: of new successful episodes drawn alike, a share --alpha at most"
    " raises the alarm. Writes one small JSON file for qhead alarm score, qhead eval --alarm and qhead serve --alarm.",
    examples=(
        "qhead alarm fit runs/a --out runs/a/alarm.json",
        "qhead alarm fit runs/a --signals width,surprise --alpha 0.1 --out b.json",
    ),
    exit_codes="0 the alarm was written; 1 the run cannot be read or has too few successful episodes",
)
SCORE = help_text(
    "Score an alarm on the episodes of a run.",
    "Prints how well it tells failures from successes (AUROC, also among episodes still running at shares of the limit,"
    " and of episode length alone), failures detected, false alarms, and steps from alarm to limit. Use a run that it"
    " was not fitted on.",
    examples=("qhead alarm score runs/b --alarm runs/a/alarm.json",),
    exit_codes="0 the scores were printed; 1 the run cannot be read or is of another policy than the alarm",
)

RunArgument = Annotated[Path, typer.Argument(help="Folder written by `qhead eval --out`.")]
SceneOption = Annotated[str | None, typer.Option(help="Only this scene. Needed if the run holds several.")]
TaskOption = Annotated[int | None, typer.Option(min=0, help="Only this task.")]
PolicyOption = Annotated[str | None, typer.Option(help="Only this policy. Needed if the run holds several.")]
DecoderOption = Annotated[str | None, typer.Option(help="Only this decoder. Needed if the run holds several.")]


def fit(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="File to write.")],
    alpha: Annotated[float, typer.Option(help="Largest share of successful episodes with an alarm.")] = 0.05,
    signals: Annotated[str | None, typer.Option(help="Signals separated by commas. Default: all.")] = None,
    scene: SceneOption = None,
    task: TaskOption = None,
    policy: PolicyOption = None,
    decoder: DecoderOption = None,
) -> None:
    """Fit an alarm; `FIT` is what the user reads."""
    from lerobot_policy_quantile.calibration.alarm_fit import fit_alarm, read_episodes
    from lerobot_policy_quantile.calibration.spread import EpisodeChoice, choose_rows
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.serving.alarm import parse_signals

    with exit_on("alarm fit", ValueError, OSError, JournalError):
        names = parse_signals(signals)
        rows = choose_rows(run, EpisodeChoice(None, scene, task, policy, decoder, "success"))
        alarm = fit_alarm(read_episodes(run, rows), alpha=alpha, signals=names)
        alarm.write(out)
    typer.echo(
        f"band from {alarm.episodes[0]} successful episodes, threshold {alarm.threshold:.3f} from {alarm.episodes[1]}"
        f" others; signals {', '.join(alarm.signals)}; alpha {alarm.alpha:g}"
    )
    typer.echo(f"written: {out}", err=True)


def score(
    run: RunArgument,
    alarm: Annotated[Path, typer.Option(help="File written by `qhead alarm fit`.")],
    scene: SceneOption = None,
    task: TaskOption = None,
    policy: PolicyOption = None,
    decoder: DecoderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score an alarm; `SCORE` is what the user reads."""
    import json

    from lerobot_policy_quantile.calibration.alarm_fit import read_episodes, watch
    from lerobot_policy_quantile.calibration.alarm_scores import alarm_record, alarm_table
    from lerobot_policy_quantile.calibration.spread import EpisodeChoice, choose_rows
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.serving.alarm import Alarm

    with exit_on("alarm score", ValueError, OSError, JournalError):
        fitted = Alarm.read(alarm)
        rows = choose_rows(run, EpisodeChoice(None, scene, task, policy, decoder, None))
        for fingerprint in {row.versions.get("policy") for row in rows}:
            fitted.require_policy(fingerprint)
        record = alarm_record([watch(fitted, episode) for episode in read_episodes(run, rows)])
    typer.echo(json.dumps(record, indent=2) if as_json else alarm_table(record), nl=as_json)
