"""Training one head on the two demonstrations, through the cached prefixes (App. B.3).

Axes: u update, b batch, h chunk step, d action dim, k level.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from safetensors.torch import save_file
from torch import Tensor

from lerobot_policy_quantile.adapters.lerobot_folder import load_lerobot_policy
from lerobot_policy_quantile.contract import Observation
from lerobot_policy_quantile.core.decoders import fit_copula
from lerobot_policy_quantile.core.heads import Expert, FlowHead, Head, PointHead, QuantileHead, training_loss
from lerobot_policy_quantile.core.losses import clean_target, masked_mean
from lerobot_policy_quantile.core.quantile_function import QuantileFunction
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.policy.checkpoint_config import COPULA_FILE
from lerobot_policy_quantile.policy.label_noise import keyed_generator
from lerobot_policy_quantile.policy.training_step import RecordingExpert
from lerobot_policy_quantile.studies.two_demo import checks, records
from lerobot_policy_quantile.studies.two_demo.cache import LessonCache, in_parts, open_cache, processed
from lerobot_policy_quantile.studies.two_demo.demos import Lesson, data_hash, load_lesson
from lerobot_policy_quantile.studies.two_demo.records import Check, DemonstrationRecord
from lerobot_policy_quantile.studies.two_demo.settings import OLDER, StudySettings
from lerobot_policy_quantile.studies.two_demo.start import (
    Fresh,
    base_fingerprint,
    fresh_policy,
    frozen_hash,
    only_float32,
    shared_hash,
)
from lerobot_policy_quantile.util.digests import digest
from lerobot_policy_quantile.util.stamps import Stamp

START_COPIES, UNIFORM = 2, 6
"""Per demonstration and batch: copies of the shared start, and uniformly drawn steps."""
LOG_EVERY = 25
_BATCHES, _NOISE = 1, 2

Report = Callable[[int, float], None]
"""Told the number of updates done and the last mean loss."""


@dataclass(frozen=True)
class TrainingJob:
    """One head's training: what a worker process is told."""

    folder: Path  # of the arm
    settings: StudySettings
    base: str
    head: str
    training_seed: int

    @property
    def name(self) -> str:
        """For a line of progress."""
        return f"{self.folder.name} {records.policy_name(self.head, self.training_seed)}"

    @property
    def policy(self) -> Path:
        """Where the trained policy goes."""
        return records.seed_folder(self.folder, self.training_seed) / records.POLICIES / self.head

    @property
    def stamp(self) -> Stamp:
        """What the result depends on."""
        rates = ("learning_rate", "head_learning_rate", "prompt_learning_rate")
        names = ("updates", *rates, "warmup", "final_fraction", "camera_size")
        inputs = {name: getattr(self.settings, name) for name in names}
        chosen = {name: getattr(self.settings, name) for name in ("output_projection", "prompts", "device")}
        inputs |= {name: value for name, value in chosen.items() if value != OLDER[name]}  # older stamps know no others
        return Stamp(self.policy.parent, self.head, inputs | {"base": base_fingerprint(self.base)})


@dataclass(frozen=True)
class Trained:
    """What came of it."""

    job: TrainingJob
    checks: list[Check]
    curve: dict[str, Any]
    initialisation: str
    batches: str


def batch_sequence(
    demonstrations: tuple[DemonstrationRecord, ...], training_seed: int, updates: int
) -> Int[Tensor, "u b"]:
    """Sample numbers of every batch: per demonstration two copies of the start and six uniform steps. A pure
    function of the training seed: all heads see the same sequence.
    """
    generator = keyed_generator(training_seed, _BATCHES)
    parts, first = [], 0
    for demonstration in demonstrations:
        steps = len(demonstration.actions)
        parts.append(torch.full((updates, START_COPIES), first))
        parts.append(first + torch.randint(steps, (updates, UNIFORM), generator=generator))
        first += steps
    return torch.cat(parts, dim=1)


def made_from(fresh: Fresh, base: str, lesson: Lesson) -> dict[str, str]:
    """What a prefix cache depends on."""
    return {
        "frozen": frozen_hash(fresh.policy),
        "data": data_hash(lesson.demonstrations),
        "ground": str(lesson.ground),
        "base": base_fingerprint(base),
        "torch": torch.__version__,
    }


