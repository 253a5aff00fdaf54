"""Shows that the full-size pi0.5 with our head is real: build, run on both paths, save in shards, reload, train a step.

    python scripts/fullsize.py [--variant pi05] [--folder runs/fullsize] [--keep] [--no-train]

Random weights, float32, no GPU. Each phase is a process of its own, so each has its own peak memory.
Needs 20 GiB of free memory and 14 GB of disk at full size.
"""

import argparse
import multiprocessing
import resource
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

import psutil
import torch
from huggingface_hub import save_torch_state_dict
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lerobot_policy_quantile.backbone import VARIANTS, Backbone, BackboneInputs, Variant
from lerobot_policy_quantile.backbone.memory import TrainingMemory, TrainingShape, training_memory
from lerobot_policy_quantile.backbone.towers import Precision
from lerobot_policy_quantile.backbone.weights import load_own_weights
from lerobot_policy_quantile.core.episode import episodes_from_seeds
from lerobot_policy_quantile.core.heads import QuantileHead, training_loss

CHUNK, ACTION_DIM, CAMERAS = 10, 7, 2
SHARD_SIZE = "2GB"
GIB = 2**30
LOADING_BOUND = 1.15
"""Peak memory while loading, in units of the weights."""
FAST_BOUND = 1e-5
"""Largest difference between fast and plain path, relative to the largest value."""


@dataclass(frozen=True)
class Phase:
    """What one process did."""

    name: str
    seconds: float
    peak_bytes: int
    note: str


