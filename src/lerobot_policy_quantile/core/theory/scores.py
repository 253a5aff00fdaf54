"""Theorem 1: from squared supervision to quantile supervision, each quantity computed by itself.

The two sides of an identity never share a formula: one is integrated over the action axis, the
other over ranks.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from lerobot_policy_quantile.core._normal import phi
from lerobot_policy_quantile.core.losses import pinball
from lerobot_policy_quantile.core.theory.laws import Law, StepLaw

# Ranks that cut the action axis into pieces of comparable probability, far into the tails.
_CUTS = (1e-13, 1e-9, 1e-6, 1e-4, 1e-2, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1 - 1e-4, 1 - 1e-6, 1 - 1e-9, 1 - 1e-13)


def integrate(f: Callable[[Tensor], Tensor], breaks: Sequence[float], *, n: int = 4000) -> float:
    """Midpoint rule on each piece between sorted breaks; jumps belong into the breaks."""
    total = 0.0
    offsets = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    edges = sorted(set(breaks))
    for low, high in pairwise(edges):
        total += float(f(low + (high - low) * offsets).mean()) * (high - low)
    return total


def integrate_ranks(f: Callable[[Tensor], Tensor], *, n: int = 100_001) -> float:
    """Integral over u in (0, 1), as one over x with u = Phi(x): both tails are resolved."""
    x = torch.linspace(-8.0, 8.0, n, dtype=torch.float64)
    density = torch.exp(-x.square() / 2) / (2 * torch.pi) ** 0.5
    return float(torch.trapezoid(f(phi(x)) * density, x))


def shared_objective(
    predict: Callable[[Tensor, Tensor], Tensor],
    target: Float[Tensor, "n *s"],
    reference: Float[Tensor, "n *s"],
    alpha: Float[Tensor, " n"],
) -> Float[Tensor, ""]:
    """E |f(X, A_alpha, alpha) - (Y - B)|^2 on the path A_alpha = (1 - alpha) B + alpha Y. Paper eq. 1."""
    a = alpha.view(-1, *[1] * (target.ndim - 1))
    path = (1 - a) * reference + a * target
    return (predict(path, alpha) - (target - reference)).square().mean()


def squared_risk_parts(prediction: float, law: StepLaw) -> tuple[float, float]:
    """(f - E[Delta])^2 and Var(Delta), whose sum is the squared risk. Paper eq. A.3."""
    mean = float(law.mean(law.values))
    return (prediction - mean) ** 2, float(law.mean((law.values - mean).square()))


def threshold_distance(a: float, b: float) -> float:
    """Integral over thresholds z of (1{a <= z} - 1{b <= z})^2, which is |a - b|. Paper eq. A.4."""
    low, high = min(a, b) - 1.0, max(a, b) + 1.0
    return integrate(lambda z: ((a <= z).double() - (b <= z).double()).square(), [low, a, b, high], n=100)


def cdf_score(law: Law, y: float) -> float:
    """S(G; y): integral over z of (G(z) - 1{y <= z})^2, the CRPS. Paper eq. A.5."""
    return integrate(lambda z: (law.cdf(z) - (y <= z).double()).square(), [y, *_axis(law)])


def pairwise_score(law: StepLaw, y: float) -> float:
    """E|R - y| - E|R - R'| / 2 for independent R, R' ~ G. Paper eq. A.6."""
    distance = (law.values[:, None] - law.values[None, :]).abs()
    return float(law.mean((law.values - y).abs()) - law.mean(law.mean(distance)) / 2)


def quantile_score(law: Law, y: float) -> float:
    """2 x the integral over tau of rho_tau(y - q(tau)). Paper eq. A.7."""
    return 2 * integrate_ranks(lambda u: pinball(y - law.icdf(u), u))


def theorem_1_sides(predicted: Law, truth: StepLaw) -> tuple[float, float]:
    """L_CDF and twice the expected integrated pinball loss, which are equal. Paper eq. 2."""
    atoms = truth.values.tolist()
    cdf_side = torch.tensor([cdf_score(predicted, y) for y in atoms], dtype=torch.float64)
    pinball_side = torch.tensor([quantile_score(predicted, y) for y in atoms], dtype=torch.float64)
    return float(truth.mean(cdf_side)), float(truth.mean(pinball_side))


def cdf_distance(predicted: Law, truth: Law) -> float:
    """Integral of (G - F)^2: by how much G's expected score exceeds F's own. Paper eq. A.8."""
    return integrate(lambda z: (predicted.cdf(z) - truth.cdf(z)).square(), [*_axis(predicted), *_axis(truth)])


def finite_risk(
    quantiles: Float[Tensor, " k"],
    levels: Float[Tensor, " k"],
    weights: Float[Tensor, " k"],
    law: StepLaw,
) -> float:
    """E of the finite objective, sum over k of w_k rho_{tau_k}(Y - q_k). Paper eq. A.9."""
    return float(law.mean(pinball(law.values[:, None] - quantiles, levels) @ weights))


def _axis(law: Law) -> list[float]:
    cuts = law.icdf(torch.tensor(_CUTS, dtype=torch.float64)).tolist()
    return [*cuts, *law.atoms]
