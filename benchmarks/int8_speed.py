"""The 8-bit products of `backbone/int8.py` against those of torch's libraries, on the layers of the full-size model.

    python benchmarks/int8_speed.py [--threads 1] [--rounds 7] [--compile]

One layer's products of a tower at a time, interleaved; rows of three cameras, 60 text tokens, 16 prompts and a chunk of
50. torchao takes part where it is installed (`pip install torchao`), compiled with --compile. Errors are means over the
mean size of the exact product; inputs are normal, with four features eight times as large, as transformers have them.
"""

import argparse
import importlib
import platform
import statistics
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from timing import Row, interleaved, milliseconds_row, ratio_row, write
from torch import Tensor, nn

from lerobot_policy_quantile.backbone import VARIANTS
from lerobot_policy_quantile.backbone.int8 import has_vnni, int8_linear
from lerobot_policy_quantile.backbone.linear import Linear, exact_linear

PI05 = VARIANTS["pi05"]


@dataclass(frozen=True)
class Tower:
    """How many rows a tower sees, and the (in, out) sizes of one layer's products."""

    rows: int
    sizes: tuple[tuple[int, int], ...]

    @classmethod
    def gemma(cls, rows: int, width: int, mlp: int) -> "Tower":
        """The VLM's or the expert's, products of one input fused."""
        inner = PI05.heads * PI05.head_dim
        qkv = inner + 2 * PI05.kv_heads * PI05.head_dim
        return cls(rows, ((width, qkv), (inner, width), (width, 2 * mlp), (mlp, width)))

    @classmethod
    def siglip(cls, rows: int, width: int, mlp: int) -> "Tower":
        """The vision tower's."""
        return cls(rows, ((width, 3 * width), (width, width), (width, mlp), (mlp, width)))


_IMAGES = 3 * PI05.image_tokens
TOWERS = {
    "SigLIP": Tower.siglip(_IMAGES, PI05.vision_width, PI05.vision_mlp),
    "VLM": Tower.gemma(_IMAGES + 60, PI05.vlm_width, PI05.vlm_mlp),
    "expert": Tower.gemma(16 + 50, PI05.expert_width, PI05.expert_mlp),
}


def torch_ao(weight: Tensor) -> Linear:
    """torch.ao's dynamic module on the same engine as ours; it always halves the range of the activations."""
    from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic

    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "onednn"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces the end of torch.ao.quantization
            return quantize_dynamic(_module(weight), {nn.Linear: per_channel_dynamic_qconfig})  # type: ignore[no-any-return, no-untyped-call]
    finally:
        torch.backends.quantized.engine = before


def torchao(weight: Tensor) -> Linear:
    """torchao: one scale per row of the activations."""
    library = importlib.import_module("torchao.quantization")
    module = _module(weight)
    library.quantize_(module, library.Int8DynamicActivationInt8WeightConfig())
    return module


def _module(weight: Tensor) -> nn.Module:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight.clone(), requires_grad=False)
    return nn.Sequential(linear).eval()


def makers(compiled: bool) -> dict[str, Callable[[Tensor], Linear]]:
    """Ways to multiply, by name."""
    found: dict[str, Callable[[Tensor], Linear]] = {
        "float32": lambda weight: exact_linear(weight, None),
        "ours": lambda weight: int8_linear(weight, None),
        "torch.ao": torch_ao,
    }
    if find_spec("torchao"):
        found["torchao"] = torchao
        if compiled:
            found["torchao, compiled"] = lambda weight: torch.compile(torchao(weight))
    return found


@torch.no_grad()
def tower_rows(name: str, rounds: int, compiled: bool) -> list[Row]:
    """One layer's products in every way: seconds against ours, and errors."""
    torch.compiler.reset()  # each tower has shapes of its own, and torch compiles eight at most
    draw, tower = torch.Generator().manual_seed(0), TOWERS[name]
    weights = [torch.randn(out, width, generator=draw) * width**-0.5 for width, out in tower.sizes]
    inputs = [torch.randn(tower.rows, width, generator=draw) for width, _ in tower.sizes]
    for x in inputs:
        x[:, :4] *= 8

    def run(products: list[Linear]) -> list[Tensor]:
        return [product(x) for product, x in zip(products, inputs, strict=True)]

    ways = {way: [make(weight) for weight in weights] for way, make in makers(compiled).items()}
    times = dict(zip(ways, interleaved([partial(run, products) for products in ways.values()], rounds), strict=True))
    exact = run(ways["float32"])
    table = [milliseconds_row(f"{name}: ours, one layer", times["ours"])]
    for way, products in ways.items():
        if way != "ours":
            table.append(ratio_row(f"{name}: {way} / ours", times[way], times["ours"]))
        if way != "float32":
            error = statistics.mean(mean_error(y, e) for y, e in zip(run(products), exact, strict=True))
            table.append(Row(f"{name}: {way}, mean error / mean size", round(100 * error, 2), "%"))
    return table


def mean_error(approximate: Tensor, exact: Tensor) -> float:
    """Of an output, in units of its mean size."""
    return float((approximate - exact).abs().mean() / exact.abs().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default 1)")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved repetitions (default 7)")
    parser.add_argument("--compile", action="store_true", help="torchao through torch.compile as well")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder of the table")
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error(f"--rounds must be at least 2; got {arguments.rounds}")
    torch.set_num_threads(arguments.threads)
    rows = [row for name in TOWERS for row in tower_rows(name, arguments.rounds, arguments.compile)]
    setting: dict[str, object] = {"threads": arguments.threads, "rounds": arguments.rounds, "torch": torch.__version__}
    instructions = torch.backends.cpu.get_cpu_capability() + (" with VNNI" if has_vnni() else " without VNNI")
    setting |= {"machine": platform.machine(), "instructions": instructions}
    sys.exit(write(arguments.out / "int8_speed", "8-bit products against torch's libraries", rows, setting))


if __name__ == "__main__":
    main()
