"""Speed of the policy against LeRobot's pi05 on the same weights and inputs, interleaved in one run.

    make bench                                                        # tiny, small, and real widths at reduced depth
    .venv/bin/python benchmarks/policy_speed.py --full                # the full size: 20 GiB of memory
    .venv/bin/python benchmarks/policy_speed.py --sizes tiny --rounds 5

The peer is LeRobot as users run it: float32, ten denoising steps, an absent third camera and padded text are computed
and masked. Rows with the peer's tokens already pruned stand beside, so that nobody takes pruning for the head's merit.
At reduced depth our last VLM layer is run whole: stopping after its keys and values saves one layer of 18 at full size,
and would save one of two there. Our weights are packed except at full size, where a second copy has no room. Random
weights. Writes policy_speed_SIZE_THREADS.md and .json.
"""

import argparse
import copy
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from policy_pair import PI05, SIZES, Pair, observation
from timing import Row, interleaved, milliseconds_row, peak_bytes, ratio_row, write
from torch import Tensor
from torch.nn import functional

from lerobot_policy_quantile.backbone import Backbone, Prefix
from lerobot_policy_quantile.backbone.int8 import has_vnni
from lerobot_policy_quantile.core.heads import training_loss

TRAINING_BATCH = 4
FEW_ROUNDS = 2
PARTS = ("difference", "inference", "packed", "int8", "bfloat16", "training")
COPIES = ("packed", "bfloat16", "training")
"""Parts that hold weights twice or train LeRobot's: at full size they take 20 to 60 GB."""


def inference_rows(pair: Pair, rounds: int, wanted: bool) -> list[Row]:
    """Whole chunks and single stages; ours with packed weights where memory has room for a second copy."""
    variant = pair.backbone.variant
    pair.optimize(packed=variant != PI05)
    masked = observation(variant, cameras=2, absent=1, padded=True)
    padded = observation(variant, cameras=2, absent=0, padded=True)
    pruned = observation(variant, cameras=2, absent=0, padded=False)
    prefix = pair.backbone.prefix(pruned)
    ten: dict[str, list[float]] = {"peer": [], "peer pruned": []}
    works: dict[str, Callable[[], object]] = {
        "ours": lambda: pair.chunk(masked),
        "peer": lambda: pair.flow(masked, ten["peer"]),
        "peer padded": lambda: pair.flow(padded),
        "peer pruned": lambda: pair.flow(pruned, ten["peer pruned"]),
        "our prefix": lambda: pair.backbone.prefix(masked),
        "our expert": lambda: pair.decode(prefix),
        "roofline": roofline(pair, len(prefix.valid[0])),
    }
    times = dict(zip(works, interleaved(list(works.values()), rounds), strict=True))
    ten = {who: seconds[1:] for who, seconds in ten.items()}  # the first was the warm-up
    pair.optimize()
    one_step = [whole - 0.9 * steps for whole, steps in zip(times["peer pruned"], ten["peer pruned"], strict=True)]

    def at_least(value: float) -> float | None:
        return value if wanted else None

    return [
        ratio_row(
            "whole chunk, 2 cameras + 1 masked, padded text: LeRobot, ten steps / ours",
            times["peer"],
            times["ours"],
            at_least=at_least(1.9),
        ),
        ratio_row(
            "whole chunk, 2 cameras, padded text: LeRobot, ten steps / ours",
            times["peer padded"],
            times["ours"],
            at_least=at_least(1.4),
        ),
        ratio_row("... LeRobot's tokens already pruned: ten steps / ours", times["peer pruned"], times["ours"]),
        ratio_row("... of this, one step instead of ten (LeRobot / LeRobot)", times["peer pruned"], one_step),
        ratio_row("... and the rest (LeRobot, one step / ours)", one_step, times["ours"]),
        ratio_row(
            "expert only: LeRobot, ten steps / ours, one pass", ten["peer"], times["our expert"], at_least=at_least(12)
        ),
        ratio_row("... LeRobot's tokens already pruned", ten["peer pruned"], times["our expert"]),
        ratio_row("whole chunk / our prefix alone", times["ours"], times["our prefix"]),
        ratio_row(
            "... the same with the rest timed by itself: 1 + expert, head and decoder / our prefix",
            [a + b for a, b in zip(times["our prefix"], times["our expert"], strict=True)],
            times["our prefix"],
            limit=1.02 if wanted else None,
        ),
        ratio_row(
            "matrix products alone / whole chunk (share of the roofline)",
            times["roofline"],
            times["ours"],
            at_least=at_least(0.85),
        ),
        milliseconds_row("ours, whole chunk", times["ours"]),
        milliseconds_row("ours, expert, head and decoder", times["our expert"]),
        milliseconds_row("LeRobot, whole chunk, masked and padded", times["peer"]),
    ]


