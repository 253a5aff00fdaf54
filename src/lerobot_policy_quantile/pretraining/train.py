"""The trainer: AdamW, warm-up and cosine, an average of the weights, a log line now and then, exact resume.

With several processes each computes its part of every batch on one core and gradients are averaged: processes wait for
each other once per update, threads would several times per layer.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from lerobot_policy_quantile.policy.base_checkpoint import base_statistics
from lerobot_policy_quantile.policy.schedule import warmup_cosine
from lerobot_policy_quantile.pretraining.batches import Batches, without_shared_padding
from lerobot_policy_quantile.pretraining.gate import suite_errors, target_error
from lerobot_policy_quantile.pretraining.generate import suite_files
from lerobot_policy_quantile.pretraining.joint_batches import JointBatches, SuiteBatches
from lerobot_policy_quantile.pretraining.ranges import statistics_of
from lerobot_policy_quantile.pretraining.samples import Samples
from lerobot_policy_quantile.pretraining.student import DIRECT, VARIANT, Student, StudentRecipe, base_config, processors
from lerobot_policy_quantile.pretraining.suite_samples import SuiteSamples
from lerobot_policy_quantile.util.processes import end_with_parent

LOG, PROGRESS = "training.jsonl", "progress.pt"
CLIP = 1.0


@dataclass(frozen=True)
class TrainingBudget:
    """How long, and how."""

    updates: int
    batch: int = 64
    rate: float = 1e-3
    warmup: int = 150
    final_fraction: float = 0.02
    average: float = 0.997  # of the weights, per update
    weight_decay: float = 0.01
    log_every: int = 25
    save_every: int = 100
    recipe: StudentRecipe = DIRECT
    suite_share: float = 0.0  # of a batch: samples of LIBERO's suites
    start: str | None = None  # folder of a checkpoint to go on from; None: random weights

    def rate_at(self, update: int) -> float:
        """Linear up to the last step of the warm-up, cosine down."""
        return warmup_cosine(
            update,
            warmup_steps=self.warmup,
            total_steps=self.updates,
            final_fraction=self.final_fraction,
            peak=self.rate,
            peak_step=self.warmup - 1,
        )


def start_statistics(folder: Path) -> dict[str, dict[str, Any]]:
    """Ranges of a checkpoint to go on from: its VLM reads states in them."""
    found = base_statistics(base_config(freeze_vlm=False), folder)
    return {feature: {end: values.numpy() for end, values in ends.items()} for feature, ends in found.items()}


Watcher = Callable[[int, dict[str, float]], None]


def load_split(folder: Path, split: str) -> Samples:
    """All shards of a split, in the order of their names."""
    files = sorted(folder.glob(f"{split}-*-[0-9]*.npz"))
    files = [file for file in files if ".part" not in file.name]
    if not files:
        raise ValueError(f"data folder must hold shards of split {split}; got none in {folder}")
    return Samples.join([Samples.load(file) for file in files])


def load_suites(folder: Path, split: str) -> SuiteSamples:
    """All shards of LIBERO's suites, in the order of their names."""
    files = [file for file in sorted(folder.glob(f"{suite_files(split)}-*.npz")) if ".part" not in file.name]
    if not files:
        raise ValueError(f"data folder must hold shards of LIBERO's suites, split {split}; got none in {folder}")
    return SuiteSamples.load_all(files)


