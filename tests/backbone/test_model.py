"""Freezing, gradients, queries, counted expert calls, checkpointing, precision, refused input."""

import hashlib
from collections.abc import Iterable

import pytest
import torch
from accelerate.utils.dataclasses import get_module_class_from_name
from torch import Tensor, nn

from lerobot_policy_quantile.backbone import VARIANTS, Backbone, Prefix
from lerobot_policy_quantile.backbone.towers import WRAP_CLASSES
from lerobot_policy_quantile.core.episode import episodes_from_seeds
from lerobot_policy_quantile.core.heads import FlowHead, Head, PointHead, QuantileHead, training_loss
from tests.backbone.samples import ACTION_DIM, BATCH, CHUNK, MODEL_DIM, observation, randomise, tiny_backbone

TINY = VARIANTS["tiny"]
QUERIES, TIME = torch.zeros(BATCH, CHUNK, MODEL_DIM), torch.zeros(BATCH)


def quantile_head(backbone: Backbone) -> QuantileHead:
    return randomise(QuantileHead(backbone.expert_width, CHUNK, ACTION_DIM, MODEL_DIM))


def loss(backbone: Backbone, head: Head, prefix: Prefix) -> Tensor:
    target = torch.randn(BATCH, CHUNK, ACTION_DIM, generator=torch.Generator().manual_seed(4))
    generator = torch.Generator().manual_seed(5)
    valid = torch.ones(target.shape, dtype=torch.bool)
    expert = backbone.expert(prefix, generator=generator)
    return training_loss(head, expert, target, valid, drop_ratio=0.1, generator=generator)


def digest(parameters: Iterable[Tensor]) -> str:
    total = hashlib.sha256()
    for parameter in parameters:
        total.update(parameter.detach().numpy().tobytes())
    return total.hexdigest()


def gradients(backbone: Backbone, head: Head) -> dict[str, Tensor]:
    both = nn.ModuleDict({"backbone": backbone, "head": head})
    return {name: p.grad.clone() for name, p in both.named_parameters() if p.grad is not None}


def test_frozen_vlm_keeps_its_hash_and_gets_no_gradient_buffers():
    backbone = tiny_backbone()
    head = quantile_head(backbone)
    before = digest(backbone.vlm_parameters()), digest(backbone.expert_parameters()), digest([backbone.prompts])
    optimiser = torch.optim.AdamW([*backbone.parameters(), *head.parameters()], lr=1e-3)
    for _ in range(2):
        prefix = backbone.prefix(observation(TINY))
        assert not any(tensor.requires_grad for layer in prefix.layers for tensor in layer)
        assert not prefix.pooled.requires_grad
        optimiser.zero_grad()
        loss(backbone, head, prefix).backward()
        optimiser.step()
    assert digest(backbone.vlm_parameters()) == before[0]
    assert digest(backbone.expert_parameters()) != before[1]
    assert digest([backbone.prompts]) != before[2]
    assert all(p.grad is None and not p.requires_grad for p in backbone.vlm_parameters())
    assert all(p.grad is not None for p in backbone.expert_parameters())


def test_unfrozen_vlm_gets_gradients_through_keys_and_values():
    backbone = tiny_backbone(freeze_vlm=False)
    head = quantile_head(backbone)
    loss(backbone, head, backbone.prefix(observation(TINY))).backward()
    towers = backbone.paligemma_with_expert
    vision = towers.paligemma.model.vision_tower
    last = towers.language_model.layers[-1]
    for weight in (
        vision.vision_model.embeddings.patch_embedding.weight,
        towers.language_model.embed_tokens.weight,
        towers.language_model.layers[0].mlp.up_proj.weight,
        last.self_attn.k_proj.weight,
        last.self_attn.v_proj.weight,
    ):
        assert weight.grad.abs().max() > 0
    # What comes after the last keys and values reaches no action.
    unused = {id(p) for part in (last.self_attn.q_proj, last.self_attn.o_proj, last.mlp) for p in part.parameters()}
    unused |= {id(p) for part in (last.post_attention_layernorm, towers.language_model.norm) for p in part.parameters()}
    assert {id(p) for p in backbone.vlm_parameters() if p.grad is None} == unused


def test_mode_of_a_frozen_vlm_stays_evaluation():
    frozen, free = Backbone(TINY), Backbone(TINY, freeze_vlm=False)
    for backbone in (frozen, free):
        assert backbone.train() is backbone
        assert all(m.training for m in backbone.paligemma_with_expert.gemma_expert.modules())
    assert not any(m.training for m in frozen.paligemma_with_expert.paligemma.modules())
    assert all(m.training for m in free.paligemma_with_expert.paligemma.modules())
    assert not any(m.training for m in free.eval().modules())


