"""On a simulated GPU: the CPU's numbers, nothing mixed with the CPU, and a device that is kept busy.

The bounds are the point: at most 6 waits of the host per training step, preprocessor and log included, and at most 4
per chunk, processors included, whatever the head, decoder and batch. LeRobot's pi05 is counted the same way.
"""

import pytest
import torch
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS

from lerobot_policy_quantile.backbone import VARIANTS
from lerobot_policy_quantile.core.decoders import PRESETS, fit_copula
from lerobot_policy_quantile.core.quantile_function import QuantileFunction
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.processor_quantile import make_quantile_pre_post_processors
from tests.backbone.lerobot_reference import lerobot_policy
from tests.policy.test_prefix_reuse import policy_of
from tests.support.policies import STATS, make_batch, make_config, make_policy, raw_batch
from tests.support.simulated_cuda import CudaTensor, on_cuda, simulated_cuda
from tests.test_modeling import ABLATIONS, HEADS, settings_name

PER_STEP, PER_CHUNK = 6, 4
SETTINGS = [
    *HEADS,
    {"query": "noise"},
    {"micro_batch": 1},
    *[settings for settings in ABLATIONS if settings != {"query": "noise"}],
    {"fast_training": True},
    {"n_prompts": 0},
    {"drop_ratio": 0.0},
    {"fast_training": True, "head": "flow"},
    {"fast_training": True, "query": "noise"},
]
QUICK = 6  # of these in single precision, and the first in half


def cases():
    """Every setting in both precisions; the many that resemble each other are left to `make test-all`."""
    for number, settings in enumerate(SETTINGS):
        for dtype in ("float32", "bfloat16"):
            quick = number < QUICK if dtype == "float32" else number == 0
            name = f"{settings_name(settings)} {dtype}"
            yield pytest.param(settings, dtype, id=name, marks=() if quick else pytest.mark.slow)


@pytest.fixture
def waits():
    with simulated_cuda() as waits:
        yield waits


def moved(policy: QuantilePolicy) -> QuantilePolicy:
    policy.config.device = "cuda"
    return policy.to("cuda")


def gradient(policy: QuantilePolicy) -> torch.Tensor:
    return torch.cat([p.grad.cpu().flatten() for p in policy.parameters() if p.grad is not None])


def processors(**settings):
    """Both pipelines, their statistics already where the first batch has moved them."""
    before, after = make_quantile_pre_post_processors(make_config(**settings), STATS)
    before(on_cuda(raw_batch()) if settings["device"] == "cuda" else raw_batch())
    return before, after


# --- training ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("settings", "dtype"), list(cases()))
def test_a_training_step_is_the_cpus_and_hardly_ever_waits(settings, dtype, waits):
    """From the batch as accelerate hands it over, already on the device, to the log as LeRobot reads it."""
    here, there = make_policy(dtype=dtype, **settings).train(), moved(make_policy(dtype=dtype, **settings)).train()
    before, batch = processors(device="cuda")[0], on_cuda(raw_batch())
    plain_loss, plain_log = here(make_batch(here.config))
    plain_loss.backward()
    waits.clear()
    loss, log = there(before(batch))
    assert not any("losses" in wait.where or "heads" in wait.where for wait in waits), "the forward is not waited for"
    loss.backward()
    numbers = dict(log)
    assert len(waits) <= PER_STEP, waits
    assert isinstance(loss, CudaTensor)
    tight = {"rtol": 1e-4, "atol": 1e-5} if dtype == "float32" else {"rtol": 0.02, "atol": 0.02}
    torch.testing.assert_close(loss.cpu(), plain_loss, **tight)
    assert numbers == pytest.approx(plain_log, abs=0.05 if dtype == "bfloat16" else 1e-4)
    assert (gradient(there) - gradient(here)).norm() < (1e-3 if dtype == "float32" else 0.05) * gradient(here).norm()