class Model(nn.Module):
    """Backbone and quantile head under one state dict."""

    def __init__(self, variant: Variant, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.backbone = Backbone(variant)
        self.head = QuantileHead(self.backbone.expert_width, CHUNK, ACTION_DIM, self.backbone.model_dim)
        nn.init.normal_(self.head.gap_projection.weight, std=0.02)  # so that a lost gap projection shows

    @torch.no_grad()
    def chunk(self) -> Tensor:
        """Quantiles of one fixed observation, in one expert pass."""
        self.eval()
        expert = self.backbone.expert(self.backbone.prefix(observation(self.backbone.variant)))
        prediction = self.head.predict(expert, episodes_from_seeds([0]))
        if prediction.quantiles is None:
            raise TypeError("the quantile head returned no quantiles")
        return prediction.quantiles.quantiles


def observation(variant: Variant) -> BackboneInputs:
    """One sample: two cameras and a full text buffer."""
    generator = torch.Generator().manual_seed(0)
    size, text = variant.image_size, variant.max_token_length
    images = [torch.rand(1, 3, size, size, generator=generator) * 2 - 1 for _ in range(CAMERAS)]
    tokens = torch.randint(0, variant.vocab_size, (1, text), generator=generator)
    seen = [torch.ones(1, dtype=torch.bool)] * CAMERAS
    return BackboneInputs(images, seen, tokens, torch.ones(1, text, dtype=torch.bool))


def build_run_save(variant: Variant, folder: Path) -> str:
    """Random weights, one chunk, shards on disk."""
    model = Model(variant, seed=1)
    started = time.perf_counter()
    quantiles = model.chunk()
    seconds = time.perf_counter() - started
    fast = fast_note(model, quantiles)
    save_file({"quantiles": quantiles}, folder / "chunk.safetensors")
    save_torch_state_dict(model.state_dict(), folder / "shards", max_shard_size=SHARD_SIZE)
    files = list((folder / "shards").glob("*.safetensors"))
    stored = sum(file.stat().st_size for file in files) / 1e9
    count = sum(p.numel() for p in model.parameters()) / 1e9
    return f"{count:.3f} B parameters; chunk in {seconds:.1f} s; {fast}; {len(files)} shards, {stored:.1f} GB"


def fast_note(model: Model, plain: Tensor) -> str:
    """The same chunk on the fast path: how long, and how far from the plain one."""
    model.backbone.optimize()
    model.chunk()
    started = time.perf_counter()
    fast = model.chunk()
    seconds = time.perf_counter() - started
    difference = float((fast - plain).abs().max() / plain.abs().max())
    if difference > FAST_BOUND:
        raise ValueError(f"the fast path differs by {difference:.1e} of the largest value, above {FAST_BOUND:g}")
    return f"on the fast path {seconds:.1f} s, differs by {difference:.1e} of the largest value"


def reload_run(variant: Variant, folder: Path) -> str:
    """Other random weights, then those on disk: the chunk must be the stored one, bit for bit."""
    model = Model(variant, seed=2)
    load_own_weights(model, folder / "shards")
    loading = loading_note(sum(p.numel() * p.element_size() for p in model.parameters()), peak_bytes())
    stored, now = load_file(folder / "chunk.safetensors")["quantiles"], model.chunk()
    if not torch.equal(stored, now):
        raise ValueError(f"the reloaded chunk differs by up to {(stored - now).abs().max():.3g}")
    return f"{loading}; same chunk, bit for bit, {tuple(now.shape)}"


def loading_note(weights: int, peak: int) -> str:
    """Peak memory of a process that has loaded weights, libraries included; too much is an error where weights lead."""
    ratio = peak / weights
    if weights > GIB and ratio > LOADING_BOUND:
        raise ValueError(f"loading took {ratio:.2f} times the memory of the weights, above {LOADING_BOUND}")
    return f"loading peaked at {ratio:.2f} times the weights"


def peak_bytes() -> int:
    """Most memory this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def train_step(variant: Variant, _: Path) -> str:
    """One AdamW step with a frozen VLM, batch 1."""
    model = Model(variant, seed=1).train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=2.5e-5)
    generator = torch.Generator().manual_seed(0)
    expert = model.backbone.expert(model.backbone.prefix(observation(variant)), generator=generator)
    target = torch.zeros(1, CHUNK, ACTION_DIM)
    valid = torch.ones_like(target, dtype=torch.bool)
    loss = training_loss(model.head, expert, target, valid, drop_ratio=0.1, generator=generator)
    torch.autograd.backward(loss)
    optimiser.step()
    computed = training_memory(shape_of(variant, batch=1))
    return f"loss {loss.item():.4f}, {len(trained)} trained tensors; computed {computed.total / GIB:.1f} GiB"


def shape_of(variant: Variant, batch: int) -> TrainingShape:
    """A training step of this script, in single precision."""
    return TrainingShape(variant, batch, CAMERAS, chunk_size=CHUNK, action_dim=ACTION_DIM)


def require_memory(name: str, needed: int) -> None:
    """Refuse a phase that would push this machine out of memory."""
    available = psutil.virtual_memory().available
    if available < needed:
        raise MemoryError(f"{name!r} needs {needed / GIB:.1f} GiB of free memory; {available / GIB:.1f} GiB are free")


def run_phase(name: str, work: Callable[[Variant, Path], str], variant: Variant, folder: Path) -> Phase:
    """Time, peak resident memory and note of one phase; runs inside the phase's process."""
    started = time.perf_counter()
    note = work(variant, folder)
    return Phase(name, time.perf_counter() - started, peak_bytes(), note)


def phase_table(variant: Variant, phases: list[Phase]) -> Table:
    """Measured: one row per process."""
    table = Table("phase", "seconds", "peak GiB", "", title=f"{variant.name}, float32, measured")
    for phase in phases:
        table.add_row(phase.name, f"{phase.seconds:.0f}", f"{phase.peak_bytes / GIB:.1f}", phase.note)
    return table


def memory_table(variant: Variant) -> Table:
    """Computed: one row per way to train."""
    ways: list[tuple[int, Precision, bool]] = [
        (1, "float32", False),
        (32, "float32", False),
        (32, "float32", True),
        (32, "bfloat16", False),
        (128, "bfloat16", True),
    ]
    parts = [part.name.replace("_", " ") for part in fields(TrainingMemory)]
    title = f"{variant.name}, training with a frozen VLM, computed, GiB per process"
    table = Table("batch", "VLM", "checkpointing", *parts, "total", title=title)
    for batch, precision, checkpointing in ways:
        shape = replace(shape_of(variant, batch), precision=precision, gradient_checkpointing=checkpointing)
        memory = training_memory(shape)
        gib = [f"{part / GIB:.2f}" for part in astuple(memory)]
        table.add_row(str(batch), precision, "yes" if checkpointing else "no", *gib, f"{memory.total / GIB:.1f}")
    return table


def main() -> None:
    """Run the phases and print two tables."""
    parser = argparse.ArgumentParser(description="Build, run, save, reload and train the full-size backbone.")
    parser.add_argument("--variant", choices=list(VARIANTS), default="pi05")
    parser.add_argument("--folder", type=Path, default=Path("runs/fullsize"))
    parser.add_argument("--keep", action="store_true", help="keep the shards afterwards")
    parser.add_argument("--no-train", action="store_true", help="leave out the training step (17 GiB at full size)")
    arguments = parser.parse_args()
    variant, folder = VARIANTS[arguments.variant], arguments.folder
    (folder / "shards").mkdir(parents=True, exist_ok=True)
    work: dict[str, Callable[[Variant, Path], str]] = {"build, run, save": build_run_save, "reload, run": reload_run}
    if not arguments.no_train:
        work["one training step"] = train_step
    held = training_memory(shape_of(variant, batch=1))
    weights = held.frozen_weights + held.trained_weights
    needed = {"one training step": held.total + GIB}  # libraries and working space
    console = Console(width=160)
    phases = []
    fresh = multiprocessing.get_context("spawn")
    try:
        for name, task in work.items():
            require_memory(name, needed.get(name, weights + 2 * GIB))
            console.print(f"{name} ...")
            # A pool of its own: leaving it waits until the process has given its memory back.
            with ProcessPoolExecutor(max_workers=1, mp_context=fresh) as pool:
                phases.append(pool.submit(run_phase, name, task, variant, folder).result())
    except MemoryError as refusal:
        sys.exit(f"{refusal}; close other programs, or leave the training step out with --no-train")
    finally:  # what was measured is shown even when a later phase is refused
        console.print(phase_table(variant, phases))
        console.print(memory_table(variant))
        if not arguments.keep:
            shutil.rmtree(folder / "shards")
            (folder / "chunk.safetensors").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
