"""`qhead study two-demo`: the paper's study of two demonstrations over opposite detours."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lerobot_policy_quantile.cli.errors import usage_errors
from lerobot_policy_quantile.cli.options import DeviceOption, help_text
from lerobot_policy_quantile.studies.two_demo.base_folder import SHIPPED
from lerobot_policy_quantile.util.exit_codes import STOPPED, WITH_ERRORS
from lerobot_policy_quantile.util.processes import MemoryWatch, share_cores

if TYPE_CHECKING:
    from lerobot_policy_quantile.studies.two_demo.records import Study
    from lerobot_policy_quantile.studies.two_demo.settings import StudySettings

HELP = help_text(
    "Learn from two demonstrations over opposite detours: which heads and decoders keep both routes?",
    "Stages: demonstrations by the scripted expert; frozen VLM prefixes of every step; training of the quantile, L1, L2"
    " and flow heads from the same initialisation on the same batches; 1,000 draws per head at the shared start and the"
    " cost of a replan; closed loop with every decoder; table and report. The verifications in the paper are checks: if"
    " one fails, the study stops and prints the measured number.",
    "To resume, run the same command again: finished stages and episodes are not repeated. You can add seeds, episodes,"
    " scenes or decoders to a folder; any other change needs a new folder.",
    "--settings is demo (small, embedded scene), study (three seeds, 6,000 updates, 50 episodes, both scenes), paper"
    " (LIBERO at 224 pixels with the paper's learning rates, a new output projection and new prompts, for a pi05 folder"
    " on a GPU), or a TOML file. Other options override single fields of it.",
    examples=(
        "qhead study two-demo --settings demo --out runs/demo",
        "qhead study two-demo --scene libero --obstacle --out runs/libero",
        "qhead study two-demo --settings paper --base FOLDER --out runs/paper",
    ),
    exit_codes="0 every episode has a result; 3 some episodes ended in an error; 130 stopped by Ctrl-C; 1 a check"
    " failed or the study could not continue; 2 wrong usage",
)

FIELDS = "Settings (defaults are those of --settings)"


def two_demo(
    out: Annotated[Path, typer.Option(help="Folder of the study.")],
    settings: Annotated[str, typer.Option(help="demo, study, paper or a TOML file.")] = "demo",
    scene: Annotated[
        list[str] | None,
        typer.Option(help="embedded or libero (libero_object, task 0). Repeat for both.", rich_help_panel=FIELDS),
    ] = None,
    obstacle: Annotated[
        bool | None,
        typer.Option(
            "--obstacle/--no-obstacle",
            help="Run only with, or only without, the obstacle. Default: both.",
            rich_help_panel=FIELDS,
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of training seeds.", rich_help_panel=FIELDS)] = None,
    first_seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="First training seed, to split the seeds over several machines.", rich_help_panel=FIELDS
        ),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(min=1, help="Episodes per stochastic decoder and training seed.", rich_help_panel=FIELDS),
    ] = None,
    updates: Annotated[
        int | None, typer.Option(min=1, help="Training updates per head.", rich_help_panel=FIELDS)
    ] = None,
    decoder: Annotated[
        list[str] | None,
        typer.Option(help="Decoder to run; median is always included. Repeatable.", rich_help_panel=FIELDS),
    ] = None,
    first_episode: Annotated[
        int | None,
        typer.Option(min=0, help="Number of the first episode, which determines its noise.", rich_help_panel=FIELDS),
    ] = None,
    base: Annotated[
        str,
        typer.Option(
            help="Checkpoint to start from: shipped, a folder with a quantile or pi05 policy, or random (to test the"
            " pipeline only)."
        ),
    ] = SHIPPED,
    device: DeviceOption = None,
    wording: Annotated[
        str | None,
        typer.Option(
            help="Instructions of LIBERO tasks: bddl (known to the shipped base) or task.language.",
            rich_help_panel=FIELDS,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes for training and simulation. Default: 2 on the CPU, 1 on a GPU."),
    ] = None,
    report: Annotated[bool, typer.Option(help="Write OUT/report.html and OUT/report.md at the end.")] = True,
) -> None:
    """Run the two-demonstration study; `HELP` is what the user reads."""
    cores = min(2, os.cpu_count() or 1)
    share_cores(workers or cores)
    from lerobot_policy_quantile.policy.devices import choose_device
    from lerobot_policy_quantile.studies.two_demo.settings import changed, load_settings

    with usage_errors(ValueError):
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
    typer.echo(f"policies compute on {chosen}", err=True)
    raise typer.Exit(_run(out, asked, base, workers, report=report))


def _run(out: Path, settings: "StudySettings", base: str, workers: int, *, report: bool) -> int:
    """Run the study, print its results, and return the exit code."""
    import time

    from rich.console import Console

    from lerobot_policy_quantile.evaluation.engine import EngineError
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.studies.two_demo.base_folder import base_folder
    from lerobot_policy_quantile.studies.two_demo.records import load_study
    from lerobot_policy_quantile.studies.two_demo.report.write import write_study_report
    from lerobot_policy_quantile.studies.two_demo.run import Stopped, run_study
    from lerobot_policy_quantile.util.progress import Narrator

    notes = Console(stderr=True, soft_wrap=True)
    began = time.monotonic()
    try:
        with MemoryWatch() as memory:
            complete = run_study(out, settings, base_folder(base), workers=workers, narrator=Narrator(notes))
    except (Stopped, KeyboardInterrupt):
        typer.echo("stopped; run the same command again to go on", err=True)
        return STOPPED
    except (ValueError, JournalError, EngineError) as error:
        typer.echo(f"qhead study two-demo: {error}", err=True)
        return 1
    found = load_study(out)
    written = write_study_report(found) if report else None
    _print(found)
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    typer.echo(f"{minutes} min {seconds} s, at most {memory.most / 1e9:.2f} GB of memory in all processes together")
    if written is not None:
        typer.echo(f"report: {written}")
    return 0 if complete else WITH_ERRORS


def _print(found: "Study") -> None:
    from rich.console import Console

    from lerobot_policy_quantile.studies.two_demo.table import DETERMINISTIC_NOTE, arm_table, cost_lines, nearby_table

    console = Console()
    for arm in found.arms:
        console.print(arm_table(arm))
        if (nearby := nearby_table(arm)) is not None:
            console.print(nearby)
    typer.echo(DETERMINISTIC_NOTE)
    for line in cost_lines(found):
        typer.echo(line)
    passed = [check.passed for arm in found.arms for check in arm.checks]
    typer.echo(f"{sum(passed)} of {len(passed)} checks passed")
