"""Where a plan runs: dataset, device, number of processes, and training settings that fit the GPU."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.policy.devices import choose_device
from lerobot_policy_quantile.studies.plans import StudyPlan
from lerobot_policy_quantile.studies.plans.commands import Where
from lerobot_policy_quantile.studies.plans.size import BATCH, PAPER, Size
from lerobot_policy_quantile.studies.plans.trainings import content_digest
from lerobot_policy_quantile.studies.training_fit import fit_training, fit_workers

INFO = Path("meta") / "info.json"


@dataclass(frozen=True)
class Machine:
    """What the user says about the machine."""

    device: str | None
    """None: the best one available."""
    gpu_memory: int | None
    """GiB of one GPU; None: training settings are left as they are."""
    processes: int
    workers: int | None


def place(
    study: StudyPlan, dataset: Path | None, out: str, weights: str, machine: Machine, *, size: Size, dry_run: bool
) -> Where:
    """Where the study's commands read, write and compute. A dry run may name a device that this machine lacks."""
    if dataset is not None and not (dataset / INFO).is_file():
        raise ValueError(f"--dataset must be the folder of a LeRobotDataset (with {INFO}); got {dataset}")
    if size.dataset is not None and dataset is None:
        raise ValueError(
            f"size {size.name!r} needs --dataset: the folder of scripted demonstrations that qhead collect --suite"
            " recorded; got none"
        )
    frames = 0 if size.collect and dataset is None else _frames(study, dataset)
    named = machine.device or (None if machine.gpu_memory is None else "cuda")
    device = named if dry_run and named is not None else choose_device(named)
    root = None if dataset is None else str(dataset)
    where = Where(frames, out, root, weights, device, machine.processes, machine.workers, lean=size.lean)
    if size.shared and dataset is not None:
        where = replace(where, content=content_digest(dataset, size.weights or weights))
    return (
        where if size.backbone is not None or machine.gpu_memory is None else _fitted(study, where, machine.gpu_memory)
    )


def inputs_of(study: StudyPlan, where: Where, size: Size) -> dict[str, Any]:
    """What must be unchanged to resume a folder; device and processes may change."""
    data = {"dataset": where.root or study.dataset, "frames": where.frames, "weights": size.weights or where.weights}
    variants = {variant.name: variant.policy for variant in size.applied(study).variants}
    record = {} if size == PAPER else {"size": size.record(study)}
    if size.shared:
        data["content"] = where.content
    return {"study": study.name, "small": size.name == "small", **data, "variants": variants, **record}


def _fitted(study: StudyPlan, where: Where, card: int) -> Where:
    """The same with training settings per variant, and evaluation workers, that fit GPUs of `card` GiB."""
    fits, workers, batch = {}, [os.cpu_count() or 1], BATCH // where.processes
    for variant in study.variants:
        frozen = bool(variant.policy.get("freeze_vlm", True))
        fits[variant.name] = fit_training(card, batch=batch, processes=where.processes, freeze_vlm=frozen)
        workers.append(fit_workers(card, fits[variant.name], freeze_vlm=frozen))
    return replace(where, fits=fits, workers=where.workers or min(workers))


def _frames(study: StudyPlan, dataset: Path | None) -> int:
    """Number of frames in one epoch, from the dataset's folder or from the hub."""
    path = None if dataset is None else dataset / INFO
    if path is None:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import (
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
            OfflineModeIsEnabled,
        )

        try:
            path = Path(hf_hub_download(study.dataset, str(INFO), repo_type="dataset"))
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
            raise ValueError(
                f"dataset {study.dataset!r} cannot be loaded from the hub ({type(error).__name__}); give its folder"
                f" with --dataset, or download it first: hf download --repo-type dataset {study.dataset}"
            ) from error
    return int(json.loads(path.read_text(encoding="utf-8"))["total_frames"])
