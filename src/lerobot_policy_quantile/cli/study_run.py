"""`qhead study run`: the paper's studies, from training to tables beside the paper's."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from lerobot_policy_quantile.util.extras import missing_extras

if TYPE_CHECKING:
    from lerobot_policy_quantile.studies.plans import StudyPlan
    from lerobot_policy_quantile.studies.plans.commands import Step, Where

INFO = Path("meta") / "info.json"
WITH_ERRORS, STOPPED = 3, 130

# One line per paragraph: the terminal wraps it.
RUN_HELP = "\n\n".join(
    [
        "Run one of the paper's studies: train its variants, evaluate them, print tables and figures beside the paper's"
        " numbers. Without NAME the studies are listed.",
        "To resume after Ctrl-C, a kill or a crash, run the same command again: trainings go on from their last"
        " checkpoint, evaluations from their journal. --dry-run prints the commands instead, for a shell or scheduler.",
        "The global batch is the paper's 128 on any number of GPUs. --gpu-memory 24, 48 or 80 (GiB of one GPU) chooses"
        " precision, gradient checkpointing and the micro-batch that fits; docs/guides/studies.md has the figures.",
        "Trials of a real robot are set up by people: a run trains both methods and prints their commands.",
        "Examples:",
        "qhead study run ablations --small",
        "qhead study run ablations --gpu-memory 24",
        "qhead study run k_sweep --dataset data/libero --gpu-memory 80 --processes 2 --dry-run",
        "Exit codes: 0 every episode has a result; 3 some ended in an error; 130 stopped by Ctrl-C; 1 the study could"
        " not go on; 2 wrong usage.",
    ]
)


@dataclass(frozen=True)
class Machine:
    """What the options say about where a study runs."""

    device: str | None
    gpu_memory: int | None
    processes: int
    workers: int | None


def run(
    name: Annotated[str | None, typer.Argument(help="A study; all are listed if left out.")] = None,
    dataset: Annotated[
        Path | None, typer.Option(help="Folder of the LeRobotDataset to train on; the study's own on the hub without.")
    ] = None,
    out: Annotated[str, typer.Option(help="Folder for checkpoints, journals and tables.")] = "runs/studies",
    weights: Annotated[str, typer.Option(help="pi0.5 checkpoint to start from: folder or hub id.")] = (
        "lerobot/pi05_base"
    ),
    small: Annotated[
        bool,
        typer.Option("--small", help="Every variant in miniature: tiny backbone, one seed, scripted demonstrations."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands and run nothing.")] = False,
    device: Annotated[str | None, typer.Option(help="cuda, mps or cpu; the best there is if left out.")] = None,
    gpu_memory: Annotated[
        int | None, typer.Option(help="GiB of one GPU: 24, 48 or 80; chooses what makes training fit.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Training processes, one GPU each; same global batch.")] = 1,
    workers: Annotated[int | None, typer.Option(min=1, help="Simulators of the evaluations.")] = None,
) -> None:
    """Run a study; `RUN_HELP` is what the user reads."""
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.studies.plan_run import StepFailedError
    from lerobot_policy_quantile.studies.plans import load_study, study_names
    from lerobot_policy_quantile.studies.plans.commands import expand

    try:
        if name is None:
            for each in map(load_study, study_names()):
                typer.echo(
                    f"{each.name}: {each.title} ({each.paper}); {len(each.variants)} variants, seeds {each.seeds}"
                )
            return
        study = load_study(name)
        check(study)
        machine = Machine(device, gpu_memory, processes, workers)
        where = _where(study, dataset, out, weights, machine, small=small, dry_run=dry_run)
        steps = expand(study, where, small=small)
        if dry_run:
            for step in steps:
                typer.echo(step.text)
            return
        require_data(study)
        code = _run(study, steps, where, small=small)
    except (ValueError, JournalError, StepFailedError) as error:
        Console(stderr=True, soft_wrap=True).print(f"qhead study run: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from None
    raise typer.Exit(code)


def check(study: "StudyPlan") -> None:
    """Refuse a study whose settings, suites or decoders do not exist."""
    from lerobot_policy_quantile.adapters.suites import parse_suites
    from lerobot_policy_quantile.configuration_quantile import QuantileConfig
    from lerobot_policy_quantile.core.decoders import canonical_text

    for variant in study.variants:
        try:
            QuantileConfig(device="cpu", **variant.policy)
        except (TypeError, ValueError) as error:
            raise ValueError(f"variant {variant.name!r} of study {study.name!r}: {error}") from error
    for evaluation in study.evaluations:
        parse_suites(evaluation.suite)
        for decoder in evaluation.decoders:
            canonical_text(decoder)


def require_data(study: "StudyPlan") -> None:
    """Refuse, before anything is trained, a study whose benchmarks cannot be run on this machine."""
    from lerobot_policy_quantile.adapters.suites import parse_suites
    from lerobot_policy_quantile.scenes.libero.assets import find_assets, find_data

    suites = [suite for evaluation in study.evaluations for suite in parse_suites(evaluation.suite)]
    if suites and (absent := missing_extras("sim")):
        raise ValueError(absent)
    for part in ("plus", "pro"):
        if any(suite.startswith(f"libero_{part}") for suite in suites):
            find_data(part)
    if suites:
        find_assets()


def _where(
    study: "StudyPlan", dataset: Path | None, out: str, weights: str, machine: Machine, *, small: bool, dry_run: bool
) -> "Where":
    from lerobot_policy_quantile.policy.devices import choose_device
    from lerobot_policy_quantile.studies.plans.commands import Where

    if dataset is not None and not (dataset / INFO).is_file():
        raise ValueError(f"--dataset must be the folder of a LeRobotDataset (with {INFO}); got {dataset}")
    frames = 0 if small and dataset is None else _frames(study, dataset)
    named = machine.device or (None if machine.gpu_memory is None else "cuda")
    device = named if dry_run and named is not None else choose_device(named)  # it may be printed here, run elsewhere
    root = None if dataset is None else str(dataset)
    where = Where(frames, out, root, weights, device, machine.processes, machine.workers)
    return where if small or machine.gpu_memory is None else _fitted(study, where, machine.gpu_memory)


def _fitted(study: "StudyPlan", where: "Where", card: int) -> "Where":
    """The same on GPUs of that many GiB: how every variant trains, and how many models evaluation may hold at once."""
    from lerobot_policy_quantile.studies.plans.commands import BATCH
    from lerobot_policy_quantile.studies.training_fit import fit_training, fit_workers

    fits, workers, batch = {}, [os.cpu_count() or 1], BATCH // where.processes
    for variant in study.variants:
        frozen = bool(variant.policy.get("freeze_vlm", True))
        fits[variant.name] = fit_training(card, batch=batch, processes=where.processes, freeze_vlm=frozen)
        workers.append(fit_workers(card, fits[variant.name], freeze_vlm=frozen))
    return replace(where, fits=fits, workers=where.workers or min(workers))


def _frames(study: "StudyPlan", dataset: Path | None) -> int:
    """How long one epoch is: from the dataset's folder, or from the hub."""
    path = None if dataset is None else dataset / INFO
    if path is None:
        from huggingface_hub import hf_hub_download

        try:
            path = Path(hf_hub_download(study.dataset, str(INFO), repo_type="dataset"))
        except Exception as error:  # no network, no such dataset, no access
            raise ValueError(
                f"dataset {study.dataset!r} cannot be had from the hub ({type(error).__name__}); give its folder with"
                f" --dataset, or fetch it where there is a network: hf download --repo-type dataset {study.dataset}"
            ) from error
    return int(json.loads(path.read_text(encoding="utf-8"))["total_frames"])


