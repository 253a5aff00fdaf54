"""The predicted quantile function: piecewise linear between its knots, linear beyond them.

Axes: *s any leading shape (batch, step, action dim), k level, j interval between levels, n sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from lerobot_policy_quantile.core._checks import require_between, require_no_nan, require_shape
from lerobot_policy_quantile.core._devices import on_host, send
from lerobot_policy_quantile.core.levels import check_levels

SMALLEST_GAP = 1e-6
"""Gaps below this count as this wide when a density is formed; in normalised action units."""


@dataclass(frozen=True, eq=False)
class QuantileFunction:
    """Q(u) through the knots (levels, quantiles), one function per leading index.

    Between two knots Q is linear; the first and last segments continue to u = 0 and u = 1.
    A `rank` or `value` may have the functions' own shape *s, anything that broadcasts to it
    (one rank for all coordinates), or further leading axes (n samples of every coordinate).
    Values are checked on the CPU only; levels given on the CPU spare a look at those on the device.
    """

    levels: Float[Tensor, " k"]
    quantiles: Float[Tensor, "*s k"]
    gaps: Float[Tensor, "*s j"] | None = None
    """Differences of the quantiles as a head predicts them. Subtracting rounded quantiles loses the digits of a narrow
    gap, and its density, with what else was in the batch; left out, they are subtracted all the same."""

    def __post_init__(self) -> None:
        check_levels(self.levels)
        require_shape("quantiles", self.quantiles, (*self.quantiles.shape[:-1], len(self.levels)))
        require_no_nan("quantiles", self.quantiles)
        if self.gaps is not None:
            require_shape("gaps", self.gaps, (*self.quantiles.shape[:-1], len(self.levels) - 1))
        if on_host(self.quantiles) and bool((self.quantiles.diff(dim=-1) < 0).any()):
            raise ValueError("quantiles must not decrease along the last axis; sort them or build them from gaps")
        # Levels in the quantiles' precision and place: half-precision knots still have exact levels.
        wide = torch.promote_types(self.quantiles.dtype, torch.float32)
        if on_host(self.levels):
            object.__setattr__(self, "_host_levels", self.levels.to(wide))
        object.__setattr__(self, "levels", send(self.levels, self.quantiles.device, wide))
        object.__setattr__(self, "quantiles", self.quantiles.to(wide))

    @property
    def shape(self) -> torch.Size:
        """Shape *s: one quantile function per entry."""
        return self.quantiles.shape[:-1]

    def __call__(self, rank: float | Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Q(rank), by linear interpolation between knots and linear extrapolation outside them."""
        if not isinstance(rank, Tensor):
            return self._at(rank)
        rank = torch.as_tensor(rank, dtype=self.levels.dtype, device=self.levels.device)
        shape = self._common_shape(rank)
        # The segment search runs on the rank as given: one shared rank costs one search.
        left = torch.searchsorted(self.levels, rank.contiguous(), right=True) - 1
        left = left.clamp(0, len(self.levels) - 2)
        weight = (rank - self.levels[left]) / self.levels.diff()[left]
        left = left.expand(shape)
        low, high = self._knot(left), self._knot(left + 1)
        return low + weight * (high - low)

    def _at(self, rank: float) -> Float[Tensor, "*s"]:
        """Q at one rank of the host's: the segment is found there, and no device is asked."""
        levels = self._host_levels
        number = torch.tensor(rank, dtype=levels.dtype)
        left = min(max(int(torch.searchsorted(levels, number, right=True)) - 1, 0), len(levels) - 2)
        weight = (number - levels[left]) / (levels[left + 1] - levels[left])
        low, high = self.quantiles[..., left], self.quantiles[..., left + 1]
        return low + weight * (high - low)

    @cached_property
    def _host_levels(self) -> Float[Tensor, " k"]:
        """Read back, where they were given on a device."""
        return self.levels.cpu()

    def cdf(self, value: float | Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The inverse: the largest rank in [0, 1] with Q(rank) <= value (0 when there is none)."""
        value = torch.as_tensor(value, dtype=self.levels.dtype, device=self.levels.device)
        shape = self._common_shape(value)
        value = value.expand(shape)
        knots = self.quantiles.expand(*shape, len(self.levels))
        left = torch.searchsorted(knots.contiguous(), value[..., None].contiguous(), right=True)[..., 0]
        left = (left - 1).clamp(0, len(self.levels) - 2)
        low, high = self._knot(left), self._knot(left + 1)
        # A flat segment is a jump of the CDF: below it weight -> -inf, at or above it +inf.
        weight = torch.where(high > low, (value - low) / (high - low), torch.where(value < low, -torch.inf, torch.inf))
        return (self.levels[left] + weight * self.levels.diff()[left]).clamp(0, 1)

    def interval_densities(self) -> Float[Tensor, "*s j"]:
        """Density delta tau / max(delta Q, 1e-6) of each learned interval: the summand of eq. B.4."""
        gaps = self.quantiles.diff(dim=-1) if self.gaps is None else self.gaps.to(self.levels.dtype)
        return self.levels.diff() / gaps.clamp_min(SMALLEST_GAP)

    def rows(self, rows: Sequence[int]) -> "QuantileFunction":
        """Some entries of the first axis."""
        chosen = list(rows)
        return QuantileFunction(self.levels, self.quantiles[chosen], None if self.gaps is None else self.gaps[chosen])

    def width(self, mass: float) -> Float[Tensor, "*s"]:
        """Width of the central interval that holds `mass`: Q((1 + mass) / 2) - Q((1 - mass) / 2)."""
        require_between("mass", mass, 0.0, 1.0)
        return self((1 + mass) / 2) - self((1 - mass) / 2)

    def _common_shape(self, x: Tensor) -> torch.Size:
        shape: torch.Size = torch.broadcast_shapes(x.shape, self.shape)  # type: ignore[no-untyped-call]
        return shape

    def _knot(self, index: Tensor) -> Tensor:
        knots = self.quantiles.expand(*index.shape, len(self.levels))
        return knots.gather(-1, index[..., None])[..., 0]
