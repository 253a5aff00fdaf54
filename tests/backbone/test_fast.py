"""The fast path says what the plain path says: each of its changes by itself, and all together."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from lerobot_policy_quantile.backbone import compiled
from lerobot_policy_quantile.backbone.attention import prefix_mask, prefix_positions, run_tower
from lerobot_policy_quantile.backbone.fast import GemmaLayer, attend, drop_invalid, key_mask, modulation, normalise
from lerobot_policy_quantile.backbone.linear import exact_linear, fuse
from tests.backbone.samples import BATCH, CHUNK, MODEL_DIM, observation, tiny_backbone
from tests.support.policies import make_batch, make_policy

TIGHT = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture
def backbone():
    return tiny_backbone().eval()


def zero_queries(rows=BATCH):
    return torch.zeros(rows, CHUNK, MODEL_DIM), torch.zeros(rows)


def ask(backbone, seen, actions, noise_time):
    with torch.no_grad():
        return backbone.expert(backbone.prefix(seen))(actions, noise_time)


# --- each change by itself ---------------------------------------------------------------------


def test_dropping_keeps_the_valid_tokens_in_order():
    tokens = torch.arange(8.0).view(2, 4, 1)
    valid = torch.tensor([[True, False, True, True], [False, True, False, False]])
    kept, kept_valid = drop_invalid(tokens, valid)
    assert kept[0].flatten().tolist() == [0, 2, 3]
    assert kept[1, 0] == 5
    assert kept_valid.tolist() == [[True] * 3, [True, False, False]]
    assert torch.equal(prefix_positions(kept_valid)[0], prefix_positions(valid)[0][valid[0]])


def test_dropping_leaves_what_valid_tokens_say(backbone):
    """The plain tower, with and without the padding."""
    tower = backbone.paligemma_with_expert.language_model
    tokens = torch.randn(2, 9, backbone.variant.vlm_width)
    valid = torch.rand(2, 9) > 0.4

    def run(tokens, valid):
        return run_tower(tower, tokens, mask=prefix_mask(valid), positions=prefix_positions(valid))[0]

    with torch.no_grad():
        kept, kept_valid = drop_invalid(tokens, valid)
        torch.testing.assert_close(run(kept, kept_valid)[kept_valid], run(tokens, valid)[valid], **TIGHT)


def test_fused_products_are_the_single_ones_and_weights_stay_where_they_were():
    first, second = nn.Linear(5, 3), nn.Linear(5, 4)
    x = torch.randn(2, 5)
    alone = [first(x), second(x)]
    weight, bias = fuse(first, second)
    torch.testing.assert_close(exact_linear(weight, bias)(x), torch.cat(alone, dim=-1), rtol=1e-6, atol=1e-6)
    assert torch.equal(first(x), alone[0])
    with torch.no_grad():
        second.weight.zero_()
    assert not weight[3:].any()
    assert torch.equal(first(x), alone[0])


def test_weights_move_together_once():
    first, second = nn.Linear(5, 3, bias=False), nn.Linear(5, 4, bias=False)
    block, _ = fuse(first, second)
    places = first.weight.data_ptr(), second.weight.data_ptr()
    assert fuse(first, second)[0] is block
    assert places == (first.weight.data_ptr(), second.weight.data_ptr())
    second.weight.data = second.weight.data.clone()  # moved on by somebody else
    again, _ = fuse(first, second)
    assert again is not block
    assert torch.equal(again, torch.cat([first.weight, second.weight]))


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_attention_without_repeated_keys_is_plain_attention(kv_heads):
    heads, size = 4, 8
    queries = torch.randn(2, 5, heads, size)
    keys, values = torch.randn(2, kv_heads, 7, size), torch.randn(2, kv_heads, 7, size)
    valid = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    repeat = [part.repeat_interleave(heads // kv_heads, dim=1) for part in (keys, values)]
    scores = queries.transpose(1, 2) @ repeat[0].transpose(-1, -2) * size**-0.5
    scores = scores.masked_fill(~valid[:, None, None], -torch.inf)
    expected = (scores.softmax(-1) @ repeat[1]).transpose(1, 2).flatten(2)
    torch.testing.assert_close(attend(queries, keys, values, key_mask(valid)), expected, **TIGHT)


def test_a_mask_exists_only_where_tokens_are_missing():
    assert key_mask(torch.ones(2, 3, dtype=torch.bool), extra=2) is None
    assert key_mask(torch.tensor([[True, False]]), extra=2).flatten().tolist() == [True, False, True, True]


@pytest.mark.parametrize("adaptive", [True, False])
def test_norms_with_their_modulation_given_are_lerobots(backbone, adaptive):
    towers = backbone.paligemma_with_expert
    norm = (towers.expert if adaptive else towers.language_model).layers[1].input_layernorm
    x, condition = torch.randn(3, 4, norm.dim), torch.randn(3, norm.dim) if adaptive else None
    with torch.no_grad():
        expected, gate = norm(x, condition)
        by = modulation(norm, condition)
        torch.testing.assert_close(normalise(x, norm.eps, by), expected, **TIGHT)
    assert (gate is None) == (by.gate is None)


def test_the_last_layers_keys_and_values_need_nothing_else(backbone):
    layer = GemmaLayer.of(backbone.paligemma_with_expert.language_model.layers[-1], exact_linear)
    x, rotary = torch.randn(2, 6, backbone.variant.vlm_width), tuple(torch.randn(2, 2, 6, backbone.variant.head_dim))
    with torch.no_grad():
        norms = layer.norms(None)
        _, whole = layer.split(layer.project(x, norms), rotary)
        for part, expected in zip(layer.keys_and_values(x, norms, rotary), whole, strict=True):
            torch.testing.assert_close(part, expected, **TIGHT)


# --- all together ------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"n_prompts": 0}, {"query": "vlm"}], ids=str)
@pytest.mark.parametrize("rows", [1, BATCH])
def test_direct_features_are_the_plain_ones(settings, rows):
    backbone = tiny_backbone(**settings).eval()
    seen = observation(backbone.variant, rows)
    plain = ask(backbone, seen, *zero_queries(rows))
    backbone.optimize()
    for _ in range(2):  # the second call uses what the first has kept
        fast = ask(backbone, seen, *zero_queries(rows))
        torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-5 * plain.abs().max().item())


def test_noisy_actions_and_other_noise_times_are_the_plain_ones(backbone):
    """What flow matching asks, after a direct question has filled the constants."""
    seen = observation(backbone.variant)
    noise_time = torch.tensor([0.3, 0.0, 1.0])
    actions = torch.randn(BATCH, CHUNK, MODEL_DIM)
    plain = ask(backbone, seen, actions, noise_time)
    backbone.optimize()
    ask(backbone, seen, *zero_queries())
    fast = ask(backbone, seen, actions, noise_time)
    torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-5 * plain.abs().max().item())


def test_padding_of_the_text_buffer_costs_no_tokens(backbone):
    seen = observation(backbone.variant, 1)
    padded = seen._replace(
        tokens=functional.pad(seen.tokens, (0, 30)), token_valid=functional.pad(seen.token_valid, (0, 30))
    )
    backbone.optimize()
    with torch.no_grad():
        short = backbone.prefix(seen)
        long = backbone.prefix(padded)
    assert long.valid.shape == short.valid.shape
    for ours, theirs in zip(long.layers, short.layers, strict=True):
        assert torch.equal(ours.keys, theirs.keys)


def test_an_absent_camera_is_not_looked_at(backbone):
    seen = observation(backbone.variant, 1)
    seen.image_valid[1][:] = False
    seen.images[1][:] = torch.nan
    backbone.optimize()
    assert ask(backbone, seen, *zero_queries(1)).isfinite().all()


# --- on and off --------------------------------------------------------------------------------


def test_training_mode_and_new_weights_end_it(backbone):
    seen = observation(backbone.variant)
    backbone.optimize()
    ask(backbone, seen, *zero_queries())  # fills the constants
    other = tiny_backbone().eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.1)
    backbone.load_state_dict(other.state_dict())
    assert torch.equal(ask(backbone, seen, *zero_queries()), ask(other, seen, *zero_queries()))
    backbone.optimize()
    assert backbone.train().eval()._fast_expert is None
    backbone.optimize()
    assert backbone.double()._fast_prefix is None


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that torch.compile finds, by pass, run as they are: its own code generator takes minutes."""
    found = {}

    def capture(function, **settings):
        def backend(module, _):
            found[function.__qualname__].append(module)
            return module.forward

        found.setdefault(function.__qualname__, [])
        return real(function, backend=backend, dynamic=settings["dynamic"])

    real = torch.compile
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", capture)
    yield found
    torch._dynamo.reset()


