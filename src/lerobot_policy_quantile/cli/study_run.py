"""`qhead study run`: the paper's tables, from training to results."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import DeviceOption, help_text
from lerobot_policy_quantile.util.exit_codes import STOPPED, WITH_ERRORS

if TYPE_CHECKING:
    from lerobot_policy_quantile.studies.plans import StudyPlan
    from lerobot_policy_quantile.studies.plans.commands import Kept, StudyCommand, Where
    from lerobot_policy_quantile.studies.plans.size import Size

HELP = help_text(
    "Run one of the paper's studies: train its variants, evaluate them, and print tables with the paper's numbers.",
    "Without NAME, lists the studies. To resume, run the same command again: training continues from its last"
    " checkpoint, evaluation from its journal. --dry-run prints the commands instead, for a shell or a scheduler.",
    "The global batch size is the paper's 128 on any number of GPUs. --gpu-memory chooses precision, gradient"
    " checkpointing and micro-batch size to fit; see docs/guides/benchmarks.md.",
    "--miniature runs the study on a laptop: the tiny backbone, three seeds, scripted demonstrations of LIBERO, and a"
    " page with a verdict on each of the paper's claims.",
    "Trials on a real robot need a person: such a study trains the policies and prints the commands of the trials.",
    examples=(
        "qhead study run",
        "qhead study run ablations --small",
        "qhead study run k_sweep --miniature --dataset FOLDER --summary results",
        "qhead study run ablations --gpu-memory 24",
        "qhead study run k_sweep --dataset FOLDER --processes 2 --dry-run",
    ),
    exit_codes="0 every episode has a result; 3 some episodes ended in an error; 130 stopped by Ctrl-C; 1 the study"
    " could not continue; 2 wrong usage",
)


def run(
    name: Annotated[str | None, typer.Argument(help="Name of the study. Default: list all studies.")] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(help="Folder of the LeRobotDataset to train on. Default: the study's dataset on the hub."),
    ] = None,
    out: Annotated[str, typer.Option(help="Folder for checkpoints, journals and tables.")] = "runs/studies",
    weights: Annotated[str, typer.Option(help="pi0.5 checkpoint to start from: a folder or USER/NAME on the hub.")] = (
        "lerobot/pi05_base"
    ),
    small: Annotated[
        bool,
        typer.Option("--small", help="Trial run of every variant: tiny backbone, one seed, scripted demonstrations."),
    ] = False,
    miniature: Annotated[
        bool,
        typer.Option("--miniature", help="The study on a laptop: tiny backbone, fewer updates and episodes."),
    ] = False,
    seeds: Annotated[
        str | None, typer.Option(help="Only these training seeds, such as 0 or 0-1. Default: all of the study.")
    ] = None,
    variants: Annotated[
        str | None, typer.Option(help="Only these variants, separated by commas. Default: all of the study.")
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(min=1, help="Trainings at once, sharing the cores. Default: 1; with --miniature one per core."),
    ] = None,
    summary: Annotated[
        Path | None,
        typer.Option(
            help="With --miniature: folder for the study's page and a small file of all its outcomes. Policies that the"
            " file has are not run again, so that parts from several days or machines add up."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands without running them.")] = False,
    device: DeviceOption = None,
    gpu_memory: Annotated[
        int | None,
        typer.Option(help="Memory of one GPU in GiB: 24, 48 or 80. Chooses training settings that fit."),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Training processes, one GPU each; the global batch size stays 128.")
    ] = 1,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Simulators of each evaluation. Default: as many as fit.")
    ] = None,
) -> None:
    """Run a study; `HELP` is what the user reads."""
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.evaluation.plan import parse_numbers
    from lerobot_policy_quantile.studies.plan_checks import require_benchmarks, require_sound
    from lerobot_policy_quantile.studies.plan_machine import Machine, place
    from lerobot_policy_quantile.studies.plan_run import StepFailedError
    from lerobot_policy_quantile.studies.plans import load_study, study_names
    from lerobot_policy_quantile.studies.plans.commands import expand
    from lerobot_policy_quantile.studies.plans.size import load_size

    with exit_on("study run", ValueError, JournalError, StepFailedError):
        if name is None:
            for each in map(load_study, study_names()):
                extent = f"{len(each.variants)} variants, seeds {each.seeds}"
                typer.echo(f"{each.name}: {each.title} ({each.paper}); {extent}")
            return
        if small and miniature:
            raise ValueError("--small and --miniature are two sizes; got both")
        if summary is not None and not miniature:
            raise ValueError("--summary needs --miniature; got a study of another size")
        study, size = load_study(name), load_size("small" if small else "miniature" if miniature else "paper")
        require_sound(size.applied(study))
        machine = Machine(device, gpu_memory, processes, workers)
        where = place(study, dataset, out, weights, machine, size=size, dry_run=dry_run)
        chosen = None if seeds is None else parse_numbers("--seeds", seeds)
        only = None if variants is None else [each.strip() for each in variants.split(",")]
        steps = expand(study, where, size, chosen, only, _kept(study, size, summary))
        if dry_run:
            for step in steps:
                typer.echo(step.text)
            return
        require_benchmarks(study)
        at_once = parallel or (os.cpu_count() or 1 if size.parallel else 1)
        code = _run(study, steps, where, size, at_once, summary)
    raise typer.Exit(code)


def _kept(study: "StudyPlan", size: "Size", summary: Path | None) -> "Kept":
    """What the study's file has already, told to the user."""
    from lerobot_policy_quantile.studies.miniature.kept import kept_policies
    from lerobot_policy_quantile.studies.miniature.summary import path_of

    kept = {} if summary is None else kept_policies(size.applied(study), size, path_of(summary, study))
    for suite, policies in kept.items():
        if policies:
            typer.echo(f"{suite}: {len(policies)} policies are in {summary} and are not run again", err=True)
    return kept


