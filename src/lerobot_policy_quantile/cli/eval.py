"""`qhead eval`: run policies in closed loop."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on, usage_errors
from lerobot_policy_quantile.cli.options import (
    CameraSizeOption,
    DeviceOption,
    SceneHelp,
    WordingOption,
    given_options,
    help_text,
)
from lerobot_policy_quantile.evaluation.tables.benchmarks import PROTOCOL
from lerobot_policy_quantile.scenes.libero.wording import require_wording
from lerobot_policy_quantile.util.processes import share_cores
from lerobot_policy_quantile.util.wording import TASK

HELP = help_text(
    "Run policies in closed loop and print success rates.",
    "Runs every combination of scenes, tasks, initial states, seeds, policies and decoders. Each episode becomes one"
    " row in OUT/journal.sqlite: success, failure or error. An error (the simulator raises, hangs or dies) is retried"
    " up to three times, keeps its traceback and is never counted as a failure.",
    "To resume, run the same command again: only episodes without a row are run. You can print the table again, or add"
    " seeds and decoders to the same folder, at no cost for the finished episodes; other settings or weights than the"
    " journal's are refused. Ctrl-C finishes the running episodes"
    " and stops; a second Ctrl-C kills them. Finished episodes are kept in both cases.",
    "With --suite, a benchmark with a published protocol takes the place of --scene and --tasks; see"
    " docs/guides/benchmarks.md. --indices then chooses initial states of every task in place of --episodes.",
    examples=(
        "qhead eval --policy expert --indices 0-49 --out runs/expert",
        "qhead eval --policy ours=FOLDER --decoder median --out runs/a",
        'qhead eval --policy ours=FOLDER --decoder "shared(l=0.1)" --out runs/a',
        "qhead eval --policy ws://gpu-box:8000 --scene libero_10 --out runs/far",
        "qhead eval --policy expert:left --scene embedded+obstacle --out runs/box",
        "qhead eval --policy FOLDER --suite libero_plus --sample 500 --out runs/p",
        "qhead eval --policy FOLDER --delay 0,4 --handover swap,rank --out runs/d",
        "qhead eval --suite libero_plus --dry-run",
    ),
    exit_codes="0 every episode has a result; 3 some episodes ended in an error; 130 stopped by Ctrl-C; 1 the run could"
    " not continue (full disk, read-only folder, another run in the same folder, a damaged journal, other settings than"
    " the journal's) or side files are missing; 2 wrong"
    " usage",
)

EPISODES, BENCHMARKS, RUNNING, OUTPUT = "Episodes", "Benchmarks (--suite)", "Execution", "Output"
REAL_TIME = "Real time"
Strings = list[str]


def evaluate(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run: journal and side files. Required except for --dry-run.")
    ] = None,
    policy: Annotated[
        Strings,
        typer.Option(
            help="Policy to run: scripted (solves every LIBERO task), expert, expert:left or expert:right (one object"
            " into a basket), a folder saved by LeRobot, USER/NAME on the hub, or a server for openpi's protocol"
            " (ws://host:8000 or wss://host; options after ?, see docs/guides/serving.md). NAME=SOURCE names it in the"
            " table. Repeat to compare."
        ),
    ] = [],  # noqa: B006
    scene: Annotated[Strings, typer.Option(help=f"{SceneHelp} Repeatable.", rich_help_panel=EPISODES)] = ["embedded"],  # noqa: B006
    decoder: Annotated[
        Strings,
        typer.Option(help="Decoder, as listed by `qhead decoders`; own is the one saved with the policy. Repeatable."),
    ] = ["own"],  # noqa: B006
    tasks: Annotated[str, typer.Option(help="Task numbers, such as 0-9 or 0,3.", rich_help_panel=EPISODES)] = "0",
    indices: Annotated[
        str, typer.Option(help="Numbers of the stored initial states, such as 0-49.", rich_help_panel=EPISODES)
    ] = "0-9",
    seeds: Annotated[
        str,
        typer.Option(
            help="Seeds, such as 0-2; every initial state is run once per seed. With --suite: the first seed.",
            rich_help_panel=EPISODES,
        ),
    ] = "0",
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Control steps per episode. Default: the scene's.", rich_help_panel=EPISODES),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Worker processes, one simulator each.", rich_help_panel=RUNNING)
    ] = min(4, os.cpu_count() or 1),
    models: Annotated[
        int,
        typer.Option(
            min=1,
            help="With --suite: policies that each worker keeps in memory; so many take turns episode by episode.",
            rich_help_panel=RUNNING,
        ),
    ] = 1,
    timeout: Annotated[
        float,
        typer.Option(help="Wall time in seconds after which an episode is an error.", rich_help_panel=RUNNING),
    ] = 600.0,
    camera_size: CameraSizeOption = 256,
    camera: Annotated[
        Strings,
        typer.Option(
            help="external=FEATURE or wrist=FEATURE: the policy's name of a camera, such as"
            " external=observation.images.front. Default: the names in LIBERO's datasets. Repeatable."
        ),
    ] = [],  # noqa: B006
    device: DeviceOption = None,
    side_files: Annotated[
        bool,
        typer.Option(help="Write actions, states, quantiles and a film strip per episode.", rich_help_panel=OUTPUT),
    ] = True,
    video: Annotated[
        bool, typer.Option(help="With side files, also write a video of the camera images.", rich_help_panel=OUTPUT)
    ] = True,
    by_task: Annotated[bool, typer.Option(help="Print one line per task.", rich_help_panel=OUTPUT)] = False,
    suite: Annotated[
        str | None,
        typer.Option(
            help="Benchmarks separated by commas: libero, libero_spatial, ..., libero_plus, libero_pro.",
            rich_help_panel=BENCHMARKS,
        ),
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(
            help="Step limits and episodes per task: paper (280 steps in Spatial, 100 episodes) or openpi (220, 50).",
            rich_help_panel=BENCHMARKS,
        ),
    ] = PROTOCOL,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Episodes per task. Default: the protocol's.", rich_help_panel=BENCHMARKS)
    ] = None,
    category: Annotated[
        Strings,
        typer.Option(
            help="Only these LIBERO-Plus categories: camera, robot, language, ... Repeatable.",
            rich_help_panel=BENCHMARKS,
        ),
    ] = [],  # noqa: B006
    sample: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Run only this many episodes, drawn from all categories in proportion.",
            rich_help_panel=BENCHMARKS,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Start no episode after this time, such as 90s, 45m or 2h.", rich_help_panel=RUNNING),
    ] = None,
    until: Annotated[
        float | None,
        typer.Option(
            help="Stop when every policy's 95 % interval is at most this wide, in percentage points.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    wording: WordingOption = TASK,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the tasks and which cannot be run here.", rich_help_panel=BENCHMARKS),
    ] = False,
    engine: Annotated[
        str,
        typer.Option(
            help=r"local: processes on this machine; ray: a cluster (extra \[cluster]).", rich_help_panel=RUNNING
        ),
    ] = "local",
    replicas: Annotated[
        int, typer.Option(min=1, help="Policy replicas of the ray engine.", rich_help_panel=RUNNING)
    ] = 1,
    replan: Annotated[
        str | None,
        typer.Option(
            help="Steps of a chunk to execute before replanning: fixed:10, or adaptive:0.08 (steps whose mean spread"
            " is below 0.08; adaptive:0.08,least=2 executes at least two). Default: as saved with the policy.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            help="Steps that an answer takes, such as 0,2,4,6: the world goes on meanwhile. Each delay and handover is"
            " a policy of its own in the table, such as ours/rank-4.",
            rich_help_panel=REAL_TIME,
        ),
    ] = None,
    handover: Annotated[
        str,
        typer.Option(
            help="With --delay, how a chunk takes over, separated by commas: pause (stand still), swap, ensemble (ACT's"
            " weights), rank (quantile head) or rtc (flow head: LeRobot's).",
            rich_help_panel=REAL_TIME,
        ),
    ] = "pause,swap,ensemble,rank,rtc",
    alarm: Annotated[
        Path | None,
        typer.Option(help="Alarm written by `qhead alarm fit` that watches every episode.", rich_help_panel=RUNNING),
    ] = None,
    on_alarm: Annotated[
        str,
        typer.Option(
            help="While the alarm is on: replan (look again after one step), stop (end the episode as a failure), or a"
            " decoder to switch to.",
            rich_help_panel=RUNNING,
        ),
    ] = "replan",
) -> None:
    """Run policies in closed loop; `HELP` is what the user reads."""
    share_cores(workers)
    from rich.console import Console

    from lerobot_policy_quantile.adapters.alarmed import AlarmRule
    from lerobot_policy_quantile.adapters.cameras import parse_cameras
    from lerobot_policy_quantile.adapters.episode_plan import cross_plan, decoders_of
    from lerobot_policy_quantile.adapters.evaluation_run import EvaluationSettings, run_evaluation
    from lerobot_policy_quantile.adapters.factory import SceneFactory
    from lerobot_policy_quantile.adapters.policy_decoders import require_decoders
    from lerobot_policy_quantile.adapters.policy_sources import parse_policies
    from lerobot_policy_quantile.adapters.real_time_policy import real_time_arms
    from lerobot_policy_quantile.adapters.replanning import require_replannable
    from lerobot_policy_quantile.adapters.suite_choice import SuiteChoice, listing
    from lerobot_policy_quantile.evaluation.engine import EngineError
    from lerobot_policy_quantile.evaluation.engines import crew_of
    from lerobot_policy_quantile.evaluation.halts import parse_halts
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.evaluation.plan import parse_numbers
    from lerobot_policy_quantile.evaluation.side_files import SideFiles

    choice = None
    with usage_errors(ValueError):
        require_wording(wording)
        cameras = parse_cameras(camera)
        sources = parse_policies(policy, cameras)  # before anything that takes time
        require_replannable(replan, sources)
        rule = AlarmRule.parse(alarm, on_alarm, sources)
        if rule is not None and delay is not None:
            raise ValueError(f"--alarm and --delay exclude each other; got {alarm} and {delay}")
        if suite is not None:
            _require_left_out(context, "scene", "tasks")
            chosen = parse_numbers("--indices", indices) if given_options(context, "indices") else None
            if chosen is not None and episodes is not None:
                raise ValueError(f"--indices and --episodes exclude each other; got {indices} and {episodes}")
            base_seed = parse_numbers("--seeds", seeds)[0]
            choice = SuiteChoice(suite, protocol, episodes, category, sample, base_seed, chosen)
            entries = choice.entries()
            if dry_run:
                return typer.echo("\n".join(listing(entries)))
        elif models > 1:
            raise ValueError(f"--models needs --suite; got --models {models} without it")
        elif dry_run or sample is not None or episodes is not None or category:
            raise ValueError("--dry-run, --sample, --episodes and --category need --suite; got none")
        real_time = {}
        if delay is not None:
            if not side_files:
                raise ValueError("--delay needs the side files, which hold how chunks joined; got --no-side-files")
            arms = real_time_arms(sources, delay, handover, replan)
            sources = {name: source for name, (source, _) in arms.items()}
            real_time = {name: rule for name, (_, rule) in arms.items()}
        elif given_options(context, "handover"):
            raise ValueError(f"--handover needs --delay; got --handover {handover} without it")
        if out is None or not policy:
            raise ValueError("--out and --policy must be given; only --dry-run goes without them")
        decoders = decoders_of(sources, decoder)
        require_decoders(sources, decoders)
        if choice is None:
            plan = cross_plan(scene, tasks, indices, seeds, decoders)
        else:
            lines = [(name, text) for name, own in decoders.items() for text in own]
            plan = choice.plan(entries, lines, mixed=budget is not None or until is not None, models=models)
        if models > 1 and engine != "local":
            raise ValueError(
                f"--models must be 1 with --engine {engine}, whose replicas hold the policies; got {models}"
            )
        make_crew = crew_of(engine, replicas)
        device = choose_and_print_device(device, sources, engine)
        parse_halts(budget, until, plan)
    whose, its_limit = (None, None) if choice is None else (protocol, limit)
    factory = SceneFactory(sources, camera_size, device, whose, its_limit, wording, cameras, replan, real_time, rule)
    facts = None if choice is None else choice.facts(entries)
    side = SideFiles(out / "side", video) if side_files else None
    how = EvaluationSettings(out, limit, workers, timeout, side, by_task, budget, until, facts, make_crew, models)
    notes = Console(stderr=True, soft_wrap=True, highlight=False)
    with exit_on("eval", JournalError, EngineError, ValueError):
        finished = run_evaluation(plan, factory, how, notes)
        typer.echo(finished.table, nl=False)
    for remark in finished.remarks():
        notes.print(remark, markup=False)
    if finished.rows:
        notes.print(f"look at the episodes: qhead explore {shlex.quote(str(out))}", markup=False)
    raise typer.Exit(finished.exit_code)


def choose_and_print_device(named: str | None, sources: dict[str, str], engine: str) -> str:
    """The device that policies run on, printed to standard error if any policy runs here."""
    from lerobot_policy_quantile.adapters.policy_sources import computing_device

    device = computing_device(named, sources, engine)
    if device is not None:
        typer.echo(f"policies compute on {device}", err=True)
    return device or "cpu"


def _require_left_out(context: typer.Context, *names: str) -> None:
    """Refuse options whose place --suite takes."""
    if given := given_options(context, *names):
        raise ValueError(f"--suite chooses the scenes and tasks that are run; leave out {', '.join(given)}")
