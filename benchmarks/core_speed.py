"""Speed and memory of the maths against plain PyTorch, interleaved in one run.

    make bench                                            # one core
    .venv/bin/python benchmarks/core_speed.py --help      # rounds, threads, output folder

Sizes: K = 21 levels, H = 50 steps, D = 32 dimensions, batch 64, float32 on the CPU.
Writes core_speed.md and core_speed.json; exits with 1 when a limit does not hold.
"""

import argparse
import platform
import sys
from functools import partial
from pathlib import Path

import torch
from timing import Row, interleaved, milliseconds_row, peak_bytes, ratio_row, write
from torch.nn import functional

from lerobot_policy_quantile.core.decoders import PRESETS, fit_copula, parse_decoder
from lerobot_policy_quantile.core.episode import episodes_from_seeds
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.core.losses import clean_target, keep_mask, masked_mean, pinball, quantile_loss
from lerobot_policy_quantile.core.ordered import ordered_quantiles, positive_gaps
from lerobot_policy_quantile.core.quantile_function import QuantileFunction

K, H, D, BATCH = 21, 50, 32, 64
QUANTILE_BYTES = BATCH * H * D * K * 4


class TrainingStep:
    """The tensors of one training step, and the losses that are compared on them."""

    def __init__(self) -> None:
        g = torch.Generator().manual_seed(0)
        self.levels = quantile_levels(K)
        self.median = torch.randn(BATCH, H, D, generator=g).requires_grad_()
        self.raw_gaps = torch.randn(BATCH, H, D, K - 1, generator=g).requires_grad_()
        self.quantiles = torch.randn(BATCH, H, D, K, generator=g).requires_grad_()
        self.target = torch.randn(BATCH, H, D, generator=g)
        self.valid = torch.rand(BATCH, H, D, generator=g) < 0.95
        self.mask_generator = torch.Generator().manual_seed(1)

    def ours(self) -> None:
        """Raw outputs -> ordered quantiles -> masked pinball -> gradients of the raw outputs."""
        keep = keep_mask(self.valid, 0.1, generator=self.mask_generator)
        target = clean_target(self.target, self.valid)
        loss = quantile_loss(ordered_quantiles(self.median, positive_gaps(self.raw_gaps)), target, self.levels)
        torch.autograd.backward(masked_mean(loss, keep))
        self._clear()

    def unfused(self) -> None:
        """The same loss written out with torch's own autograd: cumulative sums and a maximum."""
        keep = keep_mask(self.valid, 0.1, generator=self.mask_generator)
        gaps, m = positive_gaps(self.raw_gaps), self.median[..., None]
        c = K // 2
        left = gaps[..., :c].flip(-1).cumsum(-1).flip(-1)
        quantiles = torch.cat([m - left, m, m + gaps[..., c:].cumsum(-1)], dim=-1)
        target = clean_target(self.target, self.valid)
        loss = pinball(target[..., None] - quantiles, self.levels).mean(-1)
        torch.autograd.backward(masked_mean(loss, keep))
        self._clear()

    def l1(self) -> None:
        """torch's L1 loss between as many outputs and the same targets."""
        target = self.target[..., None].expand_as(self.quantiles)
        torch.autograd.backward(functional.l1_loss(self.quantiles, target))
        self._clear()

    def l1_of_the_medians(self) -> None:
        """torch's L1 loss of a point head: 1 / K of the outputs."""
        torch.autograd.backward(functional.l1_loss(self.median, self.target))
        self._clear()

    def _clear(self) -> None:
        self.median.grad = self.raw_gaps.grad = self.quantiles.grad = None


def training_rows(rounds: int) -> list[Row]:
    step = TrainingStep()
    ours, l1, unfused, point = interleaved([step.ours, step.l1, step.unfused, step.l1_of_the_medians], rounds)
    memory = peak_bytes(step.ours) / QUANTILE_BYTES
    return [
        ratio_row("ordered quantiles + masked pinball, forward + backward / L1 on the same tensors", ours, l1, 6.0),
        Row("its peak memory / the quantile tensor (8.6 MB)", round(memory, 2), "x", limit=3.0),
        ratio_row("the same, unfused (torch autograd) / L1 on the same tensors", unfused, l1),
        Row("its peak memory / the quantile tensor", round(peak_bytes(step.unfused) / QUANTILE_BYTES, 2), "x"),
        milliseconds_row("ordered quantiles + masked pinball, per batch of 64", ours),
        milliseconds_row("L1 on the same tensors, per batch of 64", l1),
        milliseconds_row("L1 of a point head (1 / 21 of the outputs), per batch of 64", point),
    ]


def decoding_rows(rounds: int) -> list[Row]:
    step = TrainingStep()
    with torch.no_grad():
        knots = ordered_quantiles(step.median, positive_gaps(step.raw_gaps))
    quantiles = QuantileFunction(step.levels, knots)
    copula = fit_copula(quantiles, step.target, step.valid)
    decoders = [parse_decoder(name).with_copula(copula) for name in PRESETS]
    episodes = [episodes_from_seeds(range(BATCH)) for _ in decoders]  # what they remember differs
    works = [partial(decoder.decode, quantiles, own) for decoder, own in zip(decoders, episodes, strict=True)]
    times = interleaved(works, rounds)
    return [
        milliseconds_row(f"decode a chunk, {name}, per episode", taken, BATCH, 2.0 if name == "density" else None)
        for name, taken in zip(PRESETS, times, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="interleaved repetitions (default 40)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default 1)")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder of the tables")
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error(f"--rounds must be at least 2; got {arguments.rounds}")
    torch.set_num_threads(arguments.threads)
    setting: dict[str, object] = {"torch": torch.__version__, "threads": arguments.threads}
    setting |= {"machine": platform.machine(), "K": K, "H": H, "D": D, "batch": BATCH, "rounds": arguments.rounds}
    rows = [*training_rows(arguments.rounds), *decoding_rows(arguments.rounds)]
    sys.exit(write(arguments.out / "core_speed", "Speed of the maths", rows, setting))


if __name__ == "__main__":
    main()
