"""The method's theory as numbers: each claim, what the theory says and what was measured.

Wherever the claim is about our code, the measurement runs our code: the heads, the losses and
their gradients, not a second copy of the formula. Everything is drawn from one seed.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lerobot_policy_quantile.core.heads import FlowHead, Head, PointHead, sample_noise_time
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.core.losses import keep_mask, masked_mean, quantile_loss
from lerobot_policy_quantile.core.ordered import ordered_quantiles
from lerobot_policy_quantile.core.theory import center, scores
from lerobot_policy_quantile.core.theory.laws import (
    ATOM,
    BIMODAL,
    CAUCHY,
    LAPLACE,
    LOGISTIC,
    NORMAL,
    SKEWED,
    UNIFORM,
    Law,
    StepLaw,
    random_step_law,
)

Status = Literal["pass", "fail", "outside"]
WIDE_EPS = 0.475
"""Half-width of the head's own grid [0.025, 0.975]."""


@dataclass(frozen=True)
class TheoryCheck:
    """One claim. `outside` means: the number is reported, but the theorem's conditions do not hold."""

    claim: str
    paper: str
    theory: str
    measured: str
    status: Status


def run_checks(seed: int = 0) -> list[TheoryCheck]:
    """Every check, in the paper's order."""
    return [check for family in FAMILIES for check in family(torch.Generator().manual_seed(seed))]


# --- Sec. 3.1: one objective for regression and flow matching ---------------------------------------


def shared_objective_cases(generator: torch.Generator) -> Iterator[TheoryCheck]:
    """Eq. 1 with B = alpha = 0 is the L2 head's loss; with Gaussian B it is the flow head's."""
    width, shape = 8, (64, 5, 3)
    target = torch.randn(shape, generator=generator)
    features = torch.randn(*shape[:2], width, generator=generator)
    mix = torch.randn(shape[2], width, generator=generator)

    def expert(actions: Tensor, noise_time: Tensor) -> Tensor:
        return torch.tanh(features + actions @ mix + noise_time[:, None, None])

    regression = _drawn(PointHead(width, *shape[1:], norm="l2"), generator)
    zeros = torch.zeros(shape)
    objective = scores.shared_objective(
        lambda path, alpha: regression.projection(expert(path, alpha)), target, zeros, zeros[:, 0, 0]
    )
    gap = float((objective - regression.loss(expert, target, generator=generator).mean()).abs())
    yield _small("shared objective, B = alpha = 0: squared regression", "Sec. 3.1", gap, 1e-6)

    flow = _drawn(FlowHead(width, *shape[1:]), generator)
    replay = torch.Generator().manual_seed(generator.initial_seed())
    loss = flow.loss(expert, target, generator=replay).mean()
    replay.manual_seed(generator.initial_seed())
    noise = torch.randn(shape, generator=replay)
    noise_time = sample_noise_time(torch.rand(len(target), generator=replay))
    # The head's velocity points from data to noise and its time runs backwards: f = -v, alpha = 1 - t.
    objective = scores.shared_objective(
        lambda path, alpha: -flow.projection(expert(path, 1 - alpha)), target, noise, 1 - noise_time
    )
    gap = float((objective - loss).abs())
    yield _small("shared objective, Gaussian B: flow matching", "Sec. 3.1", gap, 1e-5)

    law = random_step_law(9, generator=generator)
    risk = float(law.mean((law.values - 0.3).square()))
    gap = abs(risk - sum(scores.squared_risk_parts(0.3, law)))
    yield _small("squared risk = squared bias + variance", "Sec. 3.1", gap, 1e-12)


def _drawn[H: Head](head: H, generator: torch.Generator) -> H:
    """The head with weights from the generator: nothing here depends on the global random state."""
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return head.requires_grad_(False)


# --- App. A.1: threshold supervision is quantile supervision ----------------------------------------


