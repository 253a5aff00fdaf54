"""`qhead eval` and `qhead doctor`: the commands around the closed loop."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from lerobot_policy_quantile.cli.eval_suites import Choice, estimate, halts_of, print_listing
from lerobot_policy_quantile.scenes.libero.wording import TASK, require_wording
from lerobot_policy_quantile.util.processes import share_cores

if TYPE_CHECKING:
    from lerobot_policy_quantile.adapters.factory import SceneFactory
    from lerobot_policy_quantile.evaluation.engine import MakeCrew
    from lerobot_policy_quantile.evaluation.plan import Plan
    from lerobot_policy_quantile.evaluation.side_files import SideFiles
    from lerobot_policy_quantile.evaluation.tables.facts import Facts

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
        "qhead eval --policy far=ws://gpu-box:8000 --scene libero_object --tasks 0-9 --out runs/far",
        "qhead eval --scene libero_object+obstacle --policy expert:left --policy expert --indices 0 --out runs/box",
        "Benchmarks: --suite takes the place of --scene, --tasks, --indices and --seeds and follows a published"
        " protocol (docs/benchmarks.md):",
        "qhead eval --suite libero --policy scripted --episodes 2 --out runs/scripted",
        "qhead eval --suite libero_plus --policy ours=runs/train/pretrained_model --sample 500 --out runs/plus",
        "qhead eval --suite libero_plus --dry-run",
        "Exit codes: 0 every episode has a result; 3 some ended in an error; 130 stopped by Ctrl-C; 1 the run could not"
        " go on (full disk, read-only folder, another run in the same folder) or side files are missing; 2 wrong"
        " usage.",
    ]
)


def evaluate(
    context: typer.Context,
    out: Annotated[Path | None, typer.Option(help="Folder of the run: journal, table and side files.")] = None,
    policy: Annotated[
        Strings,
        typer.Option(
            help="scripted (every LIBERO task), expert, expert:left, expert:right (one thing into a basket), a folder"
            " saved by LeRobot, USER/NAME on the hub, or a server that speaks openpi's protocol (ws://host:8000,"
            " wss://host; options behind ?, see docs/serving.md); NAME=SOURCE gives it a name. Repeat to compare."
        ),
    ] = [],  # noqa: B006
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
    camera: Annotated[
        Strings,
        typer.Option(
            help="external=FEATURE or wrist=FEATURE: what a policy folder calls a camera, such as"
            " external=observation.images.front; LIBERO's names if left out. Repeatable."
        ),
    ] = [],  # noqa: B006
    device: Annotated[
        str | None, typer.Option(help="Where policies compute: cuda, mps or cpu; the best there is if left out.")
    ] = None,
    side_files: Annotated[bool, typer.Option(help="Write actions, states, quantiles and a film strip.")] = True,
    video: Annotated[bool, typer.Option(help="With side files: also a video of what the policy saw.")] = True,
    by_task: Annotated[bool, typer.Option(help="One line per task in the table.")] = False,
    suite: Annotated[
        str | None,
        typer.Option(help="Benchmarks: libero, libero_spatial, ..., libero_plus, libero_pro, with commas between."),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="Whose limits and episodes per task: paper (280 steps in Spatial) or openpi (220).")
    ] = "paper",
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Episodes per task of a suite; the protocol's 100 or 50 if left out.")
    ] = None,
    category: Annotated[
        Strings, typer.Option(help="Only these LIBERO-Plus categories: camera, robot, language, ... Repeatable.")
    ] = [],  # noqa: B006
    sample: Annotated[
        int | None, typer.Option(min=1, help="Run that many episodes of a suite, every category in proportion.")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Start no episode after this time, such as 45m or 2h.")] = None,
    until: Annotated[
        float | None, typer.Option(help="Stop when every policy's 95 % interval is at most this many points wide.")
    ] = None,
    wording: Annotated[
        str,
        typer.Option(
            help="LIBERO's instructions: task.language, as public datasets and checkpoints have them, or bddl, for"
            " policies trained on the bddl files' (the shipped base)."
        ),
    ] = TASK,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the suite's tasks and what cannot be run.")] = False,
    engine: Annotated[str, typer.Option(help="local: processes here; ray: a cluster (extra [cluster]).")] = "local",
    replicas: Annotated[int, typer.Option(min=1, help="Policy replicas of the ray engine.")] = 1,
) -> None:
    """Run policies in closed loop; `EVAL_HELP` is what the user reads."""
    share_cores(workers)
    from lerobot_policy_quantile.adapters.cameras import parse_cameras
    from lerobot_policy_quantile.adapters.factory import SceneFactory
    from lerobot_policy_quantile.evaluation.engine import EngineError
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.evaluation.plan import parse_numbers
    from lerobot_policy_quantile.evaluation.side_files import SideFiles

    choice = None
    try:
        require_wording(wording)
        cameras = parse_cameras(camera)
        sources = _sources(policy, cameras)  # before anything that takes time
        if suite is not None:
            _require_left_out(context, "scene", "tasks", "indices")
            base_seed = parse_numbers("--seeds", seeds)[0]
            choice = Choice(suite, protocol, episodes, category, sample, base_seed)
            entries = choice.entries()
            if dry_run:
                return print_listing(entries)
        elif dry_run or sample is not None or episodes is not None or category:
            raise ValueError("--dry-run, --sample, --episodes and --category need --suite; got none")
        if out is None or not policy:
            raise ValueError("--out and --policy must be given; only --dry-run goes without them")
        if choice is None:
            plan = _plan(scene, tasks, indices, seeds, sources, decoder)
        else:
            lines = _lines(sources, decoder)
            plan = choice.plan(entries, lines, mixed=budget is not None or until is not None)
        make_crew = _crew(engine, replicas)
        device = _device(device, sources, engine)
        halts_of(budget, until, plan, [])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    whose, its_limit = (None, None) if choice is None else (protocol, limit)
    factory = SceneFactory(sources, camera_size, device, whose, its_limit, wording, cameras)
    facts = None if choice is None else choice.facts(entries)
    side = SideFiles(out / "side", video) if side_files else None
    how = Running(out, limit, workers, timeout, side, by_task, budget, until, facts, make_crew)
    try:
        code = _run(plan, factory, how)
    except (JournalError, EngineError, ValueError) as error:
        Console(stderr=True, soft_wrap=True).print(f"qhead eval: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from None
    raise typer.Exit(code)


def _require_left_out(context: typer.Context, *names: str) -> None:
    """Refuse options that a suite takes the place of."""
    sources = {name: context.get_parameter_source(name) for name in names}
    given = [f"--{name}" for name, source in sources.items() if source is not None and source.name != "DEFAULT"]
    if given:
        raise ValueError(f"--suite says which scenes, tasks and initial states are run; leave out {', '.join(given)}")


def _sources(policies: list[str], cameras: Mapping[str, str]) -> dict[str, str]:
    """Policy name -> where it comes from; refuses what is neither an expert nor a saved policy."""
    from lerobot_policy_quantile.adapters.cameras import require_cameras
    from lerobot_policy_quantile.adapters.factory import expert_side, is_expert
    from lerobot_policy_quantile.adapters.openpi_server import ServerAddress, is_server
    from lerobot_policy_quantile.adapters.policy_folder import require_policy_folder
    from lerobot_policy_quantile.scenes.experts.waypoints import Route

    sources: dict[str, str] = {}
    for text in policies:
        name, equals, source = (text, "", "") if is_server(text) else text.partition("=")
        source = _from_hub(source if equals else name)
        if is_server(source):
            ServerAddress.parse(source)  # knows which options there are
        elif is_expert(source):
            Route(expert_side(source))  # knows which sides there are
        elif not Path(source).is_dir():
            raise ValueError(
                "--policy must be expert, expert:SIDE or a folder saved by LeRobot (with config.json), USER/NAME on"
                f" the hub, or the ws:// address of a server; got {source!r}"
            )
        else:
            require_policy_folder(Path(source))
            require_cameras(Path(source), cameras)
        if sources.setdefault(name, source) != source:
            raise ValueError(f"--policy must use a name once; {name!r} stands for {sources[name]!r} and {source!r}")
    return sources


def _from_hub(source: str) -> str:
    """USER/NAME or USER/NAME@REVISION -> the folder it was downloaded to; anything else stays."""
    if Path(source).exists() or not re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", source):
        return source
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    name, _, revision = source.partition("@")
    try:
        return str(snapshot_download(name, revision=revision or None))
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise ValueError(
            f"--policy {source!r} is neither a folder nor a policy that the hub or its local cache has"
            f" ({type(error).__name__}); give the folder of a saved policy, or fetch it where there is a network:"
            f" hf download {name}"
        ) from error


def _plan(
    scenes: list[str], tasks: str, indices: str, seeds: str, sources: dict[str, str], decoders: list[str]
) -> "Plan":
    """Every combination; experts know no decoders and run once."""
    from lerobot_policy_quantile.adapters.factory import is_expert
    from lerobot_policy_quantile.contract import OWN_DECODER
    from lerobot_policy_quantile.evaluation.plan import Plan, parse_numbers

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


def _lines(sources: dict[str, str], decoders: list[str]) -> list[tuple[str, str]]:
    """Every (policy, decoder) that a suite is run with."""
    plan = _plan(["any"], "0", "0", "0", sources, decoders)
    return [(key.policy, key.decoder) for key in plan]


def _crew(engine: str, replicas: int) -> "MakeCrew | None":
    """Who runs the episodes."""
    if engine == "local":
        return None
    if engine != "ray":
        raise ValueError(f"--engine must be one of local, ray; got {engine!r}")
    from lerobot_policy_quantile.evaluation.ray_engine import ray_crew

    return ray_crew(replicas)


def _device(named: str | None, sources: dict[str, str], engine: str) -> str:
    """Where policies compute, told on standard error; experts and servers need no device here."""
    from lerobot_policy_quantile.adapters.factory import is_expert
    from lerobot_policy_quantile.adapters.openpi_server import is_server
    from lerobot_policy_quantile.policy.devices import choose_device

    if all(is_expert(source) or is_server(source) for source in sources.values()):
        return "cpu"
    if engine == "ray" and float(os.environ.get("QHEAD_GPUS_PER_REPLICA", "0")) > 0:
        chosen = named or "cuda"  # the replicas' machines have it, whatever this one has
    else:
        chosen = choose_device(named)
    typer.echo(f"policies compute on {chosen}", err=True)
    return chosen


def _canonical(decoder: str) -> str:
    """One spelling per decoder, so that `shared` and `shared(l=0)` are the same episodes."""
    from lerobot_policy_quantile.core.decoders import canonical_text  # imports torch; experts need none

    return canonical_text(decoder)


@dataclass(frozen=True)
class Running:
    """How a plan is run, as the command line says."""

    out: Path
    limit: int | None
    workers: int
    timeout: float
    side_files: "SideFiles | None"
    by_task: bool
    budget: str | None
    until: float | None
    facts: "Facts | None"
    """Of the benchmarks, if the plan is one of --suite."""
    make_crew: "MakeCrew | None"


def _run(plan: "Plan", factory: "SceneFactory", how: Running) -> int:
    """Run what is missing, print the table of the plan's rows, return the exit code."""
    out, workers = how.out, how.workers
    from lerobot_policy_quantile.evaluation.engine import run_plan
    from lerobot_policy_quantile.evaluation.journal import Journal
    from lerobot_policy_quantile.evaluation.progress import ProgressBar
    from lerobot_policy_quantile.evaluation.tables.rates import GROUPS, success_table
    from lerobot_policy_quantile.evaluation.tables.sheet import render, sheets_of
    from lerobot_policy_quantile.evaluation.worker import WorkerJob

    notes = Console(stderr=True, soft_wrap=True, highlight=False)
    job = WorkerJob(factory, how.limit, how.side_files, out / "workers.log")
    with Journal(out / "journal.sqlite") as journal:
        keys = set(plan)
        before = [row for row in journal.rows() if row.key in keys]
        settled = {row.key for row in before}
        pending = [key for key in plan if key not in settled]
        factory.require_answers(pending)
        if how.facts is None:
            factory.require_possible(pending)
        else:
            how.facts.write(out)
            notes.print(estimate(plan, before, factory, workers))
        halts = halts_of(how.budget, how.until, plan, before)
        with ProgressBar(notes, before) as bar:
            summary = run_plan(
                plan,
                journal,
                job,
                workers=workers,
                timeout=how.timeout,
                watcher=bar,
                halts=halts,
                make_crew=how.make_crew,
            )
        rows = [row for row in journal.rows() if row.key in keys]
    if how.facts is None or how.by_task:
        typer.echo(success_table(rows, by=GROUPS if how.by_task else GROUPS[:3]), nl=False)
    if how.facts is not None:
        typer.echo("\n".join(render(sheet, "markdown") for sheet in sheets_of(rows, how.facts)), nl=False)
        typer.echo(f"{len(rows)} of {len(plan)} planned episodes have a result.")
    if summary.halted:
        notes.print(f"ended early: {summary.halted}; run the same command with more to go on")
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

    from lerobot_policy_quantile.scenes.doctor import examine

    findings = examine()
    table = Table("what", "result", "found", "fix", title="Doctor", title_justify="left", header_style="bold")
    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    for finding in findings:
        result = f"[{colours[finding.status]}]{finding.status}[/]"
        table.add_row(finding.what, result, escape(finding.found), escape(finding.fix))
    Console().print(table)
    if any(finding.status == "fail" for finding in findings):
        raise typer.Exit(1)
