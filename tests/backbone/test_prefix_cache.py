"""What the cache gives back is what the VLM said; what it was not made from is refused."""

import json
import multiprocessing
from dataclasses import replace

import pytest
import torch

from lerobot_policy_quantile.backbone.attention import KeyValue, Prefix
from lerobot_policy_quantile.backbone.fingerprints import row_digests, weights_digest
from lerobot_policy_quantile.backbone.prefix_cache import FACTS, ROWS, PrefixCache, Shape, stored_shape
from tests.backbone.samples import BATCH, CHUNK, MODEL_DIM, observation, tiny_backbone

FRAMES = 40
PLACES = [7, 0, 31]


@pytest.fixture(scope="module")
def backbone():
    return tiny_backbone().eval()


@pytest.fixture(scope="module")
def prefix(backbone):
    """Texts of different lengths; sample 1 has a camera less."""
    return backbone.prefix(observation(backbone.variant))


@pytest.fixture
def shape(backbone, prefix):
    variant = backbone.variant
    tokens = 2 * variant.image_tokens + variant.max_token_length
    return Shape(variant.depth, variant.kv_heads, tokens, variant.head_dim, prefix.pooled.shape[1], torch.float32)


def digests(variant):
    images, _, tokens, valid = observation(variant)
    return row_digests([*images, tokens, valid]).tolist()


def features(backbone, prefix):
    with torch.no_grad():
        return backbone.expert(prefix)(torch.zeros(len(prefix.valid), CHUNK, MODEL_DIM), torch.zeros(BATCH))


@pytest.mark.parametrize("kept", ["memory", "folder"])
def test_the_expert_says_the_same_of_a_kept_prefix(backbone, prefix, shape, kept, tmp_path):
    def opened():
        return (
            PrefixCache.in_memory(shape, FRAMES)
            if kept == "memory"
            else PrefixCache.in_folder(tmp_path / "cache", shape, FRAMES, {"weights": "a"})
        )

    cache = opened()
    assert cache.unseen(PLACES, digests(backbone.variant)) == [0, 1, 2]
    cache.put(PLACES, digests(backbone.variant), prefix)
    assert stored_shape(tmp_path / "cache") == (shape if kept == "folder" else None)
    cache = opened() if kept == "folder" else cache  # another run
    assert len(cache) == BATCH
    assert cache.unseen([1, *PLACES], [0, *digests(backbone.variant)]) == [0]
    again = cache.get(PLACES)
    assert again.lengths.tolist() == prefix.lengths.tolist()
    assert again.valid.shape[1] == prefix.lengths.max(), "padding is not kept"
    assert torch.equal(again.pooled, prefix.pooled)
    plain = features(backbone, prefix)
    torch.testing.assert_close(features(backbone, again), plain, rtol=1e-5, atol=1e-5 * plain.abs().max().item())
    mixed = cache.get(PLACES[::-1])
    torch.testing.assert_close(
        features(backbone, mixed), plain.flip(0), rtol=1e-5, atol=1e-5 * plain.abs().max().item()
    )


def test_half_precision_is_kept_bit_for_bit(prefix, shape):
    half = replace(prefix, layers=tuple(type(p)(*(t.bfloat16() for t in p)) for p in prefix.layers))
    cache = PrefixCache.in_memory(replace(shape, dtype=torch.bfloat16), FRAMES)
    cache.put(PLACES, [0] * BATCH, half)
    again = cache.get(PLACES)
    for row, there in enumerate(prefix.valid):
        for kept, given in zip(again.layers, half.layers, strict=True):
            assert torch.equal(kept.keys[row][:, again.valid[row]], given.keys[row][:, there])
            assert torch.equal(kept.values[row][:, again.valid[row]], given.values[row][:, there])


@pytest.mark.parametrize("change", ["weights", "frames", "tokens"])
def test_a_cache_of_something_else_is_refused(shape, change, tmp_path):
    PrefixCache.in_folder(tmp_path, shape, FRAMES, {"weights": "a"})
    with pytest.raises(ValueError, match=rf"prefix cache .* is stale \({change} was"):
        PrefixCache.in_folder(
            tmp_path,
            replace(shape, tokens=9) if change == "tokens" else shape,
            FRAMES + (change == "frames"),
            {"weights": "b" if change == "weights" else "a"},
        )


def test_a_frame_that_looks_different_is_refused(backbone, prefix, shape):
    cache = PrefixCache.in_memory(shape, FRAMES)
    cache.put(PLACES, digests(backbone.variant), prefix)
    changed = [digests(backbone.variant)[0], 7]
    with pytest.raises(ValueError, match="frame 0 is not what the prefix cache holds"):
        cache.unseen(PLACES[:2], changed)
    with pytest.raises(ValueError, match=r"index must lie in 0\.\.39, the frames of the cache; got 40"):
        cache.unseen([FRAMES], changed[:1])


