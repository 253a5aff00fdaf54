"""Policies that are asked beside the one that acts, on the same observations: what their answers differ by.

The scene's notebook takes it into the episode's side file: the deviation of the medians of several training seeds
(`SEEDS`) and that of flow samples (`SAMPLES`), at every replan.

Axes: q replan, n answer, h chunk step, d action dim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.adapters.lerobot_folder import EpisodicPolicy
from lerobot_policy_quantile.contract import OWN_DECODER, Array, Chunk, Observation, Policy, World
from lerobot_policy_quantile.studies.doubt.settings import DRIVER
from lerobot_policy_quantile.util.digests import seed_of
from lerobot_policy_quantile.util.quantiles import quantile_at

SEEDS, SAMPLES = "deviation_of_seeds", "deviation_of_samples"
BESIDE = "asked beside"
"""In the context of every row: fingerprints of the other policies."""


class NotedScene:
    """A scene with a notebook, which the policy writes into and the episode's side file keeps."""

    def __init__(self, scene: World) -> None:
        self._scene = scene
        self._kept: dict[str, list[Array]] = {}

    def reset(self, task: int, index: int, seed: int) -> None:
        """Begin the episode of a key, with an empty notebook."""
        self._kept = {}
        self._scene.reset(task, index, seed)

    def note(self, name: str, value: Array) -> None:
        """One entry of a replan."""
        self._kept.setdefault(name, []).append(value)

    def notes(self) -> Mapping[str, Array]:
        """All entries, one array per name."""
        return {name: np.stack(values) for name, values in self._kept.items()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scene, name)


@dataclass(frozen=True)
class _ShadowMemory:
    """What one episode remembers: the driver's memory, the others' and where to write."""

    driver: Any
    seeds: tuple[Any, ...]
    samples: tuple[Any, ...]
    notebook: NotedScene


class ShadowedPolicy:
    """A policy that acts as it would alone, with others asked beside it."""

    needs_images = True

    def __init__(self, driver: Policy, seeds: Sequence[EpisodicPolicy], flow: EpisodicPolicy, samples: int) -> None:
        self._driver, self._seeds, self._flow, self._samples = driver, tuple(seeds), flow, samples
        self.n_action_steps = driver.n_action_steps
        others = [policy.context["policy"] for policy in (*self._seeds, flow)]
        self.context = beside(driver.context, others, samples)

    def begin(self, seed: int, world: World, decoder: str) -> _ShadowMemory:
        """Memories of all; every flow sample has noise of its own."""
        return _ShadowMemory(
            self._driver.begin(seed, world, decoder),
            tuple(policy.begin(seed, world, decoder) for policy in self._seeds),
            tuple(self._flow.begin(seed_of(f"sample {seed} {n}"), world, OWN_DECODER) for n in range(self._samples)),
            cast(NotedScene, world),
        )

    def act(self, observations: Sequence[Observation], memories: Sequence[_ShadowMemory]) -> list[Chunk]:
        """The driver's chunks; what the others say is written down."""
        chunks = self._driver.act(observations, [memory.driver for memory in memories])
        for observation, memory, chunk in zip(observations, memories, chunks, strict=True):
            levels = self._seeds[0].levels
            told = [p.act([observation], [own])[0] for p, own in zip(self._seeds, memory.seeds, strict=True)]
            medians = [median_of(each, levels) for each in (chunk, *told)]
            memory.notebook.note(SEEDS, deviation(medians))
            drawn = self._flow.act([observation] * self._samples, memory.samples)
            memory.notebook.note(SAMPLES, deviation([each.actions for each in drawn]))
        return list(chunks)

    def close(self) -> None:
        """Free all of them."""
        for policy in (self._driver, *self._seeds, self._flow):
            policy.close()


def median_of(chunk: Chunk, levels: Sequence[float]) -> Float[Array, "h d"]:
    """The median of a chunk's law."""
    if chunk.quantiles is None:
        raise ValueError("seeds must predict quantiles; got a chunk without any")
    found: Float[Array, "h d"] = quantile_at(np.asarray(chunk.quantiles), levels, 0.5)
    return found


def deviation(answers: Sequence[Float[Array, "h d"]]) -> Float[Array, "h d"]:
    """Standard deviation of several answers, in the robot's action units."""
    return np.asarray(np.stack(answers).std(axis=0, ddof=1), dtype=np.float32)


def beside(context: Mapping[str, str], others: Sequence[str], samples: int) -> dict[str, str]:
    """The driver's context and what was asked beside it."""
    return {**context, BESIDE: f"{', '.join(others)}; {samples} samples"}


@dataclass(frozen=True)
class ShadowFactory:
    """Scenes with notebooks, and the driver with the others beside it; the scene factory knows all by name."""

    scenes: SceneFactory
    seeds: tuple[str, ...]
    flow: str
    samples: int

    def world(self, scene: str) -> World:
        """A world of that name."""
        return cast(World, NotedScene(self.scenes.world(scene)))

    def policy(self, policy: str) -> Policy:
        """The driver, whatever its chunks are cut by, and the others as they are."""
        plain = SceneFactory(self.scenes.sources, self.scenes.camera_size)
        seeds = [cast(EpisodicPolicy, plain.policy(name)) for name in self.seeds]
        return ShadowedPolicy(
            self.scenes.policy(policy), seeds, cast(EpisodicPolicy, plain.policy(self.flow)), self.samples
        )

    def policy_context(self, policy: str) -> Mapping[str, str] | None:
        """As the policy itself would say."""
        own = self.scenes.policy_context(policy)
        others = [self.scenes.policy_context(name) for name in (*self.seeds, self.flow)]
        if own is None or None in others:
            return None
        return beside(own, [str(other["policy"]) for other in others if other], self.samples)


def shadow_factory(quantile: Sequence[str], flow: str, *, samples: int, replan: str, camera_size: int) -> ShadowFactory:
    """The first of the quantile policies drives."""
    first, *rest = quantile
    names = {f"seed {number}": folder for number, folder in enumerate(rest, 1)}
    sources = {DRIVER: first, **names, "flow": flow}
    return ShadowFactory(SceneFactory(sources, camera_size, replan=replan), tuple(names), "flow", samples)
