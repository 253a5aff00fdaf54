"""Batches made by the policy's processors, with colour jitter. A batch is a function of seed and update."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS
from torch import Tensor

from lerobot_policy_quantile.contract import CAMERA_KEYS
from lerobot_policy_quantile.pretraining.samples import Samples
from lerobot_policy_quantile.pretraining.suite_samples import SuiteSamples
from lerobot_policy_quantile.pretraining.targets import Targets, draw_named, targets_of
from lerobot_policy_quantile.scenes.contract import Array
from lerobot_policy_quantile.scenes.embedded import NAMES
from lerobot_policy_quantile.scenes.embedded import instruction_for as embedded_instruction
from lerobot_policy_quantile.scenes.libero.kinds import KINDS
from lerobot_policy_quantile.scenes.libero.kinds import instruction_for as libero_instruction

INSTRUCTIONS = (*map(embedded_instruction, NAMES), *map(libero_instruction, KINDS))
"""One instruction per object, as its scene words it."""


@dataclass(frozen=True)
class Batch:
    """Input of the policy, and targets of the auxiliary losses."""

    policy: dict[str, Any]
    targets: Targets


class Batches:
    """Draws samples and named objects, and preprocesses them."""

    def __init__(self, samples: Samples, before: Any, patches_per_side: int, aims: int = 1) -> None:
        self._samples, self._before, self._side, self._aims = samples, before, patches_per_side, aims

    def draw(self, size: int, key: tuple[int, ...], part: slice) -> Batch:
        """The batch of a key, or the share of one of several processes."""
        rows, named = self.choose(size, np.random.default_rng(key))
        jitter = np.random.default_rng([*key, part.start or 0])
        return self.of(rows[part], named[part], jitter)

    def choose(self, size: int, rng: np.random.Generator) -> tuple[Int[Array, " b"], Int[Array, " b"]]:
        """Samples, and the named object of each."""
        rows = rng.integers(len(self._samples), size=size)
        return rows, draw_named(self._samples, rows, rng)

    def of(self, rows: Int[Array, " b"], named: Int[Array, " b"], jitter: np.random.Generator | None = None) -> Batch:
        """A batch of given samples, each with a named object; colours are changed only with `jitter`."""
        raw, targets = self.raw(rows, named, jitter)
        return Batch(self._before(raw), targets)

    def raw(
        self, rows: Int[Array, " b"], named: Int[Array, " b"], jitter: np.random.Generator | None
    ) -> tuple[dict[str, Any], Targets]:
        """What goes into the policy's processors, and the targets."""
        samples = self._samples
        raw = observed(samples, rows, jitter)
        raw["task"] = [INSTRUCTIONS[thing] for thing in named]
        raw["action"] = torch.from_numpy(samples.actions[rows, named])
        raw["action_is_pad"] = torch.from_numpy(~samples.valid[rows, named])
        return raw, targets_of(samples, rows, named, self._side, self._aims)


def without_shared_padding(before: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """The processors `before`, then as many text tokens as the longest prompt of the batch has: half of them."""

    def process(raw: dict[str, Any]) -> dict[str, Any]:
        batch = before(raw)
        longest = int(batch[OBS_LANGUAGE_ATTENTION_MASK].sum(-1).max())
        return batch | {name: batch[name][:, :longest] for name in (OBS_LANGUAGE_TOKENS, OBS_LANGUAGE_ATTENTION_MASK)}

    return process


def observed(
    samples: Samples | SuiteSamples, rows: Int[Array, " b"], jitter: np.random.Generator | None
) -> dict[str, Any]:
    """Pictures and states of samples, as processors take them."""
    raw: dict[str, Any] = {}
    for camera, key in CAMERA_KEYS.items():
        pictures = torch.from_numpy(getattr(samples, camera)[rows]).permute(0, 3, 1, 2).float() / 255
        raw[key] = pictures if jitter is None else jitter_colours(pictures, jitter)
    raw["observation.state"] = torch.from_numpy(samples.state[rows])
    return raw


def jitter_colours(pictures: Float[Tensor, "b 3 y x"], rng: np.random.Generator) -> Float[Tensor, "b 3 y x"]:
    """Brightness, contrast and the balance of colours, one draw per picture. None is raised, many are left as they
    are: white on white must not saturate.
    """
    count = len(pictures)
    bright, contrast = (np.minimum(rng.uniform(0.7, 1.1, (count, 1, 1, 1)), 1.0) for _ in range(2))
    gain = bright * np.minimum(rng.uniform(0.92, 1.03, (count, 3, 1, 1)), 1.0)
    middle = pictures.mean((1, 2, 3), keepdim=True)
    return ((pictures - middle) * torch.from_numpy(contrast).float() + middle) * torch.from_numpy(gain).float()
