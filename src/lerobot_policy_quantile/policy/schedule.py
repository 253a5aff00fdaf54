"""The learning-rate schedule: linear warm-up, then a cosine to a fraction of the peak (App. B).

LeRobot's own cosine schedule shrinks the warm-up when a run is shorter than its decay; this one
never rescales. Every parameter group keeps its own peak: the schedule is a factor on each.
"""

import math
from dataclasses import dataclass

from lerobot.optim import LRSchedulerConfig
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def warmup_cosine(
    step: int,
    *,
    warmup_steps: int,
    total_steps: int,
    final_fraction: float,
    peak: float = 1.0,
    peak_step: int | None = None,
) -> float:
    """Rate at a step: linear up to `warmup_steps`, then a cosine from the peak to its final fraction.

    The line reaches the peak at `peak_step`, which is where the cosine begins unless said otherwise. A run no longer
    than its warm-up is warm-up only.
    """
    if step < warmup_steps:
        return peak * (step + 1) / ((warmup_steps if peak_step is None else peak_step) + 1)
    progress = min((step - warmup_steps) / max(1, total_steps - warmup_steps), 1.0)
    return peak * (final_fraction + (1 - final_fraction) * 0.5 * (1 + math.cos(math.pi * progress)))


@LRSchedulerConfig.register_subclass("warmup_cosine_to_fraction")
@dataclass
class WarmupCosineConfig(LRSchedulerConfig):  # type: ignore[misc]
    """`warmup_cosine` over the steps of the run."""

    num_warmup_steps: int = 200
    final_fraction: float = 0.1

    def build(self, optimizer: Optimizer, num_training_steps: int) -> LambdaLR:
        """The schedule as torch runs it."""

        def factor(step: int) -> float:
            return warmup_cosine(
                step,
                warmup_steps=self.num_warmup_steps,
                total_steps=num_training_steps,
                final_fraction=self.final_fraction,
            )

        return LambdaLR(optimizer, factor)
