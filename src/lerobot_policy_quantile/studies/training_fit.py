"""Training settings that fit a GPU: precision, gradient checkpointing and micro-batch size, computed in advance."""

from bisect import bisect
from functools import cache
from typing import cast

from lerobot_policy_quantile.backbone.memory import TrainingShape, training_peak, weight_bytes
from lerobot_policy_quantile.backbone.towers import Precision
from lerobot_policy_quantile.backbone.variants import VARIANTS
from lerobot_policy_quantile.studies.plans.commands import Fit

CARDS = (24, 48, 80)
"""Supported GPU memory sizes, in GiB."""

USABLE = 0.9
"""Usable share of a GPU's memory; the rest is for CUDA itself and fragmentation."""

FEW = 8
"""Smaller micro-batches leave a GPU idle; gradient checkpointing is then used to allow larger ones."""

GIB = 2**30
WORKER_SPACE = 2 * GIB
"""Memory of an evaluation process besides the weights: CUDA itself and activations of one observation."""


def fit_training(card: int, *, batch: int, processes: int = 1, freeze_vlm: bool = True, backbone: str = "pi05") -> Fit:
    """The simplest settings to train `batch` rows per process on a GPU with `card` GiB.

    In this order: float32 and the whole batch at once; bfloat16 with the largest micro-batch; also gradient
    checkpointing, if the micro-batch would have fewer than `FEW` rows without it.
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
            f" {processes} GPU(s) needs {need:.0f} GiB of each, and {100 * USABLE:.0f} % of {card} are usable"
        )
    return Fit("bfloat16", checkpointing, rows if rows < batch else None)


def fit_workers(card: int, fit: Fit, *, freeze_vlm: bool = True, backbone: str = "pi05") -> int:
    """Number of evaluation workers, each with its own model, that fit one GPU."""
    need = model_bytes(backbone, fit.dtype, freeze_vlm) + WORKER_SPACE
    return max(1, int(USABLE * card * GIB // need))


@cache
def model_bytes(backbone: str, precision: str, freeze_vlm: bool) -> int:
    """Bytes of a trained policy's weights: trained ones in float32, frozen ones in `precision`."""
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