def _run(study: "StudyPlan", steps: "list[Step]", where: "Where", *, small: bool) -> int:
    from lerobot_policy_quantile.studies.plan_run import run_steps
    from lerobot_policy_quantile.studies.plans.commands import home

    folder = Path(home(study, where))
    notes = Console(stderr=True, soft_wrap=True)

    def say(text: str) -> None:
        notes.print(text, markup=False, highlight=False)

    say(f"{study.title} ({study.paper}); policies compute on {where.device}")
    try:
        clean = run_steps(steps, where, folder, _inputs(study, where, small=small), say)
    except KeyboardInterrupt:
        say("stopped; run the same command again to go on")
        return STOPPED
    trials = [step for step in steps if step.kind == "robot"]
    if trials:
        say("trained; the trials are yours to run, then run this command again for the table:")
        for step in trials:
            typer.echo(step.text)
    _print_results(study, steps, folder)
    return 0 if clean else WITH_ERRORS


def _inputs(study: "StudyPlan", where: "Where", *, small: bool) -> dict[str, Any]:
    """What must be the same for a folder to be gone on with; where it is computed may change."""
    data = {"dataset": where.root or study.dataset, "frames": where.frames, "weights": where.weights}
    variants = {variant.name: variant.policy for variant in study.variants}
    return {"study": study.name, "small": small, **data, "variants": variants}


def _print_results(study: "StudyPlan", steps: "list[Step]", folder: Path) -> None:
    """The tables on standard output and in files, the figures beside them."""
    from lerobot_policy_quantile.cli.table import JOURNAL, read_folders
    from lerobot_policy_quantile.evaluation.tables.sheet import render, sheets_of
    from lerobot_policy_quantile.studies.plan_figures import figures_of
    from lerobot_policy_quantile.util.files import write_text

    folders = list(dict.fromkeys(Path(step.folder) for step in steps if step.kind in ("eval", "robot")))
    rows, facts = read_folders([each for each in folders if (each / JOURNAL).is_file()])
    sheets = sheets_of(rows, facts)
    if not sheets:
        return
    text = "\n".join(render(sheet, "markdown") for sheet in sheets)
    write_text(folder / "table.md", text)
    write_text(folder / "table.csv", "\n".join(render(sheet, "csv") for sheet in sheets))
    typer.echo(text, nl=False)
    for name, figure in figures_of(study.name, rows, facts).items():
        write_text(folder / f"{name}.svg", figure.svg_file())
        typer.echo(f"figure: {folder / f'{name}.svg'}")
    typer.echo(f"table: {folder / 'table.md'}")
