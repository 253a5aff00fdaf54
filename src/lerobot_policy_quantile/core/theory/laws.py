"""Scalar laws on which the theory is checked, in float64."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lerobot_policy_quantile.core._normal import phi, phi_inverse

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Law:
    """A law given by its CDF, its quantile function and, where it has one, its density."""

    name: str
    cdf: Map
    icdf: Map
    pdf: Map | None = None
    atoms: tuple[float, ...] = ()
    """Places where the CDF jumps; integrals over the action axis are split there."""

    def sample(self, n: int, *, generator: torch.Generator) -> Float[Tensor, " n"]:
        """n draws, by the quantile function of uniforms."""
        return self.icdf(torch.rand(n, generator=generator, dtype=torch.float64))


def _gaussian_density(x: Tensor) -> Tensor:
    return torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)


NORMAL = Law("normal", phi, phi_inverse, _gaussian_density)
LOGISTIC = Law("logistic", torch.sigmoid, torch.logit, lambda x: torch.sigmoid(x) * torch.sigmoid(-x))
UNIFORM = Law(
    "uniform",
    lambda x: x.clamp(0, 1),
    lambda u: u,
    lambda x: torch.ones_like(x) * ((x >= 0) & (x <= 1)),
)
LAPLACE = Law(
    "Laplace",
    lambda x: torch.where(x < 0, torch.exp(-x.abs()) / 2, 1 - torch.exp(-x.abs()) / 2),
    lambda u: -torch.sign(u - 0.5) * torch.log1p(-2 * (u - 0.5).abs()),
    lambda x: torch.exp(-x.abs()) / 2,
)
CAUCHY = Law(
    "Cauchy",
    lambda x: 0.5 + torch.atan(x) / math.pi,
    lambda u: torch.tan(math.pi * (u - 0.5)),
    lambda x: 1 / (math.pi * (1 + x.square())),
)
SKEWED = Law(
    "skewed (log-normal)",
    lambda x: torch.where(x > 0, phi(torch.log(x.clamp_min(1e-300))), torch.zeros_like(x)),
    lambda u: torch.exp(phi_inverse(u)),
    lambda x: _gaussian_density(torch.log(x)) / x,
)


def _bimodal_cdf(x: Tensor) -> Tensor:
    return (phi((x + 1) / 0.2) + phi((x - 1) / 0.2)) / 2


def _bisect(u: Tensor) -> Tensor:
    low, high = torch.full_like(u, -4.0), torch.full_like(u, 4.0)
    for _ in range(45):
        middle = (low + high) / 2
        below = _bimodal_cdf(middle) < u
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


BIMODAL = Law("bimodal", _bimodal_cdf, _bisect)

ATOM_MASS = 0.4
ATOM = Law(
    "normal with an atom",
    lambda x: (1 - ATOM_MASS) * phi(x) + ATOM_MASS * (x >= 0),
    lambda u: torch.where(
        u < 0.5,
        phi_inverse((u / (1 - ATOM_MASS)).clamp_max(0.5)),
        phi_inverse(((u - ATOM_MASS) / (1 - ATOM_MASS)).clamp_min(0.5)),
    ),
    atoms=(0.0,),
)


@dataclass(frozen=True, eq=False)
class StepLaw:
    """A discrete law: sorted values and their probabilities. Expectations under it are finite sums."""

    values: Float[Tensor, " n"]
    probabilities: Float[Tensor, " n"]

    def as_law(self, name: str = "random step law") -> Law:
        """The same law by CDF and quantile function."""
        steps = torch.cat([self.probabilities.new_zeros(1), self.probabilities.cumsum(0)])

        def cdf(x: Tensor) -> Tensor:
            return steps[torch.searchsorted(self.values, x.contiguous(), right=True)]

        def icdf(u: Tensor) -> Tensor:
            index = torch.searchsorted(steps[1:], u.contiguous()).clamp_max(len(self.values) - 1)
            return self.values[index]

        return Law(name, cdf, icdf, atoms=tuple(self.values.tolist()))

    def mean(self, values: Float[Tensor, "n *s"]) -> Float[Tensor, "*s"]:
        """Expectation of a quantity given at every atom."""
        return torch.einsum("n,n...->...", self.probabilities, values)


def random_step_law(n: int, *, generator: torch.Generator) -> StepLaw:
    """n atoms at random places with random probabilities."""
    values = torch.randn(n, generator=generator, dtype=torch.float64).sort().values
    weights = torch.rand(n, generator=generator, dtype=torch.float64) + 0.05
    return StepLaw(values, weights / weights.sum())