def test_compiled_passes_are_the_plain_ones_and_few(backbone, graphs, monkeypatch):
    """Texts of many lengths fall into one graph; more batch sizes than graphs are answered all the same."""
    most = 2
    monkeypatch.setattr(compiled, "MAX_GRAPHS", most)
    seen = [observation(backbone.variant, text=text) for text in (12, 11, 9, 5)]
    seen += [observation(backbone.variant, rows) for rows in (1, 2)]
    plain = [ask(backbone, each, *zero_queries(len(each[2]))) for each in seen]
    backbone.optimize(compile=True)
    for each, expected in zip(seen, plain, strict=True):
        fast = ask(backbone, each, *zero_queries(len(each[2])))
        torch.testing.assert_close(fast, expected, rtol=1e-5, atol=1e-5 * expected.abs().max().item())
    assert set(graphs) == {"FastVision.__call__", "FastPrefix._run", "FastExpert._run"}
    assert all(len(found) <= most for found in graphs.values())
    assert len(graphs["FastExpert._run"]) == most  # the texts share one, the next batch size takes the other


def test_weights_of_the_experts_graph_stay_where_they_are(backbone, graphs):
    """A CUDA graph copies every input that may move; none of them is a weight."""
    backbone.optimize(compile=True)
    ask(backbone, observation(backbone.variant), *zero_queries())
    (graph,) = graphs["FastExpert._run"]
    given = [node.meta for node in graph.graph.find_nodes(op="placeholder")]
    static = [meta["example_value"] for meta in given if meta.get("tensor_dict", {}).get("_dynamo_static_input_type")]
    moving = [
        meta["example_value"] for meta in given if not meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
    ]
    tower = backbone.paligemma_with_expert.expert
    weights = sum(w.numel() for name, w in tower.layers.named_parameters() if "proj" in name)
    assert sum(value.numel() for value in static) >= 0.9 * weights  # the first layer's projection is kept outside
    assert all(value.ndim != 2 or 1 in value.shape for value in moving)  # activations and norms, no matrix


