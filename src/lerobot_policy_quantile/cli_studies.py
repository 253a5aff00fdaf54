"""`qhead study-plan`: the paper's studies as commands."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from lerobot_policy_quantile.studies.plans import Study

INFO = Path("meta") / "info.json"


def study_plan(
    name: Annotated[str | None, typer.Argument(help="A study; all are listed if left out.")] = None,
    dataset: Annotated[Path | None, typer.Option(help="Folder of the LeRobotDataset to train on.")] = None,
    out: Annotated[str, typer.Option(help="Folder for checkpoints and journals.")] = "runs/studies",
    weights: Annotated[str, typer.Option(help="pi0.5 checkpoint to start from: folder or hub id.")] = (
        "lerobot/pi05_base"
    ),
    small: Annotated[
        bool, typer.Option("--small", help="Every variant, but tiny: one seed, 20 steps, a handful of episodes.")
    ] = False,
) -> None:
    """Print the training and evaluation commands of one of the paper's studies.

    Nothing is run: pipe the lines into a shell or a scheduler. Trainings come first; every evaluation
    resumes and its table is `qhead table OUT/STUDY/SUITE`. Settings are checked before anything is printed.

    Example: qhead study-plan k_sweep --dataset data/libero --small | sh
    """
    from lerobot_policy_quantile.studies.plans import Where, expand, load_study, study_names

    try:
        if name is None:
            for each in map(load_study, study_names()):
                typer.echo(
                    f"{each.name}: {each.title} ({each.paper}); {len(each.variants)} variants, seeds {each.seeds}"
                )
            return
        study = load_study(name)
        check(study)
        if dataset is None or not (dataset / INFO).is_file():
            raise ValueError(f"--dataset must be the folder of a LeRobotDataset (with {INFO}); got {dataset}")
        frames = int(json.loads((dataset / INFO).read_text(encoding="utf-8"))["total_frames"])
        for command in expand(study, Where(str(dataset), frames, out, weights), small=small):
            typer.echo(command)
    except ValueError as error:
        Console(stderr=True, soft_wrap=True).print(f"qhead study-plan: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from None


def check(study: "Study") -> None:
    """Refuse a study whose settings, suites or decoders do not exist."""
    from lerobot_policy_quantile.configuration_quantile import QuantileConfig
    from lerobot_policy_quantile.core.decoders import canonical_text
    from lerobot_policy_quantile.suites import parse_suites

    for variant in study.variants:
        try:
            QuantileConfig(device="cpu", **variant.policy)
        except (TypeError, ValueError) as error:
            raise ValueError(f"variant {variant.name!r} of study {study.name!r}: {error}") from error
    for evaluation in study.evaluations:
        parse_suites(evaluation.suite)
        for decoder in evaluation.decoders:
            canonical_text(decoder)
