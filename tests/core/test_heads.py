import pytest
import torch
from torch import Tensor, nn

from lerobot_policy_quantile.core.episode import episodes_from_seeds
from lerobot_policy_quantile.core.heads import (
    FlowHead,
    Head,
    OneStepFlowHead,
    PointHead,
    QuantileHead,
    flow_path,
    training_loss,
)
from lerobot_policy_quantile.core.levels import quantile_levels

WIDTH, CHUNK, DIMS, MODEL_DIM = 12, 4, 3, 5

HEADS = {
    "quantile": lambda: QuantileHead(WIDTH, CHUNK, DIMS, MODEL_DIM),
    "quantile, K = 5": lambda: QuantileHead(WIDTH, CHUNK, DIMS, MODEL_DIM, levels=quantile_levels(5)),
    "symmetric": lambda: QuantileHead(WIDTH, CHUNK, DIMS, MODEL_DIM, gaps="symmetric"),
    "detached": lambda: QuantileHead(WIDTH, CHUNK, DIMS, MODEL_DIM, anchor="detached"),
    "median-only": lambda: QuantileHead(WIDTH, CHUNK, DIMS, MODEL_DIM, supervise="median"),
    "l1": lambda: PointHead(WIDTH, CHUNK, DIMS, MODEL_DIM, norm="l1"),
    "l2": lambda: PointHead(WIDTH, CHUNK, DIMS, MODEL_DIM, norm="l2"),
    "flow": lambda: FlowHead(WIDTH, CHUNK, DIMS, MODEL_DIM),
    "one-step flow": lambda: OneStepFlowHead(WIDTH, CHUNK, DIMS, MODEL_DIM),
}


class CountingExpert(nn.Module):
    """A small expert that looks at its actions and its noise time and counts its calls."""

    def __init__(self, batch: int, seed: int = 0) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.observation = nn.Parameter(torch.randn(batch, CHUNK, WIDTH, generator=g))
        self.mix = nn.Parameter(torch.randn(MODEL_DIM, WIDTH, generator=g))
        self.calls: list[tuple[Tensor, Tensor]] = []

    def forward(self, actions: Tensor, noise_time: Tensor) -> Tensor:
        self.calls.append((actions, noise_time))
        return torch.tanh(self.observation + actions @ self.mix + noise_time[:, None, None])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(name: str) -> Head:
    torch.manual_seed(0)
    head = HEADS[name]()
    for parameter in head.parameters():
        nn.init.normal_(parameter, std=0.5)
    return head


@pytest.mark.parametrize("name", HEADS)
def test_direct_heads_call_the_expert_once_and_flow_as_often_as_it_integrates(name):
    head, expert = make(name), CountingExpert(2)
    prediction = head.predict(expert, episodes_from_seeds([1, 2]))
    assert prediction.actions.shape == (2, CHUNK, DIMS)
    assert len(expert.calls) == head.expert_calls == (10 if name == "flow" else 1)
    expert.calls.clear()
    head.loss(expert, torch.zeros(2, CHUNK, DIMS), generator=generator())
    assert len(expert.calls) == 1


@pytest.mark.parametrize("name", [n for n in HEADS if "flow" not in n])
def test_direct_heads_ask_with_zero_queries_at_noise_time_zero(name):
    head, expert = make(name), CountingExpert(2)
    head.loss(expert, torch.ones(2, CHUNK, DIMS), generator=generator())
    head.predict(expert, episodes_from_seeds([1, 2]))
    for actions, noise_time in expert.calls:
        assert not actions.any()
        assert actions.shape == (2, CHUNK, MODEL_DIM)
        assert not noise_time.any()


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("filler", [float("nan"), float("inf"), -1e30, 1.0])
def test_padding_never_moves_loss_or_gradient(name, filler):
    """Whatever padded targets hold, loss and every gradient equal those with zeros there."""
    valid = torch.rand(6, CHUNK, DIMS, generator=generator(3)) < 0.6
    valid[0] = False  # a sample that is all padding
    clean = torch.randn(6, CHUNK, DIMS, generator=generator(4))
    results = []
    for padding in (0.0, filler):
        head, expert = make(name), CountingExpert(6)
        target = torch.where(valid, clean, torch.full_like(clean, padding))
        loss = training_loss(head, expert, target, valid, drop_ratio=0.1, generator=generator(5))
        loss.backward()
        results.append([loss.detach(), *(p.grad for p in [*head.parameters(), *expert.parameters()])])
    for zeros, filled in zip(*results, strict=True):
        assert (zeros is None) == (filled is None)
        assert zeros is None or torch.equal(zeros, filled)
    assert results[0][0] > 0
    assert torch.isfinite(results[0][0])


