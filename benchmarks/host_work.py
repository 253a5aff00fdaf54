"""What the host does in a training step, and what reading a kept prefix costs: milliseconds on this CPU, one thread.

    python benchmarks/host_work.py [--batch 64]

Waits for a GPU are counted, not timed: `pytest tests/test_gpu.py`.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from lerobot_policy_quantile.backbone import VARIANTS
from lerobot_policy_quantile.backbone.attention import KeyValue, Prefix
from lerobot_policy_quantile.backbone.fingerprints import row_digests
from lerobot_policy_quantile.backbone.prefix_cache import PrefixCache, Shape
from lerobot_policy_quantile.policy.label_noise import keep_labels

ROUNDS = 9
CHUNK, ACTION_DIM, RATIO = 50, 7, 0.1
ROWS, CAMERAS, TEXT = 8, 2, 60


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch", type=int, default=64)
    batch = parser.parse_args().batch
    torch.set_num_threads(1)
    valid = torch.ones(batch, CHUNK, ACTION_DIM, dtype=torch.bool)
    frames = torch.randint(300_000, (batch,)).tolist()
    drop = milliseconds(lambda: keep_labels(valid, RATIO, run=1, forward=2, frames=frames))
    print(f"labels dropped, batch {batch}: {drop:.2f} ms per step")
    pi05 = VARIANTS["pi05"]
    images = [torch.rand(ROWS, 3, pi05.image_size, pi05.image_size) for _ in range(CAMERAS)]
    tokens = torch.randint(1000, (ROWS, pi05.max_token_length))
    said = full_size_prefix()
    digests = row_digests([*images, tokens]).tolist()
    look = milliseconds(lambda: row_digests([*images, tokens])) / ROWS
    print(f"fingerprint of {CAMERAS} cameras and a text: {look:.2f} ms per frame")
    bytes_per_frame = sum(part[0].numel() * part.element_size() for layer in said.layers for part in layer)
    source = torch.empty(bytes_per_frame * ROWS, dtype=torch.uint8)
    target = torch.empty_like(source)
    copy = milliseconds(lambda: target.copy_(source)) / ROWS
    print(f"bare copy of {bytes_per_frame / 1e6:.0f} MB: {copy:.2f} ms per frame")
    with tempfile.TemporaryDirectory() as folder:
        for place, cache in kept(said, Path(folder)):
            cache.put(range(ROWS), digests, said)
            read = milliseconds(partial(cache.get, range(ROWS))) / ROWS
            print(f"kept prefix from {place}: {read:.2f} ms per frame")


def full_size_prefix() -> Prefix:
    pi05 = VARIANTS["pi05"]
    tokens = CAMERAS * pi05.image_tokens + TEXT
    size = (ROWS, pi05.kv_heads, tokens, pi05.head_dim)
    layers = tuple(KeyValue(torch.randn(size), torch.randn(size)) for _ in range(pi05.depth))
    return Prefix(layers, torch.ones(ROWS, tokens, dtype=torch.bool), torch.zeros(ROWS, 0))


def kept(said: Prefix, folder: Path) -> list[tuple[str, PrefixCache]]:
    pi05 = VARIANTS["pi05"]
    tokens = CAMERAS * pi05.image_tokens + pi05.max_token_length
    shape = Shape(pi05.depth, pi05.kv_heads, tokens, pi05.head_dim, 0, said.layers[0].keys.dtype)
    return [
        ("memory", PrefixCache.in_memory(shape, ROWS)),
        ("a folder", PrefixCache.in_folder(folder, shape, ROWS, {})),
    ]


def milliseconds(act: Callable[[], object]) -> float:
    """The fastest of some rounds: others share this machine."""
    spent = []
    for _round in range(ROUNDS):
        began = time.perf_counter()
        act()
        spent.append(time.perf_counter() - began)
    return 1000 * min(spent)


if __name__ == "__main__":
    main()
