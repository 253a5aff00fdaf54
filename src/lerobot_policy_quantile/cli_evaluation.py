"""`qhead eval` and `qhead doctor`: the commands around the closed loop."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from lerobot_policy_quantile.evaluation.plan import Plan
    from lerobot_policy_quantile.evaluation.side_files import SideFiles
    from lerobot_policy_quantile.workshop import SceneWorkshop

WITH_ERRORS = 3
"""Exit code of a finished run in which some episodes have no result but an error."""

STOPPED = 130

Strings = list[str]

# One line per paragraph: the terminal wraps it.
EVAL_HELP = "\n\n".join(
    [
        "Run policies in closed loop and print success rates.",
        "The run is every combination of scenes, tasks, indices, seeds, policies and decoders. Each episode is one row"
        " in OUT/journal.sqlite: success, failure or error. An error (a simulator that raises, hangs or dies) is tried"
        " again up to three times, carries its traceback and is never counted as a failure.",
        "To resume, run the same command again. Episodes that have their row are not run again, so it costs nothing to"
        " ask for the table once more, or to add seeds and decoders to the same folder. Ctrl-C finishes the running"
        " episodes and stops; twice kills them. Nothing is lost in either case.",
        "Examples:",
        "qhead eval --policy expert --indices 0-49 --out runs/expert",
        'qhead eval --policy ours=runs/train/pretrained_model --decoder median --decoder "shared(l=0.1)" --out runs/a',
        "qhead eval --scene libero_object+obstacle --policy expert:left --policy expert --indices 0 --out runs/box",
        "Exit codes: 0 every episode has a result; 3 some ended in an error; 130 stopped by Ctrl-C; 1 the run could not"
        " go on (full disk, read-only folder, another run in the same folder) or side files are missing; 2 wrong"
        " usage.",
    ]
)


def evaluate(
    out: Annotated[Path, typer.Option(help="Folder of the run: journal, table and side files.")],
    policy: Annotated[
        Strings,
        typer.Option(
            help="expert, expert:left, expert:right, or a folder saved by LeRobot; NAME=SOURCE gives it a name."
            " Repeat to compare."
        ),
    ],
    scene: Annotated[
        Strings, typer.Option(help="embedded, libero_object, ...; +obstacle behind the name adds the box. Repeatable.")
    ] = ["embedded"],  # noqa: B006
    decoder: Annotated[
        Strings, typer.Option(help="A text that `qhead decoders` knows, or own: the one the policy was saved with.")
    ] = ["own"],  # noqa: B006
    tasks: Annotated[str, typer.Option(help="Tasks of the scene, such as 0-9 or 0,3.")] = "0",
    indices: Annotated[str, typer.Option(help="Stored initial states, such as 0-49.")] = "0-9",
    seeds: Annotated[str, typer.Option(help="Seeds; each is one more episode per initial state.")] = "0",
    limit: Annotated[int | None, typer.Option(min=1, help="Steps per episode; the scene's own if left out.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes, one simulator each.")] = min(4, os.cpu_count() or 1),
    timeout: Annotated[float, typer.Option(help="Seconds of wall time after which an episode hangs.")] = 600.0,
    camera_size: Annotated[int, typer.Option(min=1, help="Pixels of the square cameras.")] = 256,
    device: Annotated[str, typer.Option(help="Where policies compute: cpu, cuda, mps.")] = "cpu",
    side_files: Annotated[bool, typer.Option(help="Write actions, states, quantiles and a film strip.")] = True,
    video: Annotated[bool, typer.Option(help="With side files: also a video of what the policy saw.")] = True,
    by_task: Annotated[bool, typer.Option(help="One line per task in the table.")] = False,
) -> None:
    """Run policies in closed loop; `EVAL_HELP` is what the user reads."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from lerobot_policy_quantile.evaluation.engine import EngineError
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.evaluation.side_files import SideFiles
    from lerobot_policy_quantile.workshop import SceneWorkshop

    try:
        sources = _sources(policy)
        plan = _plan(scene, tasks, indices, seeds, sources, decoder)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    workshop = SceneWorkshop(sources, camera_size, device)
    try:
        side = SideFiles(out / "side", video) if side_files else None
        code = _run(plan, workshop, out, limit, workers, timeout, side_files=side, by_task=by_task)
    except (JournalError, EngineError, ValueError) as error:
        Console(stderr=True, soft_wrap=True).print(f"qhead eval: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from None
    raise typer.Exit(code)


def _sources(policies: list[str]) -> dict[str, str]:
    """Policy name -> where it comes from; refuses what is neither an expert nor a saved policy."""
    from lerobot_policy_quantile.scenes.expert import Route
    from lerobot_policy_quantile.workshop import expert_side, is_expert

    sources: dict[str, str] = {}
    for text in policies:
        name, equals, source = text.partition("=")
        source = source if equals else name
        if is_expert(source):
            Route(expert_side(source))  # knows which sides there are
        elif not (Path(source) / "config.json").is_file():
            raise ValueError(
                f"--policy must be expert, expert:SIDE or a folder saved by LeRobot (with config.json); got {source!r}"
            )
        if sources.setdefault(name, source) != source:
            raise ValueError(f"--policy must use a name once; {name!r} stands for {sources[name]!r} and {source!r}")
    return sources


def _plan(
    scenes: list[str], tasks: str, indices: str, seeds: str, sources: dict[str, str], decoders: list[str]
) -> "Plan":
    """Every combination; experts know no decoders and run once."""
    from lerobot_policy_quantile.evaluation.contract import OWN_DECODER
    from lerobot_policy_quantile.evaluation.plan import Plan, parse_numbers
    from lerobot_policy_quantile.workshop import is_expert

    spelled = [text if text == OWN_DECODER else _canonical(text) for text in decoders]
    plan = Plan()
    for name, source in sources.items():
        plan += Plan.cross(
            scenes=scenes,
            tasks=parse_numbers("--tasks", tasks),
            indices=parse_numbers("--indices", indices),
            seeds=parse_numbers("--seeds", seeds),
            policies=[name],
            decoders=[OWN_DECODER] if is_expert(source) else spelled,
        )
    return plan


def _canonical(decoder: str) -> str:
    """One spelling per decoder, so that `shared` and `shared(l=0)` are the same episodes."""
    from lerobot_policy_quantile.core.decoders import canonical_text  # imports torch; experts need none

    return canonical_text(decoder)


def _run(
    plan: "Plan",
    workshop: "SceneWorkshop",
    out: Path,
    limit: int | None,
    workers: int,
    timeout: float,
    *,
    side_files: "SideFiles | None",
    by_task: bool,
) -> int:
    """Run what is missing, print the table of the plan's rows, return the exit code."""
    from lerobot_policy_quantile.evaluation.engine import run_plan
    from lerobot_policy_quantile.evaluation.journal import Journal
    from lerobot_policy_quantile.evaluation.progress import ProgressBar
    from lerobot_policy_quantile.evaluation.table import GROUPS, success_table
    from lerobot_policy_quantile.evaluation.worker import Job

    notes = Console(stderr=True, soft_wrap=True, highlight=False)
    job = Job(workshop, limit, side_files, out / "workers.log")
    with Journal(out / "journal.sqlite") as journal:
        settled = journal.settled()
        workshop.require_possible(key for key in plan if key not in settled)
        keys = set(plan)
        with ProgressBar(notes, [row for row in journal.rows() if row.key in keys]) as bar:
            summary = run_plan(plan, journal, job, workers=workers, timeout=timeout, watcher=bar)
        rows = [row for row in journal.rows() if row.key in keys]
    table = success_table(rows, by=GROUPS if by_task else GROUPS[:3])
    typer.echo(table, nl=False)
    if summary.stopped:
        notes.print(f"stopped with {len(rows)} of {len(plan)} episodes; run the same command again to go on")
        return STOPPED
    for row in [row for row in rows if row.status == "error"][:3]:
        notes.print(f"error in {row.key.text}:\n{row.traceback}", markup=False)
    lost = [row for row in rows if row.side_error is not None]
    if lost:
        notes.print(f"{len(lost)} episodes have no side files: {lost[0].side_error}", markup=False)
        return 1
    return WITH_ERRORS if any(row.status == "error" for row in rows) else 0


def doctor() -> None:
    """Look at what the closed loop needs (versions, rendering, LIBERO assets, threads) and say how to fix it.

    `warn` means that something works with less; exits with 1 if anything fails.
    """
    from rich.markup import escape
    from rich.table import Table

    from lerobot_policy_quantile.doctor import examine

    findings = examine()
    table = Table("what", "result", "found", "fix", title="Doctor", title_justify="left", header_style="bold")
    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    for finding in findings:
        result = f"[{colours[finding.status]}]{finding.status}[/]"
        table.add_row(finding.what, result, escape(finding.found), escape(finding.fix))
    Console().print(table)
    if any(finding.status == "fail" for finding in findings):
        raise typer.Exit(1)