def test_direct_heads_call_the_expert_once_and_flow_ten_times():
    backbone = tiny_backbone().eval()
    width = backbone.expert_width
    heads = [quantile_head(backbone), FlowHead(width, CHUNK, ACTION_DIM, MODEL_DIM)]
    heads += [PointHead(width, CHUNK, ACTION_DIM, MODEL_DIM, norm=norm) for norm in ("l1", "l2")]
    passes = []
    expert_layer = backbone.paligemma_with_expert.expert.layers[0]
    expert_layer.register_forward_hook(lambda *_: passes.append(1))
    for head in heads:
        backbone.expert_calls = 0
        passes.clear()
        with torch.no_grad():
            head.predict(backbone.expert(backbone.prefix(observation(TINY))), episodes_from_seeds(range(BATCH)))
        expected = 10 if isinstance(head, FlowHead) else 1
        assert backbone.expert_calls == len(passes) == head.expert_calls == expected


@pytest.mark.parametrize("query", ["zero", "vlm", "noise"])
def test_cached_prefix_and_full_forward_agree_in_loss_and_gradients(query: str):
    """One prefix kept over steps and modes, against a prefix computed anew for each loss."""
    backbone = tiny_backbone(query=query)
    head = quantile_head(backbone)
    cached = backbone.eval().prefix(observation(TINY))
    backbone.train()
    loss(backbone, head, cached).backward()  # a use before must leave no trace
    results = []
    for prefix in (cached, None):
        backbone.zero_grad()
        head.zero_grad()
        value = loss(backbone, head, prefix or backbone.prefix(observation(TINY)))
        value.backward()
        results.append((value, gradients(backbone, head)))
    (value_a, grads_a), (value_b, grads_b) = results
    torch.testing.assert_close(value_a, value_b, atol=0, rtol=0)
    assert grads_a.keys() == grads_b.keys()
    for name in grads_a:
        torch.testing.assert_close(grads_a[name], grads_b[name], atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("freeze_vlm", [True, False])
def test_gradient_checkpointing_gives_the_same_gradients_and_saves_activations(freeze_vlm: bool):
    results = []
    for checkpointing in (False, True):
        backbone = tiny_backbone(gradient_checkpointing=checkpointing, freeze_vlm=freeze_vlm)
        head = quantile_head(backbone)
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=saved: (s.append(t.numel()), t)[1], lambda t: t):
            value = loss(backbone, head, backbone.prefix(observation(TINY)))
        value.backward()
        results.append((value, gradients(backbone, head), sum(saved)))
    (value_a, grads_a, saved_a), (value_b, grads_b, saved_b) = results
    assert torch.equal(value_a, value_b)
    assert grads_a.keys() == grads_b.keys()
    for name in grads_a:
        torch.testing.assert_close(grads_a[name], grads_b[name], atol=1e-7, rtol=1e-6)
    assert saved_b < 0.5 * saved_a


def test_the_expert_never_changes_the_prefix():
    backbone = tiny_backbone().eval()
    prefix = backbone.prefix(observation(TINY))
    before = [(t.data_ptr(), t.shape, t._version) for layer in prefix.layers for t in layer]
    first = backbone.expert(prefix)(QUERIES, TIME)
    assert torch.equal(backbone.expert(prefix)(QUERIES, TIME), first)
    assert before == [(t.data_ptr(), t.shape, t._version) for layer in prefix.layers for t in layer]