def threshold_and_crps(generator: torch.Generator) -> Iterator[TheoryCheck]:
    """Distance as an integral over thresholds, and the CRPS identity on laws of every kind."""
    pairs = torch.randn(20, 2, generator=generator, dtype=torch.float64).tolist()
    gap = max(abs(scores.threshold_distance(a, b) - abs(a - b)) for a, b in pairs)
    yield _small("threshold integral of two points = |a - b|", "App. A.1", gap, 1e-9)

    steps = random_step_law(12, generator=generator)
    for law in (NORMAL, SKEWED, BIMODAL, ATOM, steps.as_law()):
        places = [-1.3, 0.0, 0.2, 2.0]
        gap = max(abs(scores.cdf_score(law, y) - scores.quantile_score(law, y)) for y in places)
        yield _small(f"CRPS = 2 x integrated pinball: {law.name}", "App. A.1", gap, 1e-4)

    law = steps.as_law()
    gap = max(abs(scores.cdf_score(law, y) - scores.pairwise_score(steps, y)) for y in (-1.3, 0.2))
    yield _small("CRPS = E|R - y| - E|R - R'| / 2", "App. A.1", gap, 1e-9)

    truth = random_step_law(7, generator=generator)
    left, right = scores.theorem_1_sides(NORMAL, truth)
    yield _small("Theorem 1: CDF loss = 2 x expected integrated pinball", "App. A.1", abs(left - right), 1e-4)
    own, _ = scores.theorem_1_sides(truth.as_law(), truth)
    gap = abs(left - own - scores.cdf_distance(NORMAL, truth.as_law()))
    yield _small("excess CDF loss = integral of (G - F)^2", "App. A.1", gap, 1e-4)


# --- App. A.2: the noise of median updates ----------------------------------------------------------


def median_noise(generator: torch.Generator) -> Iterator[TheoryCheck]:
    """Theorem 2, its ingredients by Monte Carlo on our own gradient, and where it does not reach."""
    t = torch.linspace(-1, 1, 21, dtype=torch.float64)
    n = 200_000

    levels = 0.5 + WIDE_EPS * t
    score = (SKEWED.sample(n, generator=generator)[:, None] < SKEWED.icdf(levels)).double() - levels
    gap = float((score.T @ score / n - center.score_covariance(levels)).abs().max())
    bound = 5 * 0.25 / n**0.5  # five standard errors of a product of scores
    yield _small("score covariance = min - product (sampled)", "App. A.2", gap, bound)

    for eps in (0.05, 0.2, WIDE_EPS):
        exact = center.joint_gradient_variance(t, eps)
        total = float(center.score_covariance(0.5 + eps * t).mean())
        yield _close(f"B_Q = 1/4 - C_t eps, eps = {eps:g} (identity)", "App. A.2", exact, total, 1e-12)
    sampled = float(_head_gradient(NORMAL, levels, n, generator).var())
    yield _close("B_Q of the head's own gradient on m (sampled)", "App. A.2", exact, sampled, 0.02 * exact)

    for law in (NORMAL, LOGISTIC, SKEWED, CAUCHY):
        eps = 1e-3
        slope = (1 - center.noise_ratio(law, t, eps)) / eps
        yield _close(f"V_Q / V_M = 1 - 4 C_t eps, slope: {law.name}", "App. A.2", 4 * center.spread(t), slope, 0.01)
    slope = (1 - center.noise_ratio(LAPLACE, t, 1e-3)) / 1e-3
    yield TheoryCheck(
        "V_Q / V_M = 1 - 4 C_t eps, slope: Laplace",
        "App. A.2",
        "no claim (density has a cusp)",
        f"{slope:.4f}: NOISIER than median-only",
        "outside",
    )
    residual = center.correction_slope(NORMAL, 0.5 + 0.01 * t) - center.slope_expansion(NORMAL, t, 0.01)
    yield _small("correction slope changes only at order eps^2", "App. A.2", abs(residual), 1e-7)

    for law in (NORMAL, LOGISTIC, UNIFORM, LAPLACE, CAUCHY):
        yield _wide_grid(law, t, n, generator)