def roofline(pair: Pair, tokens: int) -> Callable[[], None]:
    """The matrix products of one chunk, attention's among them, and nothing else: what the machine could do at best."""
    v = pair.backbone.variant
    suffix, cameras = pair.backbone.n_prompts + pair.head.chunk_size, 2
    patches = cameras * v.image_tokens
    qkv = (v.heads + 2 * v.kv_heads) * v.head_dim
    inner = v.heads * v.head_dim
    shapes = [(patches, v.vision_width, 3 * v.vision_width), (patches, v.vision_width, v.vision_width)]
    shapes += [(patches, v.vision_width, v.vision_mlp), (patches, v.vision_mlp, v.vision_width)]
    shapes *= v.vision_depth
    vlm_depth = v.depth if pair.reduced else v.depth - 1
    for rows, width, mlp, depth in (
        (tokens, v.vlm_width, v.vlm_mlp, vlm_depth),
        (suffix, v.expert_width, v.expert_mlp, v.depth),
    ):
        shapes += [(rows, width, qkv), (rows, inner, width), (rows, width, 2 * mlp), (rows, mlp, width)] * depth
    # batch, query rows, keys, head size; the query heads of a group are rows of one product
    group = v.heads // v.kv_heads
    looks = [(cameras * v.vision_heads, v.image_tokens, v.image_tokens, v.vision_width // v.vision_heads)]
    looks *= v.vision_depth
    looks += [(v.kv_heads, group * tokens, tokens, v.head_dim)] * vlm_depth
    looks += [(v.kv_heads, group * suffix, tokens + suffix, v.head_dim)] * v.depth
    inputs = {(rows, width): torch.randn(rows, width) for rows, width, _ in shapes}
    weights = {(width, out): torch.randn(out, width) for _, width, out in shapes}
    queries = {look: torch.randn(look[0], look[1], look[3]) for look in looks}
    keys = {look: torch.randn(look[0], look[2], look[3]) for look in looks}

    def run() -> None:
        for rows, width, out in shapes:
            functional.linear(inputs[rows, width], weights[width, out])
        for look in looks:
            scores = torch.bmm(queries[look], keys[look].transpose(1, 2))
            torch.bmm(scores, keys[look])

    return run


def int8_rows(pair: Pair, rounds: int, wanted: bool) -> list[Row]:
    """The approximate mode: its speed with three cameras, and its error."""
    seen = observation(pair.backbone.variant, cameras=3, absent=0, padded=True)
    exact = pair.chunk(seen)
    pair.optimize(int8=True)
    error = ((pair.chunk(seen) - exact).abs().mean() / exact.abs().mean()).item()
    peer, ours = interleaved([lambda: pair.flow(seen), lambda: pair.chunk(seen)], rounds)
    pair.optimize()
    judged = wanted and has_vnni()
    return [
        ratio_row(
            "int8 (approximate), 3 cameras: LeRobot, ten steps / ours", peer, ours, at_least=4.5 if judged else None
        ),
        Row("int8: mean error of the median / mean size", round(100 * error, 2), "%"),
    ]


def bfloat16_rows(pair: Pair, rounds: int) -> list[Row]:
    """LeRobot's own half precision, which needs a CPU made for it."""
    seen = observation(pair.backbone.variant, cameras=2, absent=1, padded=True)
    half = replace(pair, peer=copy.deepcopy(pair.peer))
    half.peer.paligemma_with_expert.to_bfloat16_for_selected_params("bfloat16")
    slow, plain = interleaved([lambda: half.flow(seen), lambda: pair.flow(seen)], min(rounds, FEW_ROUNDS))
    return [ratio_row("LeRobot in bfloat16 / LeRobot in float32, whole chunk", slow, plain)]


def difference_row(pair: Pair) -> Row:
    """The fast path against the plain one, on the same weights."""
    seen = observation(pair.backbone.variant, cameras=2, absent=1, padded=True)
    fast = pair.chunk(seen)
    pair.backbone.fast_training = False
    pair.backbone.train().eval()
    plain = pair.chunk(seen)
    pair.backbone.fast_training = True
    pair.optimize()
    difference = ((fast - plain).abs().max() / plain.abs().max()).item()
    return Row(
        "fast path against plain path, largest difference / largest value", float(f"{difference:.2g}"), "", limit=1e-5
    )


def training_rows(pair: Pair, rounds: int, wanted: bool) -> list[Row]:
    """One step of batch 4 with AdamW: ours with a frozen VLM, with its keys and values given, and LeRobot's."""
    variant = pair.backbone.variant
    seen = observation(variant, cameras=2, absent=1, padded=True, batch=TRAINING_BATCH)
    target = torch.zeros(TRAINING_BATCH, pair.head.chunk_size, 7)
    valid = torch.ones_like(target, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    pair.train()
    trained = [p for p in [*pair.backbone.parameters(), *pair.head.parameters()] if p.requires_grad]
    ours = torch.optim.AdamW(trained, lr=0.0, weight_decay=0.0)
    theirs = torch.optim.AdamW(pair.peer.train().parameters(), lr=0.0, weight_decay=0.0)
    kept = pair.backbone.prefix(seen)
    padded_target = torch.zeros(TRAINING_BATCH, pair.head.chunk_size, pair.backbone.model_dim)

    def step(prefix: Callable[[], Prefix]) -> None:
        ours.zero_grad()
        expert = pair.backbone.expert(prefix(), generator=generator)
        torch.autograd.backward(training_loss(pair.head, expert, target, valid, drop_ratio=0.1, generator=generator))
        ours.step()

    def peer_step() -> None:
        theirs.zero_grad()
        noise, noise_time = torch.randn(padded_target.shape, generator=generator), torch.full((TRAINING_BATCH,), 0.5)
        torch.autograd.backward(pair.peer(*seen, padded_target, noise, noise_time).mean())
        theirs.step()

    works = [lambda: step(lambda: pair.backbone.prefix(seen)), lambda: step(lambda: kept), peer_step]
    whole, cached, peer = interleaved(works, min(rounds, FEW_ROUNDS))
    memory = [peak_bytes(peer_step) + held(theirs), peak_bytes(works[0]) + held(ours)]
    pair.peer.eval()
    pair.optimize()
    return [
        ratio_row(
            "training step, batch 4: LeRobot (all trained) / ours (frozen VLM)",
            peer,
            whole,
            at_least=3.3 if wanted else None,
        ),
        Row(
            "its memory beside the weights: LeRobot / ours",
            round(memory[0] / memory[1], 2),
            "x",
            at_least=5.0 if wanted else None,
        ),
        ratio_row(
            "training step with keys and values given: LeRobot / ours", peer, cached, at_least=50.0 if wanted else None
        ),
    ]


def held(optimiser: torch.optim.Optimizer) -> int:
    """Bytes of an optimiser's state."""
    values = [value for state in optimiser.state.values() for value in state.values() if isinstance(value, Tensor)]
    return sum(value.numel() * value.element_size() for value in values)


def packed_rows(pair: Pair, rounds: int) -> list[Row]:
    """The exact path on a second, packed copy of the weights, beside the path without it."""
    seen = observation(pair.backbone.variant, cameras=2, absent=1, padded=True)
    paths = {}
    for packed in (False, True):
        pair.optimize(packed=packed)
        paths[packed] = pair.backbone._fast_prefix, pair.backbone._fast_expert

    def on(packed: bool) -> Tensor:
        pair.backbone._fast_prefix, pair.backbone._fast_expert = paths[packed]
        return pair.chunk(seen)

    plain, fast = interleaved([lambda: on(False), lambda: on(True)], rounds)
    difference = ((on(True) - on(False)).abs().max() / on(False).abs().max()).item()
    pair.optimize()
    return [
        ratio_row("packed weights (a second copy): whole chunk without / with", plain, fast),
        Row("packed weights: largest difference / largest value", float(f"{difference:.2g}"), "", limit=1e-5),
    ]


def measure(name: str, chunk_size: int, rounds: int, threads: int, parts: list[str]) -> list[Row]:
    """The rows of a size, told as they come."""
    torch.set_num_threads(threads)
    pair = Pair.of(SIZES[name], chunk_size)
    wanted = name in ("widths", "full")
    makers: dict[str, Callable[[], list[Row]]] = {
        "difference": lambda: [difference_row(pair)],
        "inference": lambda: inference_rows(pair, rounds, wanted),
        "packed": lambda: packed_rows(pair, rounds),
        "int8": lambda: int8_rows(pair, rounds, wanted),
        "bfloat16": lambda: bfloat16_rows(pair, rounds),
        "training": lambda: training_rows(pair, rounds, wanted),
    }
    rows = []
    for part in parts:
        print(f"{name}, {threads} thread(s): {part} ...", file=sys.stderr, flush=True)
        new = makers[part]()
        for row in new:
            print(f"  {row.what}: {row.measured:g} {row.unit} ({row.spread})", file=sys.stderr, flush=True)
        rows += new
    return rows


def setting_of(name: str, chunk_size: int, rounds: int, threads: int) -> dict[str, object]:
    """What the rows were measured with."""
    with torch.device("meta"):
        parameters = sum(p.numel() for p in Backbone(SIZES[name]).parameters()) / 1e6
    setting: dict[str, object] = {"size": SIZES[name].name, "million parameters": round(parameters, 1)}
    setting |= {"chunk": chunk_size, "threads": threads, "rounds": rounds, "torch": torch.__version__}
    setting["our weights"] = "as they are" if SIZES[name] == PI05 else "packed, training excepted"
    instructions = torch.backends.cpu.get_cpu_capability() + (" with VNNI" if has_vnni() else " without VNNI")
    return setting | {"machine": platform.machine(), "instructions": instructions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", default="tiny,small,widths", help=f"of {', '.join(SIZES)} (default tiny,small,widths)"
    )
    parser.add_argument("--chunk", type=int, default=50, help="steps per chunk (default 50, LeRobot's)")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved repetitions (default 7)")
    parser.add_argument(
        "--threads", default=f"1,{os.cpu_count()}", help="torch threads, one table each (default 1 and all)"
    )
    parser.add_argument("--full", action="store_true", help="the full size only, without training steps")
    parser.add_argument(
        "--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)} (default all; --full: not {', '.join(COPIES)})"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder of the tables")
    arguments = parser.parse_args()
    sizes = ["full"] if arguments.full else arguments.sizes.split(",")
    parts = arguments.parts.split(",")
    for field, given, known in (("--sizes", sizes, SIZES), ("--parts", parts, PARTS)):
        if unknown := [word for word in given if word not in known]:
            parser.error(f"{field} must be of {', '.join(known)}; got {', '.join(unknown)}")
    if arguments.rounds < 2:
        parser.error(f"--rounds must be at least 2; got {arguments.rounds}")
    failed = 0
    for size in sizes:
        for threads in dict.fromkeys(int(text) for text in arguments.threads.split(",")):
            possible = [part for part in parts if size != "full" or part not in COPIES]
            settings = size, arguments.chunk, arguments.rounds, threads
            path = arguments.out / f"policy_speed_{size}_{threads}"
            title = "Speed of the policy against LeRobot's pi05"
            failed |= write(path, title, measure(*settings, possible), setting_of(*settings))
    sys.exit(failed)


if __name__ == "__main__":
    main()
