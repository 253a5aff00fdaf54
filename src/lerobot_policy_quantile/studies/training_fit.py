"""What makes a training fit a GPU: precision, gradient checkpointing and the micro-batch, counted before it starts."""

from bisect import bisect
from functools import cache
from typing import cast

from lerobot_policy_quantile.backbone.memory import TrainingShape, training_peak, weight_bytes
from lerobot_policy_quantile.backbone.towers import Precision
from lerobot_policy_quantile.backbone.variants import VARIANTS
from lerobot_policy_quantile.studies.plans.commands import Fit

CARDS = (24, 48, 80)
"""GiB of the GPUs that are asked for by size."""

USABLE = 0.9
"""Share of a GPU's memory that is planned with: the rest is CUDA's own and lost between blocks."""

FEW = 8
"""Micro-batches below this many rows leave a GPU idle; checkpointing then pays for larger ones."""

GIB = 2**30
WORKER_SPACE = 2 * GIB
"""Of a process that answers with a model: CUDA's own, and one observation on its way through the layers."""


def fit_training(card: int, *, batch: int, processes: int = 1, freeze_vlm: bool = True, backbone: str = "pi05") -> Fit:
    """The plainest training of `batch` rows per process that fits a card of that many GiB.

    In this order: float32 and the whole batch at once; bfloat16 with the largest micro-batch; the same with gradient
    checkpointing, where the micro-batch would have fewer than `FEW` rows without.
    """
    if card not in CARDS:
        raise ValueError(f"--gpu-memory must be one of {', '.join(map(str, CARDS))} (GiB of one GPU); got {card}")

    def fits(precision: Precision, checkpointing: bool, rows: int) -> bool:
        return peak(backbone, batch, rows, processes, precision, checkpointing, freeze_vlm) <= USABLE * card * GIB

    def largest(checkpointing: bool) -> int:
        pieces = [batch >> k for k in range(batch.bit_length()) if not batch % (1 << k)][::-1]
        return ([0, *pieces])[bisect(pieces, False, key=lambda rows: not fits("bfloat16", checkpointing, rows))]

    if fits("float32", False, batch):
        return Fit()
    rows = largest(checkpointing=False)
    checkpointing = rows < min(FEW, batch)
    if checkpointing:
        rows = max(rows, largest(checkpointing=True))
    if not rows:
        need = peak(backbone, batch, 1, processes, "bfloat16", True, freeze_vlm) / GIB
        raise ValueError(
            f"--gpu-memory {card} is too small: training with the VLM {'frozen' if freeze_vlm else 'trained'} on"
            f" {processes} GPU(s) needs {need:.0f} GiB of each, and {100 * USABLE:.0f} % of {card} are planned with"
        )
    return Fit("bfloat16", checkpointing, rows if rows < batch else None)


def fit_workers(card: int, fit: Fit, *, freeze_vlm: bool = True, backbone: str = "pi05") -> int:
    """How many simulators, each with a model of its own, may share a card in evaluation."""
    need = model_bytes(backbone, fit.dtype, freeze_vlm) + WORKER_SPACE
    return max(1, int(USABLE * card * GIB // need))


@cache
def model_bytes(backbone: str, precision: str, freeze_vlm: bool) -> int:
    """The weights of a trained policy: those that were trained in float32, frozen ones in its own precision."""
    return weight_bytes(VARIANTS[backbone], precision=cast(Precision, precision), freeze_vlm=freeze_vlm)


@cache
def peak(
    backbone: str,
    batch: int,
    rows: int,
    processes: int,
    precision: Precision,
    checkpointing: bool,
    freeze_vlm: bool,
) -> int:
    """`training_peak`, counted once per setting."""
    shape = TrainingShape(VARIANTS[backbone], batch, precision=precision, gradient_checkpointing=checkpointing)
    return training_peak(shape, micro_batch=rows, processes=processes, freeze_vlm=freeze_vlm)