def prepare_cache(folder: Path, settings: StudySettings, base: str) -> bool:
    """Build an arm's prefix cache unless the right one is there; True if it was built. A stale one is refused."""
    only_float32()
    lesson = load_lesson(folder)
    fresh = fresh_policy(base, "quantile", 0, settings, lesson)
    return open_cache(folder, fresh, lesson, made_from(fresh, base, lesson)).built


def train(job: TrainingJob, report: Report = lambda *_: None) -> Trained:
    """Train a head, verify what must hold, save the policy. The policy's folder appears only when all checks passed.

    Nothing is trained through a cache that does not give what the whole model gives.
    """
    torch.set_num_threads(1)
    only_float32()
    began = time.perf_counter()
    device = job.settings.device
    lesson = load_lesson(job.folder)
    instruction, demonstrations = lesson.instruction, lesson.demonstrations
    fresh = fresh_policy(job.base, job.head, job.training_seed, job.settings, lesson)
    rounding = checks.rounding(fresh.policy.config.backbone, device)
    name = records.policy_name(job.head, job.training_seed)
    source = made_from(fresh, job.base, lesson)
    cache = open_cache(job.folder, fresh, lesson, source)
    batches = batch_sequence(demonstrations, job.training_seed, job.settings.updates)
    start = shared_hash(fresh.policy)
    full = processed(fresh, instruction, demonstrations, batches[0])
    found = [checks.cached_is_full(name, *compare_with_full(fresh.policy, cache, batches[0], full), rounding=rounding)]
    sequence = digest(batches.numpy().tobytes())
    if not found[0].passed:
        return Trained(job, found, {}, start, sequence)
    curve = optimise(fresh.policy, cache, batches, job, report)
    found.append(checks.frozen_unchanged(name, source["frozen"], frozen_hash(fresh.policy)))
    folder = _save(job, fresh, cache)
    del fresh, cache, full  # a device need hold one model
    saved = load_lerobot_policy(folder, device=device)
    found.append(checks.batch_is_single(name, saved, _moments(instruction, demonstrations), rounding=rounding))
    if all(check.passed for check in found):
        if job.policy.exists():
            shutil.rmtree(job.policy)
        folder.replace(job.policy)
    curve["seconds"] = time.perf_counter() - began
    return Trained(job, found, curve, start, sequence)


def optimise(
    policy: QuantilePolicy, cache: LessonCache, batches: Int[Tensor, "u b"], job: TrainingJob, report: Report
) -> dict[str, Any]:
    """AdamW with warm-up and cosine decay over the batch sequence; the mean loss every few updates."""
    policy.train()
    config = policy.config
    optimiser = torch.optim.AdamW(
        policy.get_optim_params(), betas=config.optimizer_betas, eps=config.optimizer_eps, fused=True
    )
    schedule = config.get_scheduler_preset().build(optimiser, len(batches))
    trained = [p for group in optimiser.param_groups for p in group["params"]]
    updates: list[int] = []
    losses: list[float] = []
    total = 0.0
    for number, index in enumerate(batches, start=1):
        loss = batch_loss(policy, cache, index, keyed_generator(job.training_seed, _NOISE, number))
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(trained, config.optimizer_grad_clip_norm)
        optimiser.step()
        schedule.step()
        total += loss.item()
        if number % LOG_EVERY == 0 or number == len(batches):
            since = number - (updates[-1] if updates else 0)
            updates.append(number)
            losses.append(total / since)
            report(number, losses[-1])
            total = 0.0
    policy.eval()
    return {"updates": updates, "losses": losses}


def batch_loss(
    policy: QuantilePolicy, cache: LessonCache, index: Int[Tensor, " b"], generator: torch.Generator
) -> Float[Tensor, ""]:
    """A head's loss on cached samples: all valid coordinates count, nothing is dropped."""
    place = policy.noise_key.device
    return training_loss(
        policy.head,
        cached_expert(policy, cache, index),
        cache.target[index].to(place),
        cache.valid[index].to(place),
        drop_ratio=0.0,
        generator=generator,
    )


def cached_expert(policy: QuantilePolicy, cache: LessonCache, index: Int[Tensor, " b"]) -> Expert:
    """The expert over cached samples. A direct head's features depend on the observation alone, so samples that see
    the same (the copies of the shared start) take one row of the pass.
    """
    device = policy.noise_key.device
    if isinstance(policy.head, FlowHead):
        return policy.backbone.expert(cache.rows(index, device))
    distinct, place = torch.unique(cache.first_alike[index], return_inverse=True)
    shared, place = policy.backbone.expert(cache.rows(distinct, device)), place.to(device)
    return lambda queries, noise_time: shared(queries[: len(distinct)], noise_time[: len(distinct)])[place]


