"""From LeRobot's observations to what the backbone reads, and from its actions back to the robot's.

    rename -> batch -> normalise (affine, no clipping) -> prompt text with the state in 256 bins
           -> tokens -> device -> images of the backbone's size in [-1, 1]
    actions -> unnormalise -> CPU

Everything a pipeline needs is saved with it, the tokenizer too: a checkpoint folder moves freely.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from lerobot.configs import PipelineFeatureType, PolicyFeature
from lerobot.lerobot_types import EnvTransition, TransitionKey
from lerobot.policies.common.vla_utils import resize_with_pad_torch
from lerobot.processor import (
    PolicyAction,
    PolicyProcessorPipeline,
    ProcessorStep,
    ProcessorStepRegistry,
    make_default_policy_processor_steps,
    make_policy_processor_pipelines,
)
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS, OBS_STATE
from tokenizers import Tokenizer
from torch import Tensor

from lerobot_policy_quantile.backbone.variants import VARIANTS
from lerobot_policy_quantile.configuration_quantile import BASE, QuantileConfig
from lerobot_policy_quantile.core._devices import send
from lerobot_policy_quantile.policy.base_checkpoint import base_statistics
from lerobot_policy_quantile.policy.normalisation import needed_statistics, with_exact_quantiles
from lerobot_policy_quantile.policy.tokenizer import (
    fit_tokenizer,
    load_tokenizer,
    tokenize,
    tokenizer_from_tensor,
    tokenizer_to_tensor,
)

Features = dict[PipelineFeatureType, dict[str, PolicyFeature]]
STATE_BINS = 256


class _Step(ProcessorStep):  # type: ignore[misc]
    """A step that leaves the feature definitions as they are."""

    def transform_features(self, features: Features) -> Features:
        """Unchanged."""
        return features


@ProcessorStepRegistry.register(name="quantile_state_prompt")
@dataclass
class StatePromptStep(_Step):
    """Writes the task and the normalised state into the prompt, in pi0.5's words (Sec. 3.2)."""

    task_key: str = "task"

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Replace the task by the full prompt."""
        state = transition[TransitionKey.OBSERVATION].get(OBS_STATE)
        extra = transition.get(TransitionKey.COMPLEMENTARY_DATA) or {}
        if state is None:
            raise ValueError(f"{OBS_STATE} is missing; got {sorted(transition[TransitionKey.OBSERVATION])}")
        if extra.get(self.task_key) is None:
            raise ValueError(f"{self.task_key} is missing: the policy follows an instruction; got {sorted(extra)}")
        tasks = [extra[self.task_key]] if isinstance(extra[self.task_key], str) else list(extra[self.task_key])
        if len(tasks) != len(state):
            raise ValueError(f"{self.task_key} must have one text per row, {len(state)}; got {len(tasks)}")
        seen = state.cpu()
        require_finite_rows(OBS_STATE, seen, extra.get("index"))
        prompts = [prompt_text(task, bins) for task, bins in zip(tasks, state_bins(seen).tolist(), strict=True)]
        new = transition.copy()
        new[TransitionKey.COMPLEMENTARY_DATA] = {**extra, self.task_key: prompts}
        return new

    def get_config(self) -> dict[str, Any]:
        """JSON form."""
        return {"task_key": self.task_key}


@ProcessorStepRegistry.register(name="quantile_tokenizer")
@dataclass
class PromptTokenizerStep(_Step):
    """Turns the prompt into tokens, padded on the right; a prompt is never cut.

    The tokenizer itself is the step's state. `source` is read once, when a run starts, and is not
    saved: "shipped", a local folder or a hub id.
    """

    max_length: int
    source: str | None = None
    vocab_size: int | None = None
    task_key: str = "task"
    _tokenizer: Tokenizer | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.source is not None:
            self._tokenizer = fit_tokenizer(load_tokenizer(self.source), self.max_length, self.vocab_size)

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Add tokens and their validity to the observation."""
        observation = transition[TransitionKey.OBSERVATION]
        prompts = transition[TransitionKey.COMPLEMENTARY_DATA][self.task_key]
        tokens, valid = tokenize(self._loaded(), prompts, self.max_length)
        device = observation[OBS_STATE].device
        new = transition.copy()
        new[TransitionKey.OBSERVATION] = {
            **observation,
            OBS_LANGUAGE_TOKENS: send(tokens, device),
            OBS_LANGUAGE_ATTENTION_MASK: send(valid, device),
        }
        return new

    def count(self, prompt: str) -> int:
        """Tokens of a prompt, which may be too long."""
        return sum(self._loaded().encode(prompt).attention_mask)

    def _loaded(self) -> Tokenizer:
        if self._tokenizer is None:
            raise ValueError("the tokenizer's state is missing: give a source or load the saved step's state")
        return self._tokenizer

    def get_config(self) -> dict[str, Any]:
        """JSON form, without the source."""
        return {"max_length": self.max_length, "vocab_size": self.vocab_size, "task_key": self.task_key}

    def state_dict(self) -> dict[str, Tensor]:
        """The tokenizer itself."""
        return {} if self._tokenizer is None else {"tokenizer_json": tokenizer_to_tensor(self._tokenizer)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore a saved tokenizer; one given by `source` stays."""
        if self.source is None:
            saved = tokenizer_from_tensor(state["tokenizer_json"])
            self._tokenizer = fit_tokenizer(saved, self.max_length, self.vocab_size)


@ProcessorStepRegistry.register(name="quantile_images")
@dataclass
class ImageStep(_Step):
    """Fits every camera into the backbone's square, padded with black, and scales [0, 1] to [-1, 1]."""

    cameras: list[str]
    resolution: list[int]

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Replace the cameras' images."""
        observation = transition[TransitionKey.OBSERVATION]
        require_cameras(self.cameras, observation)
        images = {camera: unit_range(camera, observation[camera]) for camera in self.cameras}
        require_unit_range(images)
        fitted = {camera: fit_image(image, tuple(self.resolution)) for camera, image in images.items()}
        new = transition.copy()
        new[TransitionKey.OBSERVATION] = {**observation, **fitted}
        return new

    def get_config(self) -> dict[str, Any]:
        """JSON form."""
        return {"cameras": list(self.cameras), "resolution": list(self.resolution)}


def make_quantile_pre_post_processors(
    config: QuantileConfig,
    dataset_stats: dict[str, dict[str, Any]] | None = None,
    dataset_meta: Any = None,
) -> tuple[
    PolicyProcessorPipeline[dict[str, Any], dict[str, Any]], PolicyProcessorPipeline[PolicyAction, PolicyAction]
]:
    """The two pipelines of a fresh policy; LeRobot finds this function by its name.

    A dataset's own statistics are made exact (q01, q99 of all frames) if the dataset is known: from `dataset_meta`, or
    from the note of it that LeRobot's `make_policy` leaves in the configuration. Other statistics are taken as given.
    With `normalise_by = "base"` the base's take their place.
    """
    stats = dataset_stats or {}
    dataset_meta = getattr(config, "_runtime_dataset_meta", None) if dataset_meta is None else dataset_meta
    if config.normalise_by == BASE:
        stats = {**stats, **base_statistics(config)}
    elif dataset_meta is not None:
        stats = with_exact_quantiles(stats, dataset_meta)
    default = make_default_policy_processor_steps(config, needed_statistics(config.normalization_mapping, stats))
    variant = VARIANTS[config.backbone]
    before = [
        default.rename_observations,
        default.add_batch_dim,
        default.normalize,
        StatePromptStep(),
        PromptTokenizerStep(config.token_length, config.tokenizer_source, variant.vocab_size),
        default.to_device,
        ImageStep(list(config.image_features), list(config.image_resolution)),
    ]
    pipelines: tuple[Any, Any] = make_policy_processor_pipelines(before, [default.unnormalize, default.to_cpu])
    return pipelines


# --- text -------------------------------------------------------------------------------------


def state_bins(state: Float[Tensor, "b d"]) -> Int[Tensor, "b d"]:
    """Bin 0..255 of each normalised state value; bins cut [-1, 1] evenly, values outside take the end bins."""
    edges = torch.linspace(-1, 1, STATE_BINS + 1, dtype=torch.float64, device=state.device)[1:-1]
    return torch.bucketize(state.double(), edges, right=True)


def prompt_text(task: str, bins: Iterable[int]) -> str:
    """pi0.5's prompt: task, state bins, and the opening of the answer."""
    clean = task.strip().replace("_", " ").replace("\n", " ")
    return f"Task: {clean}, State: {' '.join(map(str, bins))};\nAction: "


# --- images -----------------------------------------------------------------------------------


def unit_range(camera: str, image: Tensor) -> Float[Tensor, "b 3 y x"]:
    """One camera's batch as numbers; bytes become [0, 1]."""
    if image.ndim != 4 or image.shape[1] != 3:
        raise ValueError(f"{camera} must have axes (b, 3, y, x); got {tuple(image.shape)}")
    return image.float() / 255 if image.dtype == torch.uint8 else image.float()


def require_unit_range(images: Mapping[str, Float[Tensor, "b 3 y x"]]) -> None:
    """Refuse pictures outside [0, 1]; all cameras are looked at in one copy."""
    bounds = torch.stack([torch.stack(image.aminmax()) for image in images.values()]).tolist()
    for camera, (low, high) in zip(images, bounds, strict=True):
        if not (low >= 0 and high <= 1):
            raise ValueError(f"{camera} must lie in [0, 1]; got {low} to {high}; divide bytes by 255")


def fit_image(image: Float[Tensor, "b 3 v u"], resolution: tuple[int, ...]) -> Float[Tensor, "b 3 y x"]:
    """Pictures in [0, 1] at the backbone's resolution, in [-1, 1]; sides keep their ratio."""
    if tuple(image.shape[2:]) != resolution:
        image = resize_with_pad_torch(image.permute(0, 2, 3, 1), *resolution).permute(0, 3, 1, 2)
    return image * 2 - 1


# --- checks -----------------------------------------------------------------------------------


def require_cameras(cameras: Iterable[str], batch: Mapping[str, Any]) -> None:
    """Refuse a batch without one of the policy's cameras."""
    missing = [camera for camera in cameras if camera not in batch]
    if missing:
        present = sorted(key for key in batch if key.startswith("observation.image"))
        raise ValueError(
            f"cameras missing: the policy reads {', '.join(missing)}; the batch has {', '.join(present) or 'none'};"
            " rename them with --rename_map or give all cameras of the training data"
        )


def require_finite_rows(key: str, values: Tensor, index: Tensor | None = None, valid: Tensor | None = None) -> None:
    """Refuse NaN and infinities, naming the row and, where known, the dataset frame."""
    holes = ~torch.isfinite(values)
    if valid is not None:
        holes &= valid
    if not bool(holes.any()):
        return
    where = holes.nonzero()[0].tolist()
    frame = "" if index is None else f" (frame index {int(index.flatten()[where[0]])})"
    place = where[1] if len(where) == 2 else tuple(where[1:])
    raise ValueError(
        f"{key} must be finite; row {where[0]}{frame}, dimension {place} holds {float(values[tuple(where)])};"
        " repair this frame or leave it out"
    )
