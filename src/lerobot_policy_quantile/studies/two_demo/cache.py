"""Training samples and their frozen prefixes: the VLM runs once per demonstration step, not once per update.

Axes: n sample (demonstration step), b batch, h chunk step, d action dim.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lerobot_policy_quantile.backbone.attention import Prefix
from lerobot_policy_quantile.backbone.prefix_cache import PrefixCache, stored_shape
from lerobot_policy_quantile.contract import CAMERA_KEYS
from lerobot_policy_quantile.policy.prefix_reuse import shape_of
from lerobot_policy_quantile.studies.two_demo.demos import Lesson
from lerobot_policy_quantile.studies.two_demo.records import DemonstrationRecord
from lerobot_policy_quantile.studies.two_demo.start import Fresh
from lerobot_policy_quantile.util.digests import digest_each

PREFIXES = "prefixes"
"""The folder of an arm's prefix cache."""
_ROWS = 32


@dataclass(frozen=True)
class LessonCache:
    """What training reads: prefixes, target chunks in normalised units, which of their steps are real."""

    prefixes: PrefixCache
    target: Float[Tensor, "n h d"]
    valid: Bool[Tensor, "n h d"]
    built: bool
    """Whether the VLM had to run."""

    def rows(self, index: Int[Tensor, " b"], device: torch.device | str = "cpu") -> Prefix:
        """The prefixes of some samples, on the device that computes."""
        return self.prefixes.get(index.tolist(), device)

    @cached_property
    def first_alike(self) -> Int[Tensor, " n"]:
        """For every sample the first one with the same prefix, to the bit: demonstrations begin alike."""
        first: dict[str, int] = {}
        layers = (self.prefixes.get([i]).layers for i in range(len(self)))
        words = (digest_each(part.numpy().tobytes() for pair in each for part in pair) for each in layers)
        return torch.tensor([first.setdefault(word, i) for i, word in enumerate(words)])

    def __len__(self) -> int:
        return len(self.target)


@torch.no_grad()
def open_cache(folder: Path, fresh: Fresh, lesson: Lesson, made_from: dict[str, str]) -> LessonCache:
    """An arm's cache. The VLM runs over the demonstration steps that are not in it yet; one that was made from other
    frozen weights, data or processors is refused.
    """
    policy = fresh.policy.eval()
    parts = in_parts(len(sample_places(lesson.demonstrations)), _ROWS)
    count = sum(len(index) for index in parts)
    shape = stored_shape(folder / PREFIXES)
    if shape is None:
        one = processed(fresh, lesson.instruction, lesson.demonstrations, parts[0][:1])
        shape = shape_of(policy.prefix(one), policy)
    prefixes = PrefixCache.in_folder(folder / PREFIXES, shape, count, made_from)
    built = len(prefixes) < count
    targets, valid = [], []
    for index in parts:
        batch = processed(fresh, lesson.instruction, lesson.demonstrations, index)
        frames, same = index.tolist(), [0] * len(index)  # `made_from` tells whether the data is the same
        if prefixes.unseen(frames, same):
            prefixes.put(frames, same, policy.prefix(batch))
        targets.append(batch["action"].cpu())
        valid.append((~batch["action_is_pad"].cpu())[..., None].expand_as(targets[-1]))
    return LessonCache(prefixes, torch.cat(targets), torch.cat(valid), built)


def processed(
    fresh: Fresh, instruction: str, demonstrations: tuple[DemonstrationRecord, ...], index: Int[Tensor, " b"]
) -> dict[str, Any]:
    """Samples as the policy takes them: observation, normalised target chunk, padding."""
    chunk_size = fresh.policy.config.chunk_size
    places = sample_places(demonstrations)
    rows = [places[int(i)] for i in index]
    chosen = [(demonstrations[which], step) for which, step in rows]
    batch: dict[str, Any] = {
        key: torch.stack([torch.from_numpy(d.frames[camera][step]) for d, step in chosen]).permute(0, 3, 1, 2) / 255
        for camera, key in CAMERA_KEYS.items()
    }
    batch["observation.state"] = torch.stack([torch.from_numpy(d.states[step]) for d, step in chosen])
    chunks = [d.actions[np.minimum(np.arange(step, step + chunk_size), len(d.actions) - 1)] for d, step in chosen]
    batch["action"] = torch.from_numpy(np.stack(chunks))
    batch["action_is_pad"] = torch.stack(
        [torch.arange(step, step + chunk_size) >= len(d.actions) for d, step in chosen]
    )
    batch["task"] = [instruction] * len(chosen)
    ready: dict[str, Any] = fresh.before(batch)
    return ready


def sample_places(demonstrations: tuple[DemonstrationRecord, ...]) -> list[tuple[int, int]]:
    """(demonstration, step) of every sample, one demonstration after the other."""
    return [(which, step) for which, d in enumerate(demonstrations) for step in range(len(d.actions))]


def in_parts(count: int, rows: int) -> list[Int[Tensor, " b"]]:
    """The numbers below `count`, a few rows at a time."""
    return [torch.arange(first, min(first + rows, count)) for first in range(0, count, rows)]