def test_packed_weights_say_the_same(backbone):
    seen = observation(backbone.variant)
    plain = ask(backbone, seen, *zero_queries())
    backbone.optimize(packed=True)
    fast = ask(backbone, seen, *zero_queries())
    torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-5 * plain.abs().max().item())
    with pytest.raises(ValueError, match="one of packed, int8, compile; got packed=True, int8=True"):
        backbone.optimize(packed=True, int8=True)
    with pytest.raises(ValueError, match=r"packed needs float32 weights on the CPU; got torch.bfloat16"):
        tiny_backbone(precision="bfloat16").optimize(packed=True)


def test_training_after_it_is_training_without_it(backbone):
    twin = tiny_backbone()
    backbone.optimize()
    results = []
    for model in (backbone, twin):
        model.train()
        torch.manual_seed(1)
        optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        features = model.expert(model.prefix(observation(model.variant)))(*zero_queries())
        features.square().mean().backward()
        optimiser.step()
        results.append(model.state_dict())
    for name, value in results[0].items():
        assert torch.equal(value, results[1][name]), name


@pytest.mark.parametrize(("query", "asked"), [("zero", "zeros"), ("zero", "noise"), ("vlm", "zeros")])
def test_fast_training_gives_the_plain_gradients(query, asked):
    actions, noise_time = zero_queries()
    if asked == "noise":
        generator = torch.Generator().manual_seed(0)
        actions, noise_time = (torch.rand(part.shape, generator=generator) for part in (actions, noise_time))
    gradients = []
    for fast in (False, True):
        backbone = tiny_backbone(fast_training=fast, query=query).train()
        for _ in range(2):
            backbone.zero_grad()
            features = backbone.expert(backbone.prefix(observation(backbone.variant)))(actions, noise_time)
            features.square().mean().backward()
        assert (backbone._fast_prefix is not None) == fast
        assert backbone._fast_expert is None
        gradients.append({name: p.grad for name, p in backbone.named_parameters() if p.grad is not None})
    for name, plain in gradients[0].items():
        fast = gradients[1].get(name, torch.zeros_like(plain))
        torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-5 * plain.abs().max().item() + 1e-9)


def test_fast_training_follows_the_weights():
    backbone = tiny_backbone(fast_training=True).train()
    prefix = backbone.prefix(observation(backbone.variant))
    before = backbone.expert(prefix)(*zero_queries())
    with torch.no_grad():
        for weight in backbone.expert_parameters():
            weight.mul_(1.1)
    after = backbone.expert(prefix)(*zero_queries())
    backbone.fast_training = False
    plain = backbone.expert(prefix)(*zero_queries())
    torch.testing.assert_close(after, plain, rtol=1e-5, atol=1e-5 * plain.abs().max().item())
    assert (after - before).abs().max() > 1e-3


def test_a_policy_saves_the_same_checkpoint_and_answers_the_same(tmp_path):
    policy = make_policy().eval()
    batch = make_batch(policy.config, rows=2)
    plain = policy.predict_action_chunk(batch)
    policy.save_pretrained(tmp_path / "plain")
    policy.reset()
    fast = policy.optimize().predict_action_chunk(batch)
    policy.save_pretrained(tmp_path / "fast")
    torch.testing.assert_close(fast, plain, **TIGHT)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "fast"))
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert torch.equal(value, after[name]), name


def test_bfloat16_stays_near():
    backbone = tiny_backbone(precision="bfloat16").eval()
    seen = observation(backbone.variant)
    with torch.autocast("cpu", torch.bfloat16):
        plain = ask(backbone, seen, *zero_queries())
        backbone.optimize()
        fast = ask(backbone, seen, *zero_queries())
    assert (fast - plain).abs().mean() < 0.05 * plain.abs().mean()


def test_int8_is_near_and_not_exact(backbone):
    seen = observation(backbone.variant)
    plain = ask(backbone, seen, *zero_queries())
    backbone.optimize(int8=True)
    error = (ask(backbone, seen, *zero_queries()) - plain).abs().mean() / plain.abs().mean()
    assert 1e-4 < error < 0.15