@pytest.mark.parametrize("name", HEADS)
def test_huge_predictions_at_padding_leave_loss_and_gradient_alone(name):
    """A padded step whose features blow up reaches neither the loss nor another step's gradient."""
    valid = torch.ones(2, CHUNK, DIMS, dtype=torch.bool)
    valid[:, -1] = False
    target = torch.randn(2, CHUNK, DIMS, generator=generator())
    results = []
    for factor in (1.0, 1e30):
        head = make(name)
        features = torch.randn(2, CHUNK, WIDTH, generator=generator(1))
        features[:, -1] *= factor
        loss = training_loss(head, lambda a, t, f=features: f, target, valid, drop_ratio=0.1, generator=generator(2))
        loss.backward()
        results.append([loss.detach(), *(p.grad for p in head.parameters() if p.grad is not None)])
    for ordinary, huge in zip(*results, strict=True):
        torch.testing.assert_close(ordinary, huge)


@pytest.mark.parametrize("name", HEADS)
def test_model_padding_dimensions_get_no_gradient(name):
    head, expert = make(name), CountingExpert(3)
    head.loss(expert, torch.randn(3, CHUNK, DIMS), generator=generator()).sum().backward()
    assert head.projection.weight.grad[:DIMS].any()
    assert not head.projection.weight.grad[DIMS:].any()


@pytest.mark.parametrize("name", HEADS)
def test_evaluation_loss_uses_every_valid_label(name):
    head, expert = make(name), CountingExpert(3)
    target = torch.randn(3, CHUNK, DIMS)
    valid = torch.ones(3, CHUNK, DIMS, dtype=torch.bool)
    loss = training_loss(head, expert, target, valid, drop_ratio=0.0, generator=generator(9))
    torch.manual_seed(0)
    g = generator(9)
    torch.rand(3, CHUNK * DIMS, generator=g)  # what the mask draws before the loss does
    torch.testing.assert_close(loss, head.loss(expert, target, generator=g).mean())
    per_sample = training_loss(head, expert, target, valid, drop_ratio=0.0, generator=generator(9), reduction="none")
    torch.testing.assert_close(per_sample.mean(), loss)


def test_a_fresh_quantile_head_starts_with_every_gap_at_delta0():
    head = QuantileHead(WIDTH, CHUNK, DIMS, delta0=0.05)
    quantiles = head.quantiles(torch.randn(2, CHUNK, WIDTH))
    torch.testing.assert_close(quantiles.diff(), torch.full((2, CHUNK, DIMS, 20), 0.05), atol=1e-5, rtol=0)


def test_median_only_is_half_the_absolute_error_and_leaves_the_gaps_alone():
    head, expert = make("median-only"), CountingExpert(2)
    target = torch.randn(2, CHUNK, DIMS)
    loss = head.loss(expert, target, generator=generator())
    median = head.predict(expert, episodes_from_seeds([0, 1])).actions
    torch.testing.assert_close(loss, 0.5 * (target - median).abs())
    loss.sum().backward()
    assert head.gap_projection.weight.grad is None


def test_detached_anchor_gives_the_median_exactly_median_onlys_gradient():
    """K * (1 / K) * (1{a < m} - 1/2): K times the central level's share is the single level's whole."""
    target = torch.randn(2, CHUNK, DIMS)
    grads = []
    for name in ("detached", "median-only"):
        head, expert = make("detached"), CountingExpert(2)
        head.anchor, head.supervise = ("detached", "all") if name == "detached" else ("shared", "median")
        head.loss(expert, target, generator=generator()).sum().backward()
        grads.append(head.projection.weight.grad)
    torch.testing.assert_close(*grads)


def test_detached_anchor_still_trains_gaps_and_features():
    head, expert = make("detached"), CountingExpert(2)
    head.loss(expert, torch.randn(2, CHUNK, DIMS), generator=generator()).sum().backward()
    assert head.gap_projection.weight.grad.any()
    assert expert.observation.grad.any()


def test_flow_path_runs_from_data_to_noise():
    data, noise = torch.zeros(3, 2), torch.ones(3, 2)
    point, velocity = flow_path(data, noise, torch.tensor([0.0, 0.25, 1.0]))
    torch.testing.assert_close(point, torch.tensor([[0.0, 0.0], [0.25, 0.25], [1.0, 1.0]]))
    assert torch.equal(velocity, torch.ones(3, 2))


def test_flow_integrates_an_exact_velocity_field_to_the_data():
    """For a single action a the field is v(x, t) = (x - a) / t; Euler from t = 1 to 0 in ten steps
    is exact: the last step, at t = 0.1, subtracts 0.1 * (x - a) / 0.1."""
    head = FlowHead(DIMS, CHUNK, DIMS)
    nn.init.eye_(head.projection.weight)
    nn.init.zeros_(head.projection.bias)
    action = torch.randn(CHUNK, DIMS)
    times = []

    def expert(x: Tensor, noise_time: Tensor) -> Tensor:
        times.append(float(noise_time[0]))
        return (x - action) / noise_time[:, None, None]

    actions = head.predict(expert, episodes_from_seeds([1, 2])).actions
    torch.testing.assert_close(actions, action.expand(2, -1, -1), atol=1e-5, rtol=0)
    torch.testing.assert_close(torch.tensor(times), torch.arange(10, 0, -1) / 10)