class Trainer:
    """One process of a training run."""

    def __init__(self, data: Path, out: Path, budget: TrainingBudget, seed: int, rank: int = 0, world: int = 1) -> None:
        if budget.batch % world:
            raise ValueError(f"batch must be a multiple of the {world} processes; got {budget.batch}")
        self.out, self.budget, self.seed, self.rank, self.world = out, budget, seed, rank, world
        self.samples = samples = load_split(data, "train")
        self.suites = load_suites(data, "train") if budget.suite_share else None
        start = None if budget.start is None else Path(budget.start)
        self.statistics = statistics_of(samples, self.suites) if start is None else start_statistics(start)
        before, self.after = processors(self.statistics)
        before = without_shared_padding(before)
        side = VARIANT.image_size // VARIANT.patch_size
        self.batches: Batches | JointBatches = Batches(samples, before, side)
        self.held_out = Batches(held := load_split(data, "held_out"), before, side)
        self.held_out_samples = held
        self.held_out_suites: tuple[SuiteBatches, SuiteSamples] | None = None
        if self.suites is not None:
            self.batches = JointBatches(samples, self.suites, before, side, budget.suite_share)
            unseen = load_suites(data, "held_out")
            self.held_out_suites = SuiteBatches(unseen, before, side), unseen
        self.student = Student(seed, budget.recipe)
        if start is not None:
            self.student.start_from(start)
        self.parameters: list[Tensor] = [p for p in self.student.parameters() if p.requires_grad]
        self.average = [p.detach().clone() for p in self.parameters]
        self.optimizer = torch.optim.AdamW(self.parameters, budget.rate, (0.9, 0.95), weight_decay=budget.weight_decay)
        self.update = 0
        self._resume()

    def _resume(self) -> None:
        path = self.out / PROGRESS
        if not path.exists():
            return
        stored = torch.load(path, weights_only=True)
        plan = json.dumps({**asdict(self.budget), "seed": self.seed, "world": self.world}, sort_keys=True)
        if stored["plan"] != plan:
            raise ValueError(f"{path} belongs to another run: {stored['plan']}; this one is {plan}; choose a new --out")
        self.student.load_state_dict(stored["student"])
        self.optimizer.load_state_dict(stored["optimizer"])
        self.average, self.update = stored["average"], stored["update"]

    def _save(self) -> None:
        plan = json.dumps({**asdict(self.budget), "seed": self.seed, "world": self.world}, sort_keys=True)
        part = self.out / f"{PROGRESS}.part"
        stored = {"plan": plan, "student": self.student.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save({**stored, "average": self.average, "update": self.update}, part)
        part.replace(self.out / PROGRESS)

    def run(self, watcher: Watcher | None = None) -> None:
        """Train to the last update; process 0 writes the log and what a stopped run goes on from."""
        began = time.perf_counter()
        sums: dict[str, float] = {}
        while self.update < self.budget.updates:
            losses = self._step()
            for name, value in losses.items():
                sums[name] = sums.get(name, 0.0) + value
            if self.rank == 0 and self.update % self.budget.log_every == 0:
                means = {name: round(value / self.budget.log_every, 5) for name, value in sums.items()}
                line = {"update": self.update, "seconds": round(time.perf_counter() - began, 1), **means}
                with (self.out / LOG).open("a") as log:
                    log.write(json.dumps(line) + "\n")
                sums = {}
            if watcher is not None:
                watcher(self.update, losses)
            if self.rank == 0 and (self.update % self.budget.save_every == 0 or self.update == self.budget.updates):
                self._save()

    def _step(self) -> dict[str, float]:
        budget = self.budget
        for group in self.optimizer.param_groups:
            group["lr"] = budget.rate_at(self.update)
        share = budget.batch // self.world
        part = slice(self.rank * share, (self.rank + 1) * share)
        batch = self.batches.draw(budget.batch, (self.seed, 1, self.update), part)
        losses = self.student.losses(batch, self._noise())
        self.optimizer.zero_grad(set_to_none=False)
        losses["total"].backward()  # type: ignore[no-untyped-call]
        if self.world > 1:
            _average_gradients(self.parameters, self.world)
        torch.nn.utils.clip_grad_norm_(self.parameters, CLIP)
        self.optimizer.step()
        self.update += 1
        keep = min(budget.average, (1 + self.update) / (10 + self.update))
        with torch.no_grad():
            torch._foreach_lerp_(self.average, self.parameters, 1 - keep)
        return {name: loss.item() for name, loss in losses.items()}

    def _noise(self) -> torch.Generator:
        """What flow matching draws: a function of seed, update and process."""
        (seed,) = np.random.SeedSequence([self.seed, 2, self.update, self.rank]).generate_state(1)
        return torch.Generator().manual_seed(int(seed))

    def averaged(self) -> Student:
        """The student with averaged weights."""
        with torch.no_grad():
            for parameter, mean in zip(self.parameters, self.average, strict=True):
                parameter.copy_(mean)
        self.student.eval()
        return self.student

    def gate(self) -> dict[str, float]:
        """How far from the expert's the student's targets are, on held-out scenes (averaged weights)."""
        student = self.averaged()
        figures = target_error(student, self.held_out, self.held_out_samples, self.after)
        if self.held_out_suites is not None:
            figures |= suite_errors(student, *self.held_out_suites, self.after)
        return figures


def _average_gradients(parameters: list[Tensor], world: int) -> None:
    flat = torch.cat([p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in parameters])
    dist.all_reduce(flat)
    flat /= world
    begin = 0
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.copy_(flat[begin : begin + parameter.numel()].view_as(parameter))
        begin += parameter.numel()


def run_rank(rank: int, world: int, rendezvous: str, run: tuple[Path, Path, TrainingBudget, int]) -> None:
    """One of several processes that train together."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    end_with_parent()
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    try:
        Trainer(*run, rank, world).run()
    finally:
        dist.destroy_process_group()