def _wide_grid(law: Law, t: Tensor, n: int, generator: torch.Generator) -> TheoryCheck:
    """The ratio on the head's own grid, by formula and by sampling; the theorem is silent here."""
    levels = 0.5 + WIDE_EPS * t
    exact = center.noise_ratio(law, t, WIDE_EPS)
    noise = float(_head_gradient(law, levels, n, generator).var())
    slope, median_slope = _pull(law, levels), _pull(law, levels[len(levels) // 2, None])
    sampled = noise / 0.25 * (median_slope / slope) ** 2
    verdict = "quieter" if sampled < 1 else "NOISIER"
    return TheoryCheck(
        f"V_Q / V_M, wide 21-level grid: {law.name}",
        "App. A.2",
        f"no claim (formula: {exact:.3f})",
        f"{sampled:.3f}: {verdict} than median-only",
        "outside" if abs(sampled - exact) < 0.02 * exact else "fail",
    )


def _head_gradient(law: Law, levels: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Gradient on m, per sample, of our quantile loss through our ordered quantiles, calibrated."""
    quantiles = law.icdf(levels)
    middle = quantiles[len(levels) // 2].expand(n).clone().requires_grad_()
    gaps = quantiles.diff().expand(n, -1)
    loss = quantile_loss(ordered_quantiles(middle, gaps), law.sample(n, generator=generator), levels)
    (gradient,) = torch.autograd.grad(loss.sum(), middle)
    return gradient


def _pull(law: Law, levels: Tensor, step: float = 1e-4) -> float:
    """Slope of the mean gradient as the center moves, from the CDF alone (no density)."""
    moved = center.shifted_quantiles(torch.tensor([-step, step], dtype=torch.float64), law.icdf(levels))
    mean_gradient = law.cdf(moved + law.icdf(levels[len(levels) // 2])).mean(-1)
    return float(mean_gradient[1] - mean_gradient[0]) / (2 * step)


# --- App. A: properties of the training loss ------------------------------------------------------


def training_properties(generator: torch.Generator) -> Iterator[TheoryCheck]:
    """Dropping labels is unbiased, feedback is bounded, strict gaps cost next to nothing."""
    loss = torch.rand(1, 2, 4, generator=generator, dtype=torch.float64)
    full = float(masked_mean(loss, torch.ones_like(loss, dtype=torch.bool)))
    masks = []
    for kept in itertools.combinations(range(8), 5):
        mask = torch.zeros(8, dtype=torch.bool)
        mask[list(kept)] = True
        masks.append(mask.view(1, 2, 4))
    mean = sum(float(masked_mean(loss, mask)) for mask in masks) / len(masks)
    yield _close("masked loss, mean over all 56 masks = unmasked loss", "App. A", full, mean, 1e-12)

    n, ratio = 20_000, 0.3
    valid = torch.ones(n, 2, 4, dtype=torch.bool)
    kept_share = keep_mask(valid, ratio, generator=generator).double().mean(0)
    gap = float((kept_share - 5 / 8).abs().max())
    yield _small("every label is kept equally often (sampled)", "App. A", gap, 5 * 0.5 / n**0.5)

    levels = quantile_levels(dtype=torch.float64)
    sizes = torch.logspace(-8, 8, 33, dtype=torch.float64)
    target = torch.cat([-sizes, sizes, sizes.new_zeros(1)])
    quantiles = torch.zeros(len(target), len(levels), dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(quantile_loss(quantiles, target, levels).sum(), quantiles)
    bound = torch.maximum(levels, 1 - levels) / len(levels)
    excess = float((gradient.abs() / bound).max())
    yield TheoryCheck(
        "output gradient / bound, residuals 1e-8..1e8",
        "App. A",
        "<= 1",
        f"{excess:.6f}",
        "pass" if excess <= 1 + 1e-12 else "fail",
    )
    yield from _strict_gaps(levels)


def _strict_gaps(levels: Tensor) -> Iterator[TheoryCheck]:
    """q_k + eps (k - c) / c on a law with repeated quantiles: excess risk within [0, eps]."""
    atoms = StepLaw(torch.tensor([-1.0, 0.0, 2.0]).double(), torch.tensor([0.2, 0.5, 0.3]).double())
    truth = atoms.as_law().icdf(levels)
    weights = torch.full_like(levels, 1 / len(levels))
    c = len(levels) // 2
    offsets = (torch.arange(len(levels)) - c) / c
    best = scores.finite_risk(truth, levels, weights, atoms)
    for eps in (0.1, 0.001):
        excess = scores.finite_risk(truth + eps * offsets, levels, weights, atoms) - best
        yield TheoryCheck(
            f"excess risk of strict gaps, eps = {eps:g}",
            "App. A",
            f"in [0, {eps:g}]",
            f"{excess:.3g}",
            "pass" if -1e-12 <= excess <= eps else "fail",
        )


FAMILIES: tuple[Callable[[torch.Generator], Iterator[TheoryCheck]], ...] = (
    shared_objective_cases,
    threshold_and_crps,
    median_noise,
    training_properties,
)


def _small(claim: str, paper: str, gap: float, tolerance: float) -> TheoryCheck:
    status: Status = "pass" if gap <= tolerance else "fail"
    return TheoryCheck(claim, paper, f"0 +- {tolerance:.1g}", f"{gap:.1e}", status)


def _close(claim: str, paper: str, theory: float, measured: float, tolerance: float) -> TheoryCheck:
    status: Status = "pass" if abs(theory - measured) <= tolerance else "fail"
    return TheoryCheck(claim, paper, f"{theory:.4f} +- {tolerance:.1g}", f"{measured:.4f}", status)