def _run(
    study: "StudyPlan", steps: "list[StudyCommand]", where: "Where", size: "Size", parallel: int, summary: Path | None
) -> int:
    """Run the steps, print the results, and return the exit code."""
    from lerobot_policy_quantile.studies.plan_machine import inputs_of
    from lerobot_policy_quantile.studies.plan_results import write_results
    from lerobot_policy_quantile.studies.plan_run import run_steps
    from lerobot_policy_quantile.studies.plans.commands import home

    def note(text: str) -> None:
        typer.echo(text, err=True)

    folder = Path(home(study, where))
    note(f"{study.title} ({study.paper}); policies compute on {where.device}")
    try:
        root = Path(where.out) if size.shared else None
        clean = run_steps(steps, where, folder, inputs_of(study, where, size), note, parallel=parallel, root=root)
    except KeyboardInterrupt:
        note("stopped; run the same command again to go on")
        if summary is not None:
            _summarise(study, steps, size, summary, where.root)
        return STOPPED
    trials = [step for step in steps if step.kind == "robot"]
    if trials:
        note("training is done; run the robot trials with these commands, then this command again for the table:")
        for step in trials:
            typer.echo(step.text)
    results = write_results(study, steps, folder)
    if results is not None:
        typer.echo(results.table, nl=False)
        for path in results.figure_files:
            typer.echo(f"figure: {path}")
        typer.echo(f"table: {results.table_file}")
    if summary is not None:
        _summarise(study, steps, size, summary, where.root)
    return 0 if clean else WITH_ERRORS


def _summarise(study: "StudyPlan", steps: "list[StudyCommand]", size: "Size", into: Path, dataset: str | None) -> None:
    """Write the study's outcomes and page, as far as there are any."""
    from lerobot_policy_quantile.studies.miniature.page import write_page
    from lerobot_policy_quantile.studies.miniature.summary import keep_summary

    kept = keep_summary(study, steps, size, into, dataset)
    if kept is not None:
        typer.echo(f"page: {write_page(kept, into)}")