def test_zero_queries_pass_on_what_the_head_gives():
    backbone = tiny_backbone().eval()
    prefix = backbone.prefix(observation(TINY))
    actions = torch.randn(QUERIES.shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(backbone.expert(prefix)(actions, TIME), backbone.suffix(prefix, actions, TIME)[1])


def test_noise_queries_come_from_the_generator_or_from_each_episode():
    backbone = tiny_backbone(query="noise").eval()
    prefix = backbone.prefix(observation(TINY))
    noise = torch.randn(QUERIES.shape, generator=torch.Generator().manual_seed(7))
    drawn = backbone.expert(prefix, generator=torch.Generator().manual_seed(7))(QUERIES, TIME)
    assert torch.equal(drawn, backbone.suffix(prefix, noise, TIME)[1])
    noise = torch.stack([e.normal(CHUNK, MODEL_DIM) for e in episodes_from_seeds(range(BATCH))])
    drawn = backbone.expert(prefix, episodes=episodes_from_seeds(range(BATCH)))(QUERIES, TIME)
    assert torch.equal(drawn, backbone.suffix(prefix, noise, TIME)[1])
    with pytest.raises(ValueError, match="needs a generator or episodes"):
        backbone.expert(prefix)(QUERIES, TIME)


def test_vlm_queries_are_a_trained_projection_of_the_pooled_prefix():
    backbone = tiny_backbone(query="vlm")
    head = quantile_head(backbone)
    prefix = backbone.prefix(observation(TINY))
    query = backbone.query_projection(prefix.pooled)[:, None].expand(-1, CHUNK, -1)
    assert torch.equal(backbone.expert(prefix)(QUERIES, TIME), backbone.suffix(prefix, query, TIME)[1])
    loss(backbone, head, prefix).backward()
    assert backbone.query_projection.weight.grad.abs().max() > 0
    assert any(p is backbone.query_projection.weight for p in backbone.expert_parameters())


@pytest.mark.parametrize("query", ["noise", "vlm"])
def test_queries_that_replace_zeros_refuse_actions(query: str):
    backbone = tiny_backbone(query=query).eval()
    prefix = backbone.prefix(observation(TINY))
    with pytest.raises(ValueError, match=f"query '{query}' replaces zero queries"):
        backbone.expert(prefix, generator=torch.Generator())(QUERIES + 1, TIME)


def test_parameters_fall_into_three_disjoint_groups():
    for settings in ({}, {"n_prompts": 0}, {"query": "vlm"}):
        backbone = Backbone(TINY, **settings)
        groups = [backbone.vlm_parameters(), backbone.prompt_parameters(), backbone.expert_parameters()]
        ids = [id(parameter) for group in groups for parameter in group]
        assert len(ids) == len(set(ids))
        assert set(ids) == {id(parameter) for parameter in backbone.parameters()}
    assert list(Backbone(TINY, n_prompts=0).prompt_parameters()) == []


def test_bfloat16_keeps_float32_where_lerobot_does():
    backbone = Backbone(TINY, model_dim=MODEL_DIM, precision="bfloat16")
    head = quantile_head(backbone)
    prefix = backbone.prefix(observation(TINY))
    assert prefix.layers[0].keys.dtype == torch.bfloat16
    value = loss(backbone, head, prefix)
    value.backward()
    assert value.dtype == torch.float32
    assert value.isfinite()
    towers = backbone.paligemma_with_expert
    assert towers.expert.layers[0].mlp.up_proj.weight.dtype == torch.bfloat16
    for full in (
        towers.expert.layers[0].input_layernorm.dense.weight,
        towers.expert.norm.dense.weight,
        towers.paligemma.model.multi_modal_projector.linear.weight,
        backbone.prompts,
        backbone.time_mlp_in.weight,
    ):
        assert full.dtype == torch.float32


def test_bfloat16_stays_near_float32():
    exact, rounded = tiny_backbone().eval(), tiny_backbone(precision="bfloat16").eval()
    rounded.load_state_dict(exact.state_dict())
    with torch.no_grad():
        features = [b.expert(b.prefix(observation(TINY)))(QUERIES, TIME) for b in (exact, rounded)]
    assert (features[0] - features[1]).norm() < 0.05 * features[0].norm()


def test_wrap_names_find_the_layers_of_every_tower():
    """A wrap policy looks classes up by name; each tower's layers must answer to one."""
    backbone = Backbone(TINY)
    classes = {get_module_class_from_name(backbone, name) for name in backbone._no_split_modules}
    assert None not in classes
    assert len(classes) == len(WRAP_CLASSES)
    wrapped = [module for module in backbone.modules() if isinstance(module, tuple(classes))]
    assert len(wrapped) == 2 * TINY.depth + TINY.vision_depth


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"query": "zeros"}, "query must be one of zero, noise, vlm; got 'zeros'; did you mean 'zero'?"),
        ({"n_prompts": -1}, "n_prompts must be 0"),
        ({"model_dim": 0}, "model_dim must be at least 1"),
        ({"precision": "float16"}, "precision must be one of float32, bfloat16; got 'float16'"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        Backbone(TINY, **settings)


@pytest.mark.bad_input
def test_wrong_observations_are_refused():
    backbone = Backbone(TINY)
    images, image_valid, tokens, token_valid = inputs = observation(TINY)
    with pytest.raises(
        ValueError, match=rf"images\[0\] must have shape \(3, 3, {TINY.image_size}, {TINY.image_size}\)"
    ):
        backbone.prefix(inputs._replace(images=[images[0][..., :32]], image_valid=image_valid[:1]))
    with pytest.raises(ValueError, match="one entry per image; got 1 for 2"):
        backbone.prefix(inputs._replace(image_valid=image_valid[:1]))
    with pytest.raises(ValueError, match=r"image_valid\[1\] must have shape"):
        backbone.prefix(inputs._replace(image_valid=[image_valid[0], image_valid[1][:2]]))
    with pytest.raises(ValueError, match="token_valid must have shape"):
        backbone.prefix(inputs._replace(token_valid=token_valid[:, :3]))
    with pytest.raises(ValueError, match=r"tokens must lie in \[0, 1024\), the vocabulary of backbone 'tiny'"):
        backbone.prefix(inputs._replace(tokens=tokens + 1024))


@pytest.mark.bad_input
def test_wrong_actions_are_refused():
    backbone = Backbone(TINY, model_dim=MODEL_DIM)
    expert = backbone.expert(backbone.prefix(observation(TINY)))
    with pytest.raises(ValueError, match="actions must have shape"):
        expert(QUERIES[..., :7], TIME)
    with pytest.raises(ValueError, match="noise_time must have shape"):
        expert(QUERIES, TIME[:1])
