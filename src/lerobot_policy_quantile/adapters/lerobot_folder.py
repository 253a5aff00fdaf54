"""Any LeRobot policy folder as a policy of the closed loop: loaded by LeRobot's factory, with its own processors.

Policies that keep their randomness in episodes (`begin_episode`, `predict_distribution`) answer all rows in one batch
and give their quantiles. All others answer row by row, each under a generator of its own episode, because a batch
would share one stream of noise between episodes.
"""

import gc
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from lerobot.configs import PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from lerobot.utils.import_utils import register_third_party_plugins
from safetensors import safe_open
from torch import Tensor

from lerobot_policy_quantile.adapters.cameras import awaited
from lerobot_policy_quantile.adapters.picture_batches import in_pieces
from lerobot_policy_quantile.adapters.policy_folder import CONFIG, require_policy_folder
from lerobot_policy_quantile.adapters.prompt_limit import prompt_limit
from lerobot_policy_quantile.contract import (
    CAMERA_KEYS,
    OWN_DECODER,
    Array,
    Chunk,
    Observation,
    PromptLimit,
    RawChunk,
    UnusablePolicyError,
    World,
)
from lerobot_policy_quantile.core.decoders.handover import FARTHEST
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.policy.action_units import units_of
from lerobot_policy_quantile.policy.bounds_file import folder_digest, require_bounds
from lerobot_policy_quantile.policy.real_time import normalised_handover
from lerobot_policy_quantile.util.digests import seed_of
from lerobot_policy_quantile.util.quantiles import quantile_at


def load_lerobot_policy(
    folder: Path,
    *,
    device: str = "cpu",
    cameras: Mapping[str, str] | None = None,
    fast: bool = True,
    bounds: float | None = None,
) -> "EpisodicPolicy | PlainPolicy":
    """The policy saved in `folder`, with all its weights; each episode names the decoder it is answered with.

    `cameras` names, for each camera of the observations to come, the feature it is to the policy. A policy that has a
    fast path (`optimize`) takes it, unless not wanted: the same answers to about 1e-6; journals say which path it was.
    `bounds` is the mass of the conformal bounds beside the checkpoint that chunks come with.
    """
    config = read_config(folder, device)
    if getattr(config, "n_obs_steps", 1) != 1:
        raise ValueError(f"n_obs_steps must be 1: a world shows the current moment; got {config.n_obs_steps}")
    policy, before, after, context = load_parts(folder, config, fast=fast)
    kind = EpisodicPolicy if hasattr(policy, "begin_episode") else PlainPolicy
    loaded = kind(policy, before, after, context, cameras or CAMERA_KEYS)
    if bounds is not None:
        margin = require_bounds(folder).margin(bounds).numpy()
        loaded.bounds = ActionBounds(bounds, margin * units_of(after, margin.shape[1]).scale)
    return loaded


def read_config(folder: Path, device: str) -> Any:
    """The configuration saved in a policy folder that is whole and of a known type, for a device of this machine."""
    require_policy_folder(folder)
    register_third_party_plugins()
    require_known_type(folder)
    config = PreTrainedConfig.from_pretrained(folder)
    config.device = device
    config.pretrained_path = folder
    return config


def load_parts(
    folder: Path, config: Any, *, fast: bool = True, renamed: Mapping[str, str] | None = None
) -> tuple[Any, Any, Any, dict[str, str]]:
    """Model, its two processors, and what answers depend on. `renamed`: observations' own names -> the policy's."""
    policy = get_policy_class(config.type).from_pretrained(folder, config=config)
    require_loaded(policy, folder)
    policy.eval()
    if fast and hasattr(policy, "optimize"):
        policy.optimize()
    overrides: dict[str, Any] = {"device_processor": {"device": config.device}}
    if renamed:
        overrides["rename_observations_processor"] = {"rename_map": dict(renamed)}
    before, after = make_pre_post_processors(config, pretrained_path=str(folder), preprocessor_overrides=overrides)
    return policy, before, after, _context(folder, config, fast)


def saved_context(folder: Path, *, device: str = "cpu") -> dict[str, str]:
    """The context that `load_lerobot_policy` would give; the weights are hashed, not loaded."""
    return _context(folder, read_config(folder, device), fast=True)


def _context(folder: Path, config: Any, fast: bool) -> dict[str, str]:
    context = {"policy": fingerprint(folder), "device": str(config.device)}
    if hasattr(get_policy_class(config.type), "optimize"):
        context["path"] = "fast" if fast else "plain"
    return {**context, "n_action_steps": str(int(config.n_action_steps)), "torch": torch.__version__}


