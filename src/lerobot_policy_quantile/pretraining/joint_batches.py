"""Batches of the embedded scene's samples and those of LIBERO's suites together, in a fixed proportion."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from lerobot_policy_quantile.pretraining.batches import Batch, Batches, observed
from lerobot_policy_quantile.pretraining.samples import Samples
from lerobot_policy_quantile.pretraining.suite_samples import SuiteSamples
from lerobot_policy_quantile.pretraining.targets import Targets, suite_targets_of
from lerobot_policy_quantile.scenes.contract import Array

AIMS = 2
NEAR, OPEN = 0.1, 0.07
"""Metres from hand to target, and between the fingers: moments that decide a grasp. They are drawn more often."""
NEAR_WEIGHT = 3.0


class SuiteBatches:
    """Preprocesses samples of the suites."""

    def __init__(self, samples: SuiteSamples, before: Any, patches_per_side: int) -> None:
        self._samples, self._before, self._side = samples, before, patches_per_side
        near = np.linalg.norm(samples.target - samples.state[:, :3], axis=1) < NEAR
        deciding = near & (samples.state[:, 6] - samples.state[:, 7] > OPEN)
        self._until = np.cumsum(np.where(deciding, NEAR_WEIGHT, 1.0))

    def choose(self, size: int, rng: np.random.Generator) -> Int[Array, " b"]:
        """Samples, those that decide a grasp more often."""
        rows: Int[Array, " b"] = np.searchsorted(self._until, rng.random(size) * self._until[-1], side="right")
        return rows

    def __len__(self) -> int:
        return len(self._samples)

    def of(self, rows: Int[Array, " b"]) -> Batch:
        """A batch of given samples in their own colours."""
        raw, targets = self.raw(rows, None)
        return Batch(self._before(raw), targets)

    def raw(self, rows: Int[Array, " b"], jitter: np.random.Generator | None) -> tuple[dict[str, Any], Targets]:
        """What goes into the policy's processors, and the targets."""
        samples = self._samples
        raw = observed(samples, rows, jitter)
        raw["task"] = [str(text) for text in samples.instruction[rows]]
        raw["action"] = torch.from_numpy(samples.actions[rows])
        raw["action_is_pad"] = torch.from_numpy(~samples.valid[rows])
        return raw, suite_targets_of(samples, rows, self._side)


class JointBatches:
    """Draws from both kinds of samples; `share` of a batch, and of every process's part of it, are the suites'."""

    def __init__(
        self, embedded: Samples, suites: SuiteSamples, before: Any, patches_per_side: int, share: float
    ) -> None:
        if not 0 < share < 1:
            raise ValueError(f"suite_share must lie strictly between 0 and 1 for joint batches; got {share}")
        self._embedded = Batches(embedded, before, patches_per_side, AIMS)
        self._suites = SuiteBatches(suites, before, patches_per_side)
        self._before, self._share = before, share

    def draw(self, size: int, key: tuple[int, ...], part: slice) -> Batch:
        """The batch of a key, or the share of one of several processes."""
        rng = np.random.default_rng(key)
        rows, named = self._embedded.choose(size, rng)
        suite_rows = self._suites.choose(size, rng)
        first, last, _ = part.indices(size)
        begin, end = int(first * self._share), int(last * self._share)
        jitter = np.random.default_rng([*key, first])
        own = slice(first - begin, last - end)
        parts = [self._embedded.raw(rows[own], named[own], jitter), self._suites.raw(suite_rows[begin:end], jitter)]
        (one, _), (other, _) = parts
        raw = {name: one[name] + other[name] if name == "task" else torch.cat([one[name], other[name]]) for name in one}
        return Batch(self._before(raw), Targets.join([targets for _, targets in parts]))
