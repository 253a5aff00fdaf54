"""Heads fitted on known conditional laws find them again.

One observation x in [-1, 1], three action dimensions: a normal, a skewed and a two-mode law, each
moving with x. Errors are stated in probability: a quantile q for level tau is off by |F(q) - tau|.
"""

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from lerobot_policy_quantile.core._normal import phi
from lerobot_policy_quantile.core.episode import episodes_from_seeds
from lerobot_policy_quantile.core.heads import FlowHead, Head, OneStepFlowHead, PointHead, QuantileHead, training_loss

LEVEL_ERROR = {"normal": 0.03, "skewed": 0.03, "two-mode": 0.06}  # the gap between modes is harder to place
LAWS = list(LEVEL_ERROR)
PLACES = torch.tensor([-0.8, -0.3, 0.0, 0.4, 0.9])
MEAN_ERROR = 0.06


def sample(x: Tensor, *, generator: torch.Generator) -> Tensor:
    """Targets (b, 1, 3): N(x, 0.3 + 0.1 x); x / 2 + Exp(1) / 2; +-1 + x / 4 + N(0, 0.15), 35 % low."""
    n = len(x)
    z = torch.randn(n, 2, generator=generator)
    u = torch.rand(n, 2, generator=generator)
    normal = x + (0.3 + 0.1 * x) * z[:, 0]
    skewed = x / 2 - torch.log1p(-u[:, 0]) / 2
    mode = torch.where(u[:, 1] < 0.35, -1.0, 1.0)
    return torch.stack([normal, skewed, mode + x / 4 + 0.15 * z[:, 1]], dim=-1)[:, None]


def cdf(value: Tensor, x: Tensor) -> Tensor:
    """True CDFs of the three laws at value (..., 3) given x."""
    normal = phi((value[..., 0] - x) / (0.3 + 0.1 * x))
    skewed = 1 - torch.exp(-2 * (value[..., 1] - x / 2).clamp_min(0))
    away = value[..., 2] - x / 4
    two_mode = 0.35 * phi((away + 1) / 0.15) + 0.65 * phi((away - 1) / 0.15)
    return torch.stack([normal, skewed, two_mode], dim=-1)


def mean(x: Tensor) -> Tensor:
    return torch.stack([x, x / 2 + 0.5, 0.3 + x / 4], dim=-1)


class Network(nn.Module):
    """The expert: it sees x, and the actions and noise time it is asked at."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 64))

    def given(self, x: Tensor):
        def expert(actions: Tensor, noise_time: Tensor) -> Tensor:
            seen = torch.cat([x[:, None, None], actions, noise_time[:, None, None]], dim=-1)
            return nn.functional.silu(self.body(seen))

        return expert


@cache
def fitted(name: str) -> tuple[Head, Network]:
    torch.manual_seed(0)
    heads = {
        "quantile": lambda: QuantileHead(64, 1, 3),
        "symmetric": lambda: QuantileHead(64, 1, 3, gaps="symmetric"),
        "l1": lambda: PointHead(64, 1, 3, norm="l1"),
        "l2": lambda: PointHead(64, 1, 3, norm="l2"),
        "flow": lambda: FlowHead(64, 1, 3),
        "one-step flow": lambda: OneStepFlowHead(64, 1, 3),
    }
    head, network = heads[name](), Network()
    steps = {"quantile": 2000, "flow": 2500}.get(name, 1200)
    optimiser = torch.optim.Adam([*head.parameters(), *network.parameters()], lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps, eta_min=2e-5)
    g = torch.Generator().manual_seed(1)
    valid = torch.ones(512, 1, 3, dtype=torch.bool)
    for _ in range(steps):
        x = 2 * torch.rand(512, generator=g) - 1
        target = sample(x, generator=g)
        loss = training_loss(head, network.given(x), target, valid, drop_ratio=0.1, generator=g)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return head.requires_grad_(False), network.requires_grad_(False)


def level_errors(name: str) -> Tensor:
    """|F(q_k) - tau_k| for every place, law and level: (place, 3, k)."""
    head, network = fitted(name)
    prediction = head.predict(network.given(PLACES), episodes_from_seeds(range(len(PLACES))))
    quantiles = prediction.quantiles.quantiles[:, 0].movedim(-1, 0)
    return (cdf(quantiles, PLACES) - head.levels[:, None, None]).abs().movedim(0, -1)


@pytest.mark.parametrize("law", range(3), ids=LAWS)
def test_the_quantile_head_recovers_every_level(law):
    assert level_errors("quantile")[:, law].max() < LEVEL_ERROR[LAWS[law]]


@pytest.mark.parametrize("law", [1, 2], ids=LAWS[1:])
def test_symmetric_gaps_cannot_hold_an_asymmetric_law(law):
    """The twin that shows the recovery test can fail: the ablation misses where it must."""
    assert level_errors("symmetric")[:, law].max() > 2 * LEVEL_ERROR[LAWS[law]]


def test_the_flow_head_recovers_the_mean_on_the_same_data():
    head, network = fitted("flow")
    n = 4000
    for x in PLACES:
        actions = head.predict(network.given(x.expand(n)), episodes_from_seeds(range(n))).actions
        assert (actions.mean((0, 1)) - mean(x)).abs().max() < MEAN_ERROR


def test_one_step_flow_shrinks_to_the_mean_where_ten_steps_keep_the_spread():
    """At noise time 1 the best velocity is noise - E[a | x], so one step gives the mean whatever the noise."""
    n, place = 2000, PLACES[2]
    spreads = {}
    for name in ("flow", "one-step flow"):
        head, network = fitted(name)
        actions = head.predict(network.given(place.expand(n)), episodes_from_seeds(range(n))).actions[:, 0]
        assert (actions.mean(0) - mean(place)).abs().max() < 2 * MEAN_ERROR
        spreads[name] = actions.std(0)
    assert (spreads["one-step flow"] < 0.5 * spreads["flow"]).all()


def test_l2_recovers_the_mean_and_lands_between_the_modes():
    head, network = fitted("l2")
    actions = head.predict(network.given(PLACES), episodes_from_seeds(range(5))).actions[:, 0]
    assert (actions - mean(PLACES)).abs().max() < MEAN_ERROR
    assert cdf(actions, PLACES)[:, 2].sub(0.35).abs().max() < 0.01  # no data on either side


def test_l1_recovers_the_median():
    head, network = fitted("l1")
    actions = head.predict(network.given(PLACES), episodes_from_seeds(range(5))).actions[:, 0]
    assert (cdf(actions, PLACES) - 0.5).abs().max() < LEVEL_ERROR["normal"]