@dataclass(frozen=True)
class ActionBounds:
    """Conformal bounds in the robot's units."""

    mass: float
    margin: Float[Array, "h d"]

    def of(self, quantiles: Float[Array, "h d k"], levels: Sequence[float]) -> Float[Array, "h d 2"]:
        """The bounds of a chunk, as `core.conformal.conformal_bounds` has them in normalised units."""
        low, high = (quantile_at(quantiles, levels, (1 + sign * self.mass) / 2) for sign in (-1, 1))
        middle = (low + high) / 2
        return np.stack([np.minimum(low - self.margin, middle), np.maximum(high + self.margin, middle)], axis=-1)


class _LeRobotPolicy:
    """What both kinds share: observations in LeRobot's words."""

    needs_images = True
    bounds: ActionBounds | None = None
    """What chunks come with, if anything."""

    def __init__(
        self, policy: Any, before: Any, after: Any, context: Mapping[str, str], cameras: Mapping[str, str] = CAMERA_KEYS
    ) -> None:
        self._policy, self._before, self._after, self._cameras = policy, before, after, cameras
        self.config = policy.config
        self.n_action_steps = int(policy.config.n_action_steps)
        self.context = dict(context)

    @property
    def levels(self) -> tuple[float, ...]:
        """Levels of the quantiles in its chunks; empty for a policy without any."""
        if getattr(self.config, "head", None) != "quantile":
            return ()
        return tuple(float(level) for level in quantile_levels(self.config.n_quantiles))

    @property
    def grippers(self) -> tuple[int, ...]:
        """Action dimensions that open and close."""
        return tuple(getattr(self.config, "gripper_dims", ()))

    def left_over_bounds(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Values in the robot's units beyond which a left-over belongs to another policy; None if it takes none."""
        if not (isinstance(self._policy, QuantilePolicy) and self._policy.supports_rtc()):
            return None
        ends = torch.full((1, 1, self.config.action_dim), FARTHEST)
        low, high = (tuple(_numpy(self._after(end))[0, 0].tolist()) for end in (-ends, ends))
        return low, high

    def prompt_limit(self, state_dim: int) -> PromptLimit | None:
        """How long an instruction may be; None if the policy does not say."""
        return prompt_limit(self._before.steps, state_dim)

    def close(self) -> None:
        """Free the model, on its device too."""
        self._policy = self._before = self._after = None
        gc.collect()  # modules refer to each other
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _batch(self, observations: Sequence[Observation]) -> dict[str, Any]:
        """What the policy reads; pictures of any sizes, where the policy's processor resizes them."""
        return in_pieces(observations, self._processed)

    def _processed(self, observations: Sequence[Observation]) -> dict[str, Any]:
        """As LeRobot's processors take it: channels first, in [0, 1], one text per row."""
        wanted = awaited(self._policy.config.image_features)
        known = self._cameras
        cameras = {key: name for name, key in known.items() if name in observations[0].images and key in wanted}
        if missing := wanted - set(cameras):
            raise ValueError(f"cameras must be among {', '.join(known.values())}; the policy reads {sorted(missing)}")
        batch: dict[str, Any] = {
            key: torch.stack([torch.from_numpy(o.images[name].copy()) for o in observations]).permute(0, 3, 1, 2) / 255
            for key, name in cameras.items()
        }
        batch["observation.state"] = torch.stack([torch.from_numpy(o.state.copy()).float() for o in observations])
        batch["task"] = [observation.instruction for observation in observations]
        ready: dict[str, Any] = self._before(batch)
        return ready


class EpisodicPolicy(_LeRobotPolicy):
    """A policy whose episodes are values: one batch for all rows, quantiles where it has them."""

    def begin(self, seed: int, world: World | None, decoder: str = OWN_DECODER) -> "_EpisodeMemory":
        """The policy's own episode, and the decoder that reads its quantiles."""
        saved = getattr(self.config, "decoder", OWN_DECODER)
        own = decoder in (OWN_DECODER, saved)
        try:  # the saved decoder, too, may want what the folder does not hold
            chosen = self._policy.choose_decoder(saved if own else decoder) if not own or self.levels else None
        except ValueError as error:
            raise UnusablePolicyError(str(error)) from error
        return _EpisodeMemory(self._policy.begin_episode(seed), None if own else chosen)

    def predict(self, observations: Sequence[Observation], memories: Sequence["_EpisodeMemory"]) -> list[RawChunk]:
        """One forward pass for all; every row decoded by its own episode's decoder."""
        episodes = [memory.episode for memory in memories]
        batch, decoders = self._batch(observations), [memory.decoder for memory in memories]
        if hasattr(self._policy, "predict_decoded"):
            given = {"handovers": self._handovers(observations)} if any(o.left_over for o in observations) else {}
            answer = self._policy.predict_decoded(batch, self._after, episodes=episodes, decoders=decoders, **given)
            ranks, surprises = answer.ranks, answer.surprises
        else:
            answer, ranks = self._policy.predict_distribution(batch, self._after, episodes=episodes), None
            surprises = None
        columns = [_rows(part, len(memories)) for part in (answer.actions, answer.quantiles, ranks)]
        rows = zip(*columns, surprises or [None] * len(memories), strict=True)
        return [self._bounded(RawChunk(*row)) for row in rows]

    def _bounded(self, chunk: RawChunk) -> RawChunk:
        if self.bounds is None or chunk.quantiles is None:
            return chunk
        return chunk._replace(bounds=self.bounds.of(chunk.quantiles, self.levels))

    def _handovers(self, observations: Sequence[Observation]) -> list[Any]:
        """What is left of the rows' old chunks, normalised by the step of the processor that normalises labels."""
        return [
            None
            if o.left_over is None
            else normalised_handover(o.left_over.actions, o.left_over.delay, self._before, self.config)
            for o in observations
        ]

    def act(self, observations: Sequence[Observation], memories: Sequence["_EpisodeMemory"]) -> list[Chunk]:
        """The same, for a robot: actions that are not finite are an error."""
        return [Chunk(p.actions, p.quantiles, p.surprise) for p in self.predict(observations, memories)]


@dataclass(frozen=True)
class _EpisodeMemory:
    """An episode of the policy's own, and the decoder that was chosen for it (None: the policy's)."""

    episode: Any
    decoder: Any


@dataclass
class _Noise:
    """The random state of an episode whose policy draws from torch's global generator."""

    seed: int
    queries: int = 0

    def next_seed(self) -> int:
        self.queries += 1
        return seed_of(f"{self.seed} {self.queries}")


class PlainPolicy(_LeRobotPolicy):
    """Any other policy: one row at a time, its noise a function of the episode and the query alone."""

    def begin(self, seed: int, world: World | None, decoder: str = OWN_DECODER) -> _Noise:
        """A counter of queries."""
        if decoder != OWN_DECODER:
            raise UnusablePolicyError(
                f"decoder must be {OWN_DECODER!r} for a policy of type {self.config.type}; got {decoder!r}"
            )
        return _Noise(seed)

    def predict(self, observations: Sequence[Observation], memories: Sequence[_Noise]) -> list[RawChunk]:
        """Row by row; if one raises, no row has drawn anything."""
        queries = [noise.queries for noise in memories]
        try:
            return [self._answer(observation, noise) for observation, noise in zip(observations, memories, strict=True)]
        except Exception:
            for noise, before in zip(memories, queries, strict=True):
                noise.queries = before
            raise

    def act(self, observations: Sequence[Observation], memories: Sequence[_Noise]) -> list[Chunk]:
        """The same, for a robot: actions that are not finite are an error."""
        return [Chunk(p.actions) for p in self.predict(observations, memories)]

    @torch.no_grad()
    def _answer(self, observation: Observation, noise: _Noise) -> RawChunk:
        with torch.random.fork_rng():  # the global stream goes on as if we had not been here
            torch.manual_seed(noise.next_seed())
            self._policy.reset()
            chunk = self._policy.predict_action_chunk(self._batch([observation]))
        return RawChunk(_numpy(self._after(chunk)[0]))


def _rows(batch: Tensor | None, count: int) -> list[Any]:
    return [None] * count if batch is None else [_numpy(row) for row in batch]


def _numpy(tensor: Tensor) -> Any:
    return tensor.float().cpu().numpy()


def fingerprint(folder: Path) -> str:
    """Hash of every file of a policy folder, names included; of conformal bounds only where they are used."""
    return folder_digest(folder)


def require_known_type(folder: Path) -> None:
    """Refuse a type that neither LeRobot nor an installed plugin defines."""
    name = json.loads((folder / CONFIG).read_bytes())["type"]
    known = sorted(PreTrainedConfig.get_known_choices())
    if name not in known:
        raise ValueError(
            f"type in {folder / CONFIG} must be one of {', '.join(known)}; got {name!r}: install the plugin that"
            " defines it (pip install lerobot_policy_...)"
        )


def takes_decoders(folder: Path) -> bool:
    """Whether episodes of the folder's type of policy may name a decoder."""
    register_third_party_plugins()
    require_known_type(folder)
    kind = get_policy_class(json.loads((folder / CONFIG).read_bytes())["type"])
    return hasattr(kind, "begin_episode") and hasattr(kind, "choose_decoder")


def require_loaded(policy: Any, folder: Path) -> None:
    """Refuse a policy that does not hold the weights of its folder: some loaders go on with random ones."""
    state = policy.state_dict()
    total, known, wrong = 0, 0, []
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118
                own = state.get(name, state.get(f"model.{name}"))
                total, known = total + 1, known + (own is not None)
                if own is not None and not torch.equal(file.get_tensor(name).to(own), own):
                    wrong.append(name)
    if wrong or known < total / 2 or not total:
        raise ValueError(
            f"policy {folder} was not loaded: of the {total} tensors in its files the model knows {known} by name"
            f" and holds other values in {len(wrong)} ({', '.join(wrong[:3]) or 'none'})"
        )