def test_untouched_rows_take_no_disk(prefix, shape, tmp_path):
    cache = PrefixCache.in_folder(tmp_path, shape, 10_000, {})
    cache.put([9_999], [0], prefix)
    whole, used = (tmp_path / ROWS).stat().st_size, (tmp_path / ROWS).stat().st_blocks * 512
    assert whole == 10_000 * shape.row.itemsize
    assert used < 4 * shape.row.itemsize
    assert (tmp_path / FACTS).is_file()


def test_digests_see_every_part_of_a_row_and_every_weight(backbone):
    images, _, tokens, valid = observation(backbone.variant)
    before = row_digests([*images, tokens, valid]).tolist()
    assert len(set(before)) == BATCH
    for part in (images[1], tokens, valid):
        changed = part.clone()
        changed[1].view(-1)[3] = ~changed[1].view(-1)[3] if part is valid else changed[1].view(-1)[3] + 1
        after = row_digests([changed if p is part else p for p in (*images, tokens, valid)]).tolist()
        assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]
    weights = [torch.randn(3, 4), torch.tensor(1.0)]
    first = weights_digest(weights)
    weights[1] += 1
    assert weights_digest(weights) != first
    assert weights_digest([w.bfloat16() for w in weights]) != first


# --- several processes -------------------------------------------------------------------------

PROCESSES, OPENINGS = 4, 25


def open_and_fill(folders, shape, me, start, failures):
    """In each of many folders: open together with the others, then keep one row."""
    torch.set_num_threads(1)
    keys = torch.full((1, shape.kv_heads, 5, shape.head_size), float(me))
    said = Prefix((KeyValue(keys, keys),) * shape.layers, torch.ones(1, 5, dtype=torch.bool), torch.zeros(1, 0))
    for folder in folders:
        start.wait()
        try:
            PrefixCache.in_folder(folder, shape, PROCESSES, {"weights": "a"}).put([me], [me], said)
        except Exception as error:
            failures.put(f"process {me} in {folder.name}: {error!r}")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_processes_that_open_one_folder_together_keep_every_row(tmp_path):
    """As the ranks of a distributed run do at their first step."""
    small = Shape(layers=2, kv_heads=1, tokens=8, head_size=16, pooled=0, dtype=torch.float32)
    folders = [tmp_path / f"cache{number}" for number in range(OPENINGS)]
    fork = multiprocessing.get_context("fork")
    start, failures = fork.Barrier(PROCESSES, timeout=60), fork.Queue()
    crew = [fork.Process(target=open_and_fill, args=(folders, small, me, start, failures)) for me in range(PROCESSES)]
    for process in crew:
        process.start()
    for process in crew:
        process.join(timeout=60)
    assert failures.empty(), failures.get()
    assert [process.exitcode for process in crew] == [0] * PROCESSES
    for folder in folders:
        cache = PrefixCache.in_folder(folder, small, PROCESSES, {"weights": "a"})
        assert len(cache) == PROCESSES
        assert cache.get(range(PROCESSES)).layers[0].keys[:, 0, 0, 0].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_folder_with_other_fingerprints_is_refused(shape, tmp_path):
    """As earlier versions made them."""
    PrefixCache.in_folder(tmp_path, shape, FRAMES, {})
    facts = json.loads((tmp_path / FACTS).read_text())
    del facts["digest"]
    (tmp_path / FACTS).write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=r"is stale \(digest was None, is multilinear-64\)"):
        PrefixCache.in_folder(tmp_path, shape, FRAMES, {})


def test_a_cut_file_is_refused(shape, tmp_path):
    PrefixCache.in_folder(tmp_path, shape, FRAMES, {})
    with (tmp_path / ROWS).open("r+b") as file:
        file.truncate(100)
    with pytest.raises(ValueError, match=r"is stale \(bytes was 100, is"):
        PrefixCache.in_folder(tmp_path, shape, FRAMES, {})


def test_a_folder_whose_maker_was_killed_is_made_anew(shape, prefix, tmp_path):
    """Rows without facts: nobody can have opened them."""
    (tmp_path / ROWS).write_bytes(b"half")
    cache = PrefixCache.in_folder(tmp_path, shape, FRAMES, {})
    cache.put(PLACES, [0] * BATCH, prefix)
    assert len(PrefixCache.in_folder(tmp_path, shape, FRAMES, {})) == BATCH