class PathDifference(NamedTuple):
    """Training's passes (cached, on the fast path) beside whole ones on the plain path."""

    outputs: float
    """Largest difference."""
    gradients: float
    """Difference of the gradients of all trained weights, relative to their norm."""
    at_jumps: int
    """Coordinates left out of the gradients: rounding decides on which side of an answer their target lies."""


def compare_with_full(
    policy: QuantilePolicy, cache: LessonCache, index: Int[Tensor, " b"], full: dict[str, Any]
) -> PathDifference:
    """Compare the two ways of one batch, sample by sample.

    The slopes of |e| and of pinball jump where a target meets an answer. A target as near to one as the two ways are to
    each other may be on either side, and then gradients differ by a jump though nothing is wrong.
    """
    policy.train()
    head, target = policy.head, full["action"]
    valid = (~full["action_is_pad"])[..., None].expand_as(target)
    ways = []
    for cached in (True, False):
        policy.backbone.fast_training = cached
        passes = cached_expert(policy, cache, index) if cached else policy.backbone.expert(policy.prefix(full))
        expert = RecordingExpert(passes)
        loss = head.loss(expert, clean_target(target, valid), generator=keyed_generator(0, _NOISE))
        ways.append((loss, expert.features))
    policy.backbone.fast_training = True
    (loss, features), (whole_loss, whole_features) = ways
    outputs = (head.projection(features) - head.projection(whole_features)).abs().max()
    settled = valid & (_sides(head, features, target) == _sides(head, whole_features, target)).all(-1)
    gradient, whole = (_gradients(policy, masked_mean(each, settled)) for each in (loss, whole_loss))
    difference = float((gradient - whole).norm() / whole.norm().clamp_min(1e-12))
    return PathDifference(float(outputs.detach()), difference, int((valid & ~settled).sum()))


def _sides(head: Head, features: Float[Tensor, "b h w"], target: Float[Tensor, "b h d"]) -> Float[Tensor, "b h d k"]:
    """On which side of each of a head's answers the target lies; smooth losses have no sides."""
    if isinstance(head, QuantileHead):
        return torch.sign(target[..., None] - head.quantiles(features))
    if isinstance(head, PointHead) and head.norm == "l1":
        return torch.sign(target - head.projection(features)[..., : head.action_dim])[..., None]
    return torch.zeros_like(target)[..., None]


def _gradients(policy: QuantilePolicy, loss: Float[Tensor, ""]) -> Float[Tensor, " n"]:
    """Of all trained weights that the loss reaches, in one row."""
    trained = [p for group in policy.get_optim_params() for p in group["params"]]
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, trained, allow_unused=True) if g is not None])


def _moments(instruction: str, demonstrations: tuple[DemonstrationRecord, ...]) -> list[Observation]:
    """The shared start, and what is seen ten steps later on the first route."""
    first = demonstrations[0]
    steps = (0, min(10, len(first.actions) - 1))
    return [
        Observation({camera: frames[step] for camera, frames in first.frames.items()}, first.states[step], instruction)
        for step in steps
    ]


def _save(job: TrainingJob, fresh: Fresh, cache: LessonCache) -> Path:
    """A LeRobot policy folder under a temporary name."""
    folder = job.policy.with_name(f"{job.head}.part")
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    fresh.policy.save_pretrained(folder)
    fresh.before.save_pretrained(folder)
    fresh.after.save_pretrained(folder)
    if job.head == "quantile":
        save_file({"correlation": copula_of(fresh.policy, cache)}, folder / COPULA_FILE)
    return folder


@torch.no_grad()
def copula_of(policy: QuantilePolicy, cache: LessonCache) -> Float[Tensor, "c c"]:
    """The ranks' correlation over all training samples."""
    head = policy.head
    if not isinstance(head, QuantileHead):
        raise ValueError(f"head must be quantile to have ranks; got {policy.config.head}")
    device = policy.noise_key.device
    parts = [
        head.quantiles(head._direct_features(policy.backbone.expert(cache.rows(index, device)), len(index))).cpu()
        for index in in_parts(len(cache), 64)
    ]
    return fit_copula(QuantileFunction(head.levels.cpu(), torch.cat(parts)), cache.target, cache.valid)
