"""The computed training memory is what a real training step holds."""

import torch

from lerobot_policy_quantile.backbone import VARIANTS, Backbone
from lerobot_policy_quantile.backbone.memory import SavedTensors, TrainingShape, training_memory
from lerobot_policy_quantile.core.heads import QuantileHead
from tests.backbone.samples import ACTION_DIM, BATCH, CHUNK, MODEL_DIM, observation

TINY = VARIANTS["tiny"]
TEXT = 12


def test_computed_bytes_equal_those_of_a_real_step():
    computed = training_memory(TrainingShape(TINY, BATCH, 2, TEXT, chunk_size=CHUNK, action_dim=ACTION_DIM))
    backbone = Backbone(TINY, model_dim=MODEL_DIM)
    head = QuantileHead(backbone.expert_width, CHUNK, ACTION_DIM, MODEL_DIM)
    prefix = backbone.prefix(observation(TINY, text=TEXT))
    keys_values = [tensor for layer in prefix.layers for tensor in layer]
    held = {t.untyped_storage()._cdata for t in (*backbone.parameters(), *head.parameters(), *keys_values)}
    kept = SavedTensors()
    with kept:
        quantiles = head.quantiles(backbone.expert(prefix)(torch.zeros(BATCH, CHUNK, MODEL_DIM), torch.zeros(BATCH)))
    assert computed.activations == kept.bytes_besides(held) > 0
    assert computed.prefix == sum(t.nbytes for t in keys_values)
    trained = [p for p in (*backbone.parameters(), *head.parameters()) if p.requires_grad]
    optimiser = torch.optim.AdamW(trained)
    quantiles.sum().backward()
    optimiser.step()
    moments = [m for state in optimiser.state.values() for m in state.values() if m.ndim]
    assert computed.optimiser == sum(m.nbytes for m in moments)
    assert computed.gradients == sum(p.grad.nbytes for p in trained)
    assert computed.frozen_weights == sum(p.nbytes for p in backbone.vlm_parameters())
    assert computed.trained_weights == sum(p.nbytes for p in trained)


def test_checkpointing_bfloat16_and_batch_change_the_parts_they_should():
    base = training_memory(TrainingShape(TINY, 4))
    assert training_memory(TrainingShape(TINY, 4, gradient_checkpointing=True)).activations < 0.2 * base.activations
    half = training_memory(TrainingShape(TINY, 4, precision="bfloat16"))
    assert half.prefix == base.prefix // 2
    assert half.frozen_weights < base.frozen_weights
    assert half.trained_weights == base.trained_weights
    double = training_memory(TrainingShape(TINY, 8))
    assert double.prefix == 2 * base.prefix
    assert double.optimiser == base.optimiser


def test_full_size_numbers_are_known_without_the_memory_for_them():
    """2.923 B frozen and 0.431 B trained parameters, 16 bytes for each trained one in float32."""
    full = training_memory(TrainingShape(VARIANTS["pi05"], 1))
    assert round(full.frozen_weights / 4e9, 3) == 2.923
    assert round(full.trained_weights / 4e9, 3) == 0.431
    assert full.trained_weights + full.gradients + full.optimiser == 4 * full.trained_weights