def test_flow_noise_times_follow_their_law():
    """t = 0.001 + 0.999 x with x ~ Beta(1.5, 1), mean 1.5 / 2.5 = 0.6."""
    head, times = FlowHead(WIDTH, CHUNK, DIMS), []

    def expert(actions: Tensor, noise_time: Tensor) -> Tensor:
        times.append(noise_time)
        return torch.zeros(len(actions), CHUNK, WIDTH)

    head.loss(expert, torch.zeros(20_000, CHUNK, DIMS), generator=generator())
    drawn = (times[0] - 0.001) / 0.999
    assert ((drawn >= 0) & (drawn <= 1)).all()
    assert abs(drawn.mean() - 0.6) < 0.01
    assert abs((drawn < 0.5).double().mean() - 0.5**1.5) < 0.015


def test_one_step_flow_is_trained_at_high_noise_and_sampled_in_one_pass():
    """One Euler step of length 1 from t = 1: a = noise - v(noise, 1)."""
    head, times = OneStepFlowHead(DIMS, CHUNK, DIMS), []
    nn.init.eye_(head.projection.weight)
    nn.init.zeros_(head.projection.bias)

    def expert(actions: Tensor, noise_time: Tensor) -> Tensor:
        times.append(noise_time)
        return 0.25 * actions

    head.loss(expert, torch.zeros(20_000, CHUNK, DIMS), generator=generator())
    assert ((times[0] >= 0.8) & (times[0] <= 1)).all()
    assert abs(times[0].mean() - 0.9) < 0.002
    noise = torch.stack([episode.normal(CHUNK, DIMS) for episode in episodes_from_seeds([3, 4])])
    torch.testing.assert_close(head.predict(expert, episodes_from_seeds([3, 4])).actions, 0.75 * noise)
    assert len(times) == 2
    assert (times[1] == 1).all()


def test_flow_samples_depend_on_the_episode_alone():
    head, expert = make("flow"), CountingExpert(3)
    with torch.no_grad():
        expert.observation[:] = expert.observation[0].clone()
        batch = head.predict(expert, episodes_from_seeds([7, 8, 9])).actions
        single = CountingExpert(1)
        single.observation.copy_(expert.observation[:1])
        single.mix.copy_(expert.mix)
        alone = head.predict(single, episodes_from_seeds([8])).actions
    torch.testing.assert_close(batch[1], alone[0])
    assert not torch.allclose(batch[0], batch[1])


@pytest.mark.bad_input
@pytest.mark.parametrize("name", HEADS)
def test_nan_predictions_are_refused(name):
    head = make(name)
    with pytest.raises(ValueError, match="prediction must not contain NaN"):
        head.loss(
            lambda a, t: torch.full((2, CHUNK, WIDTH), float("nan")),
            torch.zeros(2, CHUNK, DIMS),
            generator=generator(),
        )


@pytest.mark.bad_input
def test_bad_settings_and_shapes_are_refused():
    with pytest.raises(ValueError, match="supervise must be one of all, median; got 'mediam'; did you mean 'median'"):
        QuantileHead(WIDTH, CHUNK, DIMS, supervise="mediam")
    with pytest.raises(ValueError, match="norm must be one of l1, l2; got 'l3'"):
        PointHead(WIDTH, CHUNK, DIMS, norm="l3")
    with pytest.raises(ValueError, match="delta0 must be positive; got 0"):
        QuantileHead(WIDTH, CHUNK, DIMS, delta0=0)
    with pytest.raises(ValueError, match=r"action_dim must lie in \[1, model_dim = 2\]; got 3"):
        QuantileHead(WIDTH, CHUNK, 3, 2)
    with pytest.raises(ValueError, match="levels must be odd in number"):
        QuantileHead(WIDTH, CHUNK, DIMS, levels=torch.tensor([0.2, 0.4, 0.6, 0.8]))
    with pytest.raises(ValueError, match=r"target must have shape \(2, 4, 3\); got \(2, 4, 5\)"):
        make("l1").loss(CountingExpert(2), torch.zeros(2, CHUNK, MODEL_DIM), generator=generator())


def test_a_quantile_head_can_be_built_on_meta_and_gets_its_levels_back():
    with torch.device("meta"):
        head = QuantileHead(8, 4, 3, 5)
    assert head.levels.is_meta
    assert head.quantiles(torch.zeros(2, 4, 8, device="meta")).shape == (2, 4, 3, 21)
    real = QuantileHead(8, 4, 3, 5)
    head = head.to_empty(device="cpu")
    head.load_state_dict(real.state_dict())
    features = torch.randn(2, 4, 8)
    assert torch.equal(head.levels, real.levels)
    assert torch.equal(head.quantiles(features), real.quantiles(features))
    assert QuantileHead(8, 4, 3, 5).double().levels.dtype == torch.float64
