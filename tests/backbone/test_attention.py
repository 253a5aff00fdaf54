"""Who sees whom (bit for bit), and where positions go on."""

import pytest
import torch
from torch import Tensor

from lerobot_policy_quantile.backbone import VARIANTS, BackboneInputs
from lerobot_policy_quantile.backbone.attention import suffix_mask
from tests.backbone.samples import BATCH, CHUNK, MODEL_DIM, detached, observation, tiny_backbone

TINY = VARIANTS["tiny"]


@pytest.fixture(scope="module")
def backbone():
    return tiny_backbone(n_prompts=16).eval()


@pytest.fixture(scope="module")
def actions() -> Tensor:
    return torch.randn(BATCH, CHUNK, MODEL_DIM, generator=torch.Generator().manual_seed(3))


TIME = torch.full((BATCH,), 0.3)


@torch.no_grad()
def test_changing_an_action_leaves_prompts_and_vlm_bit_equal(backbone, actions):
    prefix = backbone.prefix(observation(TINY))
    before = detached(prefix)
    prompts, features = backbone.suffix(prefix, actions, TIME)
    changed = actions.clone()
    changed[:, CHUNK // 2] += 1.0
    prompts_after, features_after = backbone.suffix(prefix, changed, TIME)
    assert torch.equal(prompts, prompts_after)
    assert all(torch.equal(a, b) for a, b in zip(before, detached(prefix), strict=True))
    # Actions see each other in both directions.
    moved = (features - features_after).abs().amax(-1)
    assert (moved > 1e-4).all()


@torch.no_grad()
def test_changing_a_prompt_leaves_vlm_bit_equal_and_moves_prompts_and_actions(backbone, actions):
    seen = observation(TINY)
    before = detached(backbone.prefix(seen))
    prompts, features = backbone.suffix(backbone.prefix(seen), actions, TIME)
    kept = backbone.prompts.clone()
    backbone.prompts[8] += 1.0
    prefix = backbone.prefix(seen)
    after = detached(prefix)
    prompts_after, features_after = backbone.suffix(prefix, actions, TIME)
    backbone.prompts.copy_(kept)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert ((prompts - prompts_after).abs().amax(-1) > 1e-4).all()
    assert ((features - features_after).abs().amax(-1) > 1e-4).all()


@torch.no_grad()
def test_content_of_padded_prefix_tokens_changes_nothing(backbone, actions):
    images, image_valid, tokens, token_valid = inputs = observation(TINY)
    base = backbone.prefix(inputs)
    other_tokens = torch.where(token_valid, tokens, (tokens + 5) % TINY.vocab_size)
    other_images = [
        torch.where(seen[:, None, None, None], image, -image) for image, seen in zip(images, image_valid, strict=True)
    ]
    other = backbone.prefix(inputs._replace(images=other_images, tokens=other_tokens))
    assert not torch.equal(other_tokens, tokens)
    assert not torch.equal(other_images[1], images[1])
    for ours, theirs in zip(base.layers, other.layers, strict=True):
        seen = base.valid[:, None, :, None]
        assert torch.equal(ours.keys * seen, theirs.keys * seen)
        assert torch.equal(ours.values * seen, theirs.values * seen)
    assert torch.equal(base.pooled, other.pooled)
    for a, b in zip(backbone.suffix(base, actions, TIME), backbone.suffix(other, actions, TIME), strict=True):
        assert torch.equal(a, b)


@torch.no_grad()
def test_padding_can_be_cut_away(backbone, actions):
    """Positions skip padding: a shorter text buffer or no absent camera gives the same features."""
    images, image_valid, tokens, token_valid = inputs = observation(TINY)
    row = slice(1, 2)
    length = int(token_valid[row].sum())
    padded = backbone.prefix(inputs)
    short = tokens[row, :length], token_valid[row, :length]
    cut = backbone.prefix(BackboneInputs([images[0][row]], [image_valid[0][row]], *short))
    assert length < tokens.shape[1]
    assert not image_valid[1][row].any()
    both = zip(backbone.suffix(padded, actions, TIME), backbone.suffix(cut, actions[row], TIME[row]), strict=True)
    for whole, part in both:
        torch.testing.assert_close(whole[row], part, atol=1e-5 * part.abs().max().item(), rtol=1e-5)


@torch.no_grad()
def test_order_of_action_tokens_comes_from_their_positions(backbone):
    """Equal zero queries still give every step features of its own."""
    prefix = backbone.prefix(observation(TINY))
    features = backbone.expert(prefix)(torch.zeros(BATCH, CHUNK, MODEL_DIM), torch.zeros(BATCH))
    assert (features.diff(dim=1).abs().amax(-1) > 1e-4).all()


def test_blocks_of_the_mask():
    """Prefix of 3 tokens with one padded, 2 prompts, 2 actions: rows are prompts, then actions."""
    mask = suffix_mask(torch.tensor([[True, False, True]]), n_prompts=2, chunk_size=2)
    prompt, action = [1, 0, 1, 1, 1, 0, 0], [1, 0, 1, 1, 1, 1, 1]
    assert mask[0].int().tolist() == [prompt, prompt, action, action]