def test_the_optimiser_and_a_second_step(waits):
    here, there = make_policy().train(), moved(make_policy()).train()
    losses = []
    for policy, batch in ((here, make_batch(here.config)), (there, on_cuda(make_batch(here.config)))):
        optimizer = policy.config.get_optimizer_preset().build(policy.get_optim_params())
        for _ in range(2):
            loss, _ = policy(batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert there.noise_key.tolist() == here.noise_key.tolist()


@pytest.mark.parametrize("place", ["memory", "folder"])
def test_kept_prefixes_train_alike_and_do_not_wait(place, waits, tmp_path):
    kept = str(tmp_path / "prefixes") if place == "folder" else place
    plain, there = policy_of(), moved(policy_of(prefix_cache=kept))
    before, batch = processors(device="cuda")[0], on_cuda(raw_batch())
    for _ in range(2):
        expected, _ = plain(make_batch(plain.config))
        waits.clear()
        loss, log = there(before(batch))
        loss.backward()
        assert log["loss"] == pytest.approx(expected.item(), rel=1e-4)
    assert len(waits) <= PER_STEP, waits


def test_nan_is_refused_without_waiting_for_the_forward(waits):
    """When the log is read, or by the next forward if nobody reads it."""
    policy = moved(make_policy()).train()
    batch = on_cuda(make_batch(policy.config))
    with torch.no_grad():
        policy.head.projection.bias.fill_(torch.nan)
    _, log = policy(batch)
    with pytest.raises(ValueError, match="prediction must not contain NaN; got 1 NaN"):
        log.items()
    policy(batch)
    with pytest.raises(ValueError, match="prediction must not contain NaN"):
        policy(batch)


def test_a_bad_label_is_named_before_the_forward(waits):
    policy = moved(make_policy()).train()
    batch = make_batch(policy.config)
    batch["action"][2, 7, 1] = torch.nan
    with pytest.raises(ValueError, match=r"action must be finite; row 2 \(frame index 102\), dimension \(7, 1\)"):
        policy(on_cuda(batch))
    assert policy.backbone.expert_calls == 0


# --- acting -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair():
    """The same wide prediction on both devices, so that decoders differ from the median."""
    pair = make_policy().eval(), make_policy().eval()
    correlation = torch.eye(30) * 0.5 + 0.5
    for policy in pair:
        torch.nn.init.constant_(policy.head.gap_projection.bias, 3.0)
        policy.use_copula(correlation)
    with simulated_cuda():
        moved(pair[1])
    return pair


@pytest.mark.parametrize(("path", "rows"), [pytest.param("plain", 1, marks=pytest.mark.slow), ("fast", 5)])
@pytest.mark.parametrize("decoder", PRESETS)
def test_a_chunk_of_any_decoder_is_the_cpus_and_hardly_ever_waits(decoder, path, rows, pair, waits):
    """Two chunks in a row, from raw observations to actions in the robot's units."""
    answers = []
    for policy, device in zip(pair, ("cpu", "cuda"), strict=True):
        policy.optimize() if path == "fast" else policy.train().eval()
        before, after = processors(device=device)
        episodes = [policy.begin_episode(seed) for seed in range(rows)]
        decoders = [policy.choose_decoder(decoder)] * rows
        for _ in range(2):
            waits.clear()
            answer = policy.predict_decoded(before(raw_batch(rows)), after, episodes=episodes, decoders=decoders)
        answers.append(answer)
    assert len(waits) <= PER_CHUNK, waits
    for here, there in zip(*answers, strict=True):
        torch.testing.assert_close(there, here, rtol=1e-4, atol=1e-4)


def test_rows_with_decoders_of_their_own(pair, waits):
    policy = pair[1]
    before, after = processors(device="cuda")
    decoders = [policy.choose_decoder(name) for name in ("tracking", "density", "median", "copula", "gaussian")]
    episodes = [policy.begin_episode(seed) for seed in range(5)]
    policy.predict_decoded(before(raw_batch(5)), after, episodes=episodes, decoders=decoders)
    waits.clear()
    policy.predict_decoded(before(raw_batch(5)), after, episodes=episodes, decoders=decoders)
    assert len(waits) <= PER_CHUNK, waits


@pytest.mark.parametrize("path", [pytest.param("plain", marks=pytest.mark.slow), "fast"])
@pytest.mark.parametrize("settings", [*HEADS, {"query": "noise"}, {"query": "vlm"}, {"dtype": "bfloat16"}], ids=str)
def test_a_chunk_of_any_head_by_lerobots_own_calls(settings, path, waits):
    """`select_action` and the postprocessor, as LeRobot's evaluation calls them."""
    actions = []
    for device in ("cpu", "cuda"):
        policy = make_policy(**settings).eval()
        policy = moved(policy) if device == "cuda" else policy
        policy = policy.optimize() if path == "fast" else policy
        before, after = processors(device=device)
        after(policy.select_action(before(raw_batch(2))))
        policy.reset(seeds=[3, 4])
        waits.clear()
        chosen = policy.select_action(before(raw_batch(2)))
        assert len(waits) <= PER_CHUNK, waits
        assert chosen.device.type == device
        actions.append(after(chosen))
    assert len(waits) <= PER_CHUNK + 2, waits  # LeRobot's postprocessor moves a number there and the action back
    tight = 0.1 if settings.get("dtype") == "bfloat16" else 1e-4
    torch.testing.assert_close(actions[1], actions[0], rtol=tight, atol=tight)


def test_a_copula_fitted_on_the_device_is_used_and_decoded(waits):
    policy = moved(make_policy(decoder="copula")).eval()
    batch = on_cuda(make_batch(policy.config, 8))
    expert = policy._expert(policy.prefix(batch))
    queries = torch.zeros(8, 10, 32, device="cuda")
    law = QuantileFunction(policy.head.levels, policy.head.quantiles(expert.direct(queries)).detach())
    correlation = fit_copula(law, batch["action"], torch.ones(8, 10, 3, dtype=torch.bool, device="cuda"))
    policy.use_copula(correlation)
    assert policy.predict_action_chunk(batch).isfinite().all()
    policy.use_copula(CudaTensor(correlation))  # as somebody might hand it over
    policy.reset()
    assert policy.predict_action_chunk(batch).isfinite().all()


def test_back_on_the_cpu_it_acts_and_trains_as_before(waits):
    policy, twin = make_policy(decoder="independent"), make_policy(decoder="independent")
    batch = make_batch(policy.config)
    moved(policy).optimize()
    policy.reset(seeds=range(4))
    policy.predict_action_chunk(on_cuda(batch))
    policy.to("cpu")
    for each in (policy, twin):
        each.eval().reset(seeds=range(4))
    torch.testing.assert_close(policy.predict_action_chunk(batch), twin.predict_action_chunk(batch))
    torch.testing.assert_close(policy.train()(batch)[0], twin.train()(batch)[0])


# --- LeRobot's pi05, for comparison -----------------------------------------------------------


def test_a_step_of_ours_waits_less_often_than_one_of_lerobots_pi05(waits):
    """Counted the same way, processors left out: five times in LeRobot 0.6.1, twice in ours."""
    variant = VARIANTS["tiny"]
    theirs, ours = lerobot_policy(variant).to("cuda").train(), moved(make_policy()).train()
    batch = on_cuda(make_batch(ours.config))
    size = variant.image_size
    seen = {name: batch[name] for name in (OBS_LANGUAGE_TOKENS, OBS_LANGUAGE_ATTENTION_MASK)}
    image = torch.rand(4, 3, size, size, device="cuda")
    action = torch.randn(4, 10, 7, device="cuda")
    counts = []
    for policy, given in ((theirs, seen | {"observation.images.top": image, "action": action}), (ours, batch)):
        waits.clear()
        loss, log = policy(given)
        loss.backward()
        dict(log)
        counts.append(len(waits))
    assert counts[0] > counts[1] == 2, counts
