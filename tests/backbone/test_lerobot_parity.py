"""With the flow head, no prompts and the same weights, our maths is LeRobot's pi05."""

from dataclasses import replace

import pytest
import torch

from lerobot_policy_quantile.backbone import VARIANTS, Backbone, Variant
from lerobot_policy_quantile.core.episode import episodes_from_seeds
from lerobot_policy_quantile.core.heads import FlowHead, sample_noise_time
from tests.backbone.lerobot_reference import lerobot_model, share_weights
from tests.backbone.samples import BATCH, CHUNK, MODEL_DIM, observation

# Widths, heads and patches of the real model; fewer layers, tokens and words.
REAL_WIDTHS = replace(VARIANTS["pi05"], name="real-widths", depth=2, vision_depth=2, vocab_size=512, image_size=56)


@pytest.fixture(
    scope="module",
    params=[VARIANTS["tiny"], pytest.param(REAL_WIDTHS, marks=pytest.mark.slow)],
    ids=lambda variant: variant.name,
)
def pair(request: pytest.FixtureRequest):
    """LeRobot's model, ours with its weights, and an observation."""
    variant: Variant = request.param
    reference = lerobot_model(variant).eval()
    backbone = Backbone(variant, model_dim=MODEL_DIM, n_prompts=0).eval()
    head = FlowHead(backbone.expert_width, CHUNK, MODEL_DIM, MODEL_DIM)
    share_weights(reference, backbone, head)
    return reference, backbone, head, observation(variant, BATCH)


def test_flow_loss_equals_lerobots(pair):
    reference, backbone, head, seen = pair
    target = torch.randn(BATCH, CHUNK, MODEL_DIM, generator=torch.Generator().manual_seed(1))
    twin = torch.Generator().manual_seed(2)
    noise = torch.randn(target.shape, generator=twin)
    noise_time = sample_noise_time(torch.rand(BATCH, generator=twin))
    with torch.no_grad():
        theirs = reference(*seen, target, noise, noise_time)
        ours = head.loss(backbone.expert(backbone.prefix(seen)), target, generator=torch.Generator().manual_seed(2))
    assert theirs.mean() > 1e-2
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_ten_step_actions_equal_lerobots(pair):
    reference, backbone, head, seen = pair
    noise = torch.stack([episode.normal(CHUNK, MODEL_DIM) for episode in episodes_from_seeds(range(BATCH))])
    theirs = reference.sample_actions(*seen, noise=noise, num_steps=10)
    with torch.no_grad():
        ours = head.predict(backbone.expert(backbone.prefix(seen)), episodes_from_seeds(range(BATCH))).actions
    assert (theirs - noise).abs().mean() > 1e-2
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_parity_would_notice_the_noise_time_and_the_absent_camera(pair):
    """The comparison above is sharp: a small change of either moves the loss by more than its tolerance."""
    _, backbone, _, inputs = pair
    actions, noise_time = torch.ones(BATCH, CHUNK, MODEL_DIM), torch.full((BATCH,), 0.5)
    all_seen = inputs._replace(image_valid=[torch.ones_like(seen) for seen in inputs.image_valid])
    with torch.no_grad():
        prefix = backbone.prefix(inputs)
        base = backbone.expert(prefix)(actions, noise_time)
        later = backbone.expert(prefix)(actions, noise_time + 0.01)
        both = backbone.expert(backbone.prefix(all_seen))(actions, noise_time)
    assert (later - base).abs().max() > 1e-3
    assert (both[1] - base[1]).abs().max() > 1e-3
    torch.testing.assert_close(both[0], base[0], atol=1e-5, rtol=1e-5)
