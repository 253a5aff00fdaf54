"""`qhead study`: the paper's experiments, from demonstrations to a table and a report."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from lerobot_policy_quantile.util.extras import needs
from lerobot_policy_quantile.util.processes import MemoryWatch, share_cores

if TYPE_CHECKING:
    from lerobot_policy_quantile.studies.two_demo.records import Study
    from lerobot_policy_quantile.studies.two_demo.settings import StudySettings

WITH_ERRORS, STOPPED = 3, 130
SHIPPED = "shipped"

study = typer.Typer(no_args_is_help=True, help="The paper's experiments.")

TWO_DEMO_HELP = "\n\n".join(
    [
        "Two demonstrations from one start, over opposite detours: which heads and decoders keep both routes?",
        "Stages: demonstrations by the scripted expert; frozen prefixes of every step; training of the quantile, L1, L2"
        " and flow head from one initialisation on one batch sequence; 1,000 draws per head at the shared start and the"
        " cost of a replan; the closed loop with every decoder; table and report. Every verification of the paper is a"
        " check: one that fails stops the study and says its figure.",
        "To resume, run the same command again: finished stages and episodes are not repeated. More seeds, episodes,"
        " scenes or decoders may be added to a folder; anything else needs another one.",
        "SETTINGS are fixed in a file before evaluation: demo (small, embedded), study (three seeds, 6,000 updates, 50"
        " episodes, both scenes), paper (LIBERO at 224 pixels with the paper's rates, a fresh output projection and new"
        " prompts, for a pi05 folder on a GPU) or a TOML file of your own; options override single fields.",
        "Examples:",
        "qhead study two-demo --settings demo --out runs/demo",
        "qhead study two-demo --scene libero --obstacle --seeds 1 --episodes 20 --updates 6000 --out runs/libero",
        "qhead study two-demo --settings paper --base FOLDER --device cuda --out runs/paper",
        "Exit codes: 0 every episode has a result; 3 some ended in an error; 130 stopped by Ctrl-C; 1 a check failed or"
        " the study could not go on; 2 wrong usage.",
    ]
)


@study.command("two-demo", help=TWO_DEMO_HELP)
@needs("sim", "report")
def two_demo(
    out: Annotated[Path, typer.Option(help="Folder of the study.")],
    settings: Annotated[str, typer.Option(help="demo, study, paper or a TOML file.")] = "demo",
    scene: Annotated[
        list[str] | None, typer.Option(help="embedded or libero (libero_object, task 0); repeat for both.")
    ] = None,
    obstacle: Annotated[
        bool | None, typer.Option("--obstacle/--no-obstacle", help="Only this setting; both if left out.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Training seeds.")] = None,
    first_seed: Annotated[
        int | None, typer.Option(min=0, help="The first of them: other machines may take the others.")
    ] = None,
    episodes: Annotated[int | None, typer.Option(min=1, help="Per stochastic decoder and training seed.")] = None,
    updates: Annotated[int | None, typer.Option(min=1, help="Per head.")] = None,
    decoder: Annotated[
        list[str] | None, typer.Option(help="In place of the settings' decoders; repeatable. median is always run.")
    ] = None,
    first_episode: Annotated[int | None, typer.Option(min=0, help="Number of the first episode: its noise.")] = None,
    base: Annotated[
        str,
        typer.Option(
            help="Where training begins: shipped, a folder with a quantile or a pi05 policy, or random (tries the"
            " machinery only)."
        ),
    ] = SHIPPED,
    device: Annotated[
        str | None, typer.Option(help="cuda, mps or cpu; the best there is if left out. Part of a study.")
    ] = None,
    wording: Annotated[
        str | None,
        typer.Option(help="LIBERO's instructions: bddl, which the shipped base knows, or task.language."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes: heads in training, simulators. 2 if left out, 1 with a GPU: one model."),
    ] = None,
    report: Annotated[bool, typer.Option(help="Write OUT/report.html and OUT/report.md at the end.")] = True,
) -> None:
    """Run the two-demonstration study; `TWO_DEMO_HELP` is what the user reads."""
    cores = min(2, os.cpu_count() or 1)
    share_cores(workers or cores)
    from lerobot_policy_quantile.policy.devices import choose_device
    from lerobot_policy_quantile.studies.two_demo.settings import changed, load_settings

    try:
        chosen = choose_device(device)
        workers = workers or (cores if chosen == "cpu" else 1)
        asked = changed(
            load_settings(settings),
            device=chosen,
            scenes=None if not scene else tuple(dict.fromkeys(scene)),
            obstacle=None if obstacle is None else (obstacle,),
            seeds=seeds,
            first_seed=first_seed,
            episodes=episodes,
            updates=updates,
            first_episode=first_episode,
            wording=wording,
            decoders=None if not decoder else tuple(dict.fromkeys([*decoder, "median"])),
            obstacle_decoders=None if not decoder else (),
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    typer.echo(f"policies compute on {chosen}", err=True)
    raise typer.Exit(_run(out, asked, base, workers, report=report))


@study.command()
@needs("report")
def summarise(
    into: Annotated[Path, typer.Option(help="Folder of the summaries; what it holds already stays.")],
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders that `qhead study two-demo` wrote, finished or not; none: the page is made anew."),
    ] = None,
) -> None:
    """Summarise journals: one small file per arm and training seed, README.md and rates.svg over all of them.

    A study that ran in parts (other days, other machines) meets here. Parts with other settings, weights or simulators
    are refused.
    """
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.studies.two_demo.records import load_study
    from lerobot_policy_quantile.studies.two_demo.report.summary_page import FIGURE, PAGE, summary_figure, summary_page
    from lerobot_policy_quantile.studies.two_demo.summary import keep_summaries, read_summaries
    from lerobot_policy_quantile.util.files import write_text

    try:
        for folder in folders or ():
            keep_summaries(load_study(folder), into)
        found = read_summaries(into)
        if not found:
            raise ValueError(f"{into} holds no summary yet: name a study's folder")
        write_text(into / PAGE, summary_page(found))
        write_text(into / FIGURE, summary_figure(found).svg_file())
    except (ValueError, OSError, JournalError) as error:
        Console(stderr=True, soft_wrap=True).print(f"qhead study summarise: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from None
    typer.echo(f"{sum(summary.episodes for summary in found)} episodes in {len(found)} files; {into / PAGE}")


def _run(out: Path, settings: "StudySettings", base: str, workers: int, *, report: bool) -> int:
    from lerobot_policy_quantile.cli.report import write_study_report
    from lerobot_policy_quantile.evaluation.engine import EngineError
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.studies.two_demo.records import load_study
    from lerobot_policy_quantile.studies.two_demo.run import Stopped, run_study
    from lerobot_policy_quantile.util.progress import Narrator

    notes = Console(stderr=True, soft_wrap=True)
    began = time.monotonic()
    try:
        with MemoryWatch() as memory:
            complete = run_study(out, settings, base_folder(base), workers=workers, narrator=Narrator(notes))
    except (Stopped, KeyboardInterrupt):
        notes.print("stopped; run the same command again to go on")
        return STOPPED
    except (ValueError, JournalError, EngineError) as error:
        notes.print(f"qhead study two-demo: {error}", markup=False, highlight=False)
        return 1
    found = load_study(out)
    written = write_study_report(found) if report else None
    _print(found)
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    typer.echo(f"{minutes} min {seconds} s, at most {memory.most / 1e9:.2f} GB of memory in all processes together")
    if written is not None:
        typer.echo(f"report: {written}")
    return 0 if complete else WITH_ERRORS


def base_folder(base: str) -> str:
    """The folder behind `shipped`; anything else as it is."""
    from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
    from lerobot_policy_quantile.studies.two_demo.start import RANDOM

    if base == RANDOM:
        return base
    folder = base_checkpoint() if base == SHIPPED else Path(base)
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"--base must be {SHIPPED}, a policy folder (with config.json) or {RANDOM}; looked for {folder}/config.json"
        )
    return str(folder)


def _print(found: "Study") -> None:
    from lerobot_policy_quantile.studies.two_demo.table import DETERMINISTIC_NOTE, arm_table, cost_lines

    console = Console()
    for arm in found.arms:
        console.print(arm_table(arm))
    typer.echo(DETERMINISTIC_NOTE)
    for line in cost_lines(found):
        typer.echo(line)
    passed = [check.passed for arm in found.arms for check in arm.checks]
    typer.echo(f"{sum(passed)} of {len(passed)} checks passed")
