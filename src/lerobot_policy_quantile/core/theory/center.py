"""Theorem 2: how noisy is a direct update of the median, jointly supervised or alone?

Levels tau_k = 1/2 + eps t_k, symmetric; calibrated quantiles with fixed gaps; both updates scaled
to the same local correction speed. The theorem holds for small eps and a density that is C^2 and
positive at the median; `qhead verify` also shows what happens where that is not so.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from lerobot_policy_quantile.core.theory.laws import Law


def shifted_quantiles(center: Float[Tensor, "*n"], calibrated: Float[Tensor, " k"]) -> Float[Tensor, "*n k"]:
    """q_k(m) = m + (q_k* - m*): the quantiles as the center moves and the gaps stay. Paper eq. A.10."""
    return center[..., None] + (calibrated - calibrated[len(calibrated) // 2])


def center_gradient(
    y: Float[Tensor, " n"], quantiles: Float[Tensor, " k"], levels: Float[Tensor, " k"]
) -> Float[Tensor, " n"]:
    """G = mean over k of 1{Y < q_k} - tau_k, the gradient on the center per sample. Paper eq. A.11.

    With the single level 1/2 it is the median-only gradient.
    """
    return ((y[:, None] < quantiles).to(levels.dtype) - levels).mean(-1)


def score_covariance(levels: Float[Tensor, " k"]) -> Float[Tensor, "k k"]:
    """Cov(s_k, s_l) = min(tau_k, tau_l) - tau_k tau_l of the quantile scores. Paper eq. A.12."""
    return torch.minimum(levels[:, None], levels) - levels[:, None] * levels


def spread(t: Float[Tensor, " k"]) -> float:
    """C_t = sum over pairs |t_k - t_l| / (2 K^2)."""
    return float((t[:, None] - t).abs().sum()) / (2 * len(t) ** 2)


def joint_gradient_variance(t: Float[Tensor, " k"], eps: float) -> float:
    """B_Q = 1/4 - C_t eps, exactly. Paper eq. A.13."""
    return 0.25 - spread(t) * eps


def correction_slope(law: Law, levels: Float[Tensor, " k"]) -> float:
    """a = mean over k of f(q_k*): how fast the mean gradient pulls the center back. Paper eq. A.14."""
    return float(_density(law, law.icdf(levels)).mean())


def slope_expansion(law: Law, t: Float[Tensor, " k"], eps: float) -> float:
    """f_0 + eps^2 r''(1/2) sum t_k^2 / (2 K), with r(tau) = f(F^-1(tau)). Paper eq. A.15."""
    h = 1e-4  # second difference: error of order h^2, rounding of order 1e-16 / h^2
    below, middle, above = _density(law, law.icdf(t.new_tensor([0.5 - h, 0.5, 0.5 + h]))).tolist()
    second = (below - 2 * middle + above) / h**2
    return float(middle + eps**2 * second * float(t.square().sum()) / (2 * len(t)))


def noise_ratio(law: Law, t: Float[Tensor, " k"], eps: float) -> float:
    """Var(Delta m_Q) / Var(Delta m_M) = V_Q / V_M with V = B / a^2. Paper eq. 3 says it is below 1.

    For small eps it is 1 - 4 C_t eps + O(eps^2).
    """
    slope_ratio = correction_slope(law, 0.5 + eps * t) / correction_slope(law, t.new_tensor([0.5]))
    return joint_gradient_variance(t, eps) / 0.25 / slope_ratio**2


def _density(law: Law, x: Tensor) -> Tensor:
    if law.pdf is None:
        raise ValueError(f"law must have a density for this; {law.name} has none")
    return law.pdf(x)
