"""What policies say about held-out episodes, beside what was done there: the arrays that all scores are made of.

Axes: b batch, f judged frame, h chunk step, d action dim, k level, n sample. All in the policy's normalised units.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from lerobot_policy_quantile.calibration.held_out import STATE, Recording, chunks
from lerobot_policy_quantile.calibration.policy_facts import PolicyFacts
from lerobot_policy_quantile.core.calibration import sample_crps, sample_quantiles
from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.core.heads import FlowHead, QuantileHead
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.policy.action_units import ActionUnits
from lerobot_policy_quantile.util.digests import seed_of
from lerobot_policy_quantile.util.quantiles import Array

POINT, QUANTILES, SAMPLES = "point", "quantiles", "samples"


@dataclass(frozen=True)
class LawSource:
    """How a law was had from a policy, and what it cost."""

    kind: str
    """`quantiles` of the head, one `point`, or so many `samples`."""
    expert_passes: int
    samples: int | None = None


@dataclass(frozen=True)
class EpisodeLaw:
    """One law over one held-out episode. A correction of the law is a function from these to these."""

    episode: int
    frames: Int[Array, " f"]
    actions: Float[Array, "f h d"]
    """What was done; zeros beyond the episode's end."""
    quantiles: Float[Array, "f h d k"]
    """Of a point all the same; of samples those of the samples."""
    valid: Bool[Array, "f h"]
    """False beyond the episode's end."""
    crps: Float[Array, "f h d"] | None = None
    """Of samples, their own; None: that of the quantile function."""
    fair_crps: Float[Array, "f h d"] | None = None
    """Of two or more samples: without bias, that of the law they were drawn from."""


class Predictor:
    """A loaded policy that tells its laws of a batch of frames."""

    def __init__(self, policy: Any, before: Any, facts: PolicyFacts, samples: Sequence[int] = (1,)) -> None:
        self._policy, self._before, self._facts = policy, before, facts
        head = policy.head
        self.levels: Float[Tensor, " k"] = head.host_levels if isinstance(head, QuantileHead) else quantile_levels()
        if isinstance(head, FlowHead):
            self.sources = [LawSource(SAMPLES, n * head.expert_calls, n) for n in sorted(set(samples))]
        else:
            # Median-Only leaves its gaps as they were drawn: its quantiles are no prediction.
            told = isinstance(head, QuantileHead) and head.supervise == "all"
            self.sources = [LawSource(QUANTILES if told else POINT, head.expert_calls)]

    @torch.no_grad()
    def laws(self, batch: Mapping[str, Any], frames: Sequence[tuple[int, int]]) -> list["_Rows"]:
        """One law per source, for the rows of a batch; `frames` are their episodes and frames, which seed draws."""
        seen = {key: batch[key] for key in map(self._facts.source_of, (*self._facts.cameras, STATE))}
        prefix = self._policy.prefix(self._before({**seen, "task": batch["task"]}))
        most = self.sources[-1].samples
        if most is None:
            prediction = self._ask(prefix, frames, 0)[1]
            if self.sources[0].kind == QUANTILES:
                return [_Rows(prediction.quantiles.quantiles)]
            return [_Rows(prediction.actions[..., None].expand(*prediction.actions.shape, len(self.levels)))]
        drawn = torch.stack([self._ask(prefix, frames, number)[0] for number in range(most)])
        return [
            _Rows(sample_quantiles(drawn[: s.samples], self.levels).quantiles, drawn[: s.samples]) for s in self.sources
        ]

    def _ask(self, prefix: Any, frames: Sequence[tuple[int, int]], number: int) -> Any:
        """The policy's answer to one draw; whatever it draws depends on episode, frame and draw alone."""
        episodes = [Episode(seed_of(f"calibrate {episode} {frame} {number}")) for episode, frame in frames]
        return self._policy.decide(prefix, episodes)


@dataclass(frozen=True)
class _Rows:
    """A law of the rows of a batch; the samples where it has them."""

    quantiles: Float[Tensor, "b h d k"]
    samples: Float[Tensor, "n b h d"] | None = None


@dataclass(frozen=True)
class FrameReading:
    """How frames are read."""

    every: int = 5
    batch_size: int = 32
    workers: int = 0
    """Processes that decode pictures; 0: this one."""


def episode_laws(
    predictor: Predictor,
    dataset: Any,
    recordings: Sequence[Recording],
    units: ActionUnits,
    how: FrameReading,
    told: Callable[[int], None],
) -> Iterator[list[EpisodeLaw]]:
    """Episode by episode, one law per source of the predictor. `told` hears how many frames a batch had."""
    places = [(recording, int(frame)) for recording in recordings for frame in recording.judged(how.every)]
    rows = [int(recording.rows[frame]) for recording, frame in places]
    loader = DataLoader(Subset(dataset, rows), batch_size=how.batch_size, num_workers=how.workers)
    waiting: list[list[_Rows]] = []
    held, done = 0, iter(recordings)
    current = next(done, None)
    start = 0
    for batch in loader:
        stop = start + len(batch["task"])
        waiting.append(predictor.laws(batch, [(r.episode, frame) for r, frame in places[start:stop]]))
        held, start = held + stop - start, stop
        told(len(batch["task"]))
        while current is not None and held >= (need := len(current.judged(how.every))):
            merged = [_merged([rows[number] for rows in waiting]) for number in range(len(predictor.sources))]
            yield [_episode_law(_cut(law, 0, need), current, units, how.every) for law in merged]
            waiting, held = [[_cut(law, need, None) for law in merged]], held - need
            current = next(done, None)


def _merged(parts: Sequence[_Rows]) -> _Rows:
    if len(parts) == 1:
        return parts[0]
    samples = [part.samples for part in parts if part.samples is not None]
    return _Rows(torch.cat([part.quantiles for part in parts]), torch.cat(samples, dim=1) if samples else None)


def _cut(law: _Rows, start: int, stop: int | None) -> _Rows:
    return _Rows(law.quantiles[start:stop], None if law.samples is None else law.samples[:, start:stop])


def _episode_law(law: _Rows, recording: Recording, units: ActionUnits, every: int) -> EpisodeLaw:
    frames = recording.judged(every)
    target, valid = chunks(units.normalised(recording.actions), frames, law.quantiles.shape[1])
    scores: list[Array | None] = [None, None]
    if law.samples is not None:
        done = torch.from_numpy(target)
        scores = [sample_crps(law.samples, done).numpy(), None]
        if len(law.samples) > 1:
            scores[1] = sample_crps(law.samples, done, fair=True).numpy()
    quantiles: Array = np.asarray(law.quantiles.numpy())
    return EpisodeLaw(recording.episode, frames, target, quantiles, valid, *scores)
