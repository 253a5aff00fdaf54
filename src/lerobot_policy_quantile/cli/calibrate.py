"""`qhead calibrate`: are predicted distributions honest on held-out episodes?"""

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on, usage_errors
from lerobot_policy_quantile.cli.options import DeviceOption, JsonOption, help_text

HELP = help_text(
    "Score predicted action distributions on held-out episodes of a LeRobotDataset.",
    "Prints coverage of the predicted intervals and their width, CRPS, and pinball skill against a constant, a Gaussian"
    " and a persistence baseline, with 95 % intervals by bootstrap over episodes. Flow policies are judged by samples,"
    " L1 and L2 policies as points. Steps beyond the end of an episode do not count.",
    "With --conformal, bounds are fitted on the episodes and stored beside the checkpoint: of a new episode a frame"
    " picked at random is inside with at least that probability, in every dimension at every chunk step. Without it,"
    " bounds that are there are judged, too; they are refused if weights or data have changed.",
    "OUT/calibration.json holds everything per level, dimension and chunk step, OUT/calibration.html reliability"
    " diagrams and PIT histograms in one file.",
    examples=(
        "qhead calibrate --policy runs/a/pretrained_model --dataset data/held_out",
        "qhead calibrate --policy ours=A --policy flow=B --dataset D --out runs/c",
        "qhead calibrate --policy ours=A --dataset you/data --episodes 40-49",
        "qhead calibrate --policy A --dataset D --episodes 0-39 --conformal 0.9",
    ),
    exit_codes="0 the scores were printed; 1 dataset and policy do not fit or cannot be read; 2 wrong usage",
)


def calibrate(
    policy: Annotated[
        list[str],
        typer.Option(help="Folder of a saved policy, or USER/NAME on the hub; NAME=FOLDER names it. Repeatable."),
    ],
    dataset: Annotated[str, typer.Option(help="Folder of a LeRobotDataset (v3), or USER/NAME on the hub.")],
    episodes: Annotated[
        str | None, typer.Option(help="Numbers of the held-out episodes, such as 0-9,12. Default: all.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Predict at every so manieth frame of an episode.")] = 5,
    samples: Annotated[
        str, typer.Option(help="Numbers of samples that flow policies are judged by, separated by commas.")
    ] = "1,10,50",
    rename: Annotated[
        list[str],
        typer.Option(help="A name in the dataset and the policy's name of it, such as A=B. Repeatable."),
    ] = [],  # noqa: B006
    batch_size: Annotated[int, typer.Option(min=1, help="Frames per forward pass.")] = 32,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Processes that decode images. Default: up to 8 on a GPU, else none."),
    ] = None,
    conformal: Annotated[
        str | None,
        typer.Option(
            help="Fit bounds of this mass, such as 0.9 or 0.5,0.8,0.95, and store them in the policy's folder"
            " (bounds.safetensors)."
        ),
    ] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Resamples of the bootstrap.")] = 2000,
    device: DeviceOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for calibration.json and calibration.html. Default: only print.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge policies on held-out data; `HELP` is what the user reads."""
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    import json

    from lerobot_policy_quantile.calibration.held_out import choose_episodes, read_dataset, require_fitting
    from lerobot_policy_quantile.calibration.policy_facts import parse_policies, parse_renames
    from lerobot_policy_quantile.evaluation.plan import parse_numbers

    with usage_errors(ValueError):
        masses = _masses(conformal)
        counts = parse_numbers("--samples", samples)
        renamed = parse_renames(rename)
        policies = parse_policies(policy, renamed)
    with exit_on("calibrate", ValueError, OSError):
        data = read_dataset(dataset)  # what can be refused is refused before torch is imported
        chosen = choose_episodes(data, episodes)
        for facts in policies:
            require_fitting(facts, data)

        from rich.console import Console

        from lerobot_policy_quantile.calibration.predictions import FrameReading
        from lerobot_policy_quantile.calibration.record_files import write_record
        from lerobot_policy_quantile.calibration.run import CalibrationSettings
        from lerobot_policy_quantile.calibration.tables import text_tables
        from lerobot_policy_quantile.calibration.with_bar import calibrate_with_bar
        from lerobot_policy_quantile.policy.devices import choose_device

        place = choose_device(device)
        typer.echo(f"policies compute on {place}", err=True)
        hands = (min(8, os.cpu_count() or 1) if place.startswith("cuda") else 0) if workers is None else workers
        settings = CalibrationSettings(
            FrameReading(every, batch_size, hands), place, counts, resamples, conformal=masses
        )
        with redirect_stdout(sys.stderr):  # LeRobot prints when it loads weights
            record = calibrate_with_bar(policies, data, chosen, settings, Console(stderr=True))
        if out is not None:
            write_record(record, out)
    typer.echo(json.dumps(record, indent=2) if as_json else text_tables(record), nl=as_json)
    for facts in policies if masses else ():
        typer.echo(f"written: {facts.folder / 'bounds.safetensors'}", err=True)
    if out is not None:
        typer.echo(f"written: {out / 'calibration.json'} and {out / 'calibration.html'}", err=True)


def _masses(text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    from lerobot_policy_quantile.calibration.conformal import parse_masses

    return parse_masses(text)
