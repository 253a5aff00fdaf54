"""From LeRobot's observations to what the backbone reads, and from its actions back to the robot's.

    rename -> batch -> normalise (affine, no clipping) -> prompt text with the state in 256 bins
           -> tokens -> device -> images of the backbone's size in [-1, 1]
    actions -> unnormalise -> CPU

Everything a pipeline needs is saved with it, the tokenizer too: a checkpoint folder moves freely.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from lerobot.configs import NormalizationMode, PipelineFeatureType, PolicyFeature
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
from lerobot.utils.constants import ACTION, OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS, OBS_STATE
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from lerobot_policy_quantile.backbone.variants import VARIANTS
from lerobot_policy_quantile.configuration_quantile import SHIPPED_TOKENIZER, QuantileConfig
from lerobot_policy_quantile.core._devices import send
from lerobot_policy_quantile.policy.normalisation import with_exact_quantiles

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
            self._use(load_tokenizer(self.source))

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Add tokens and their validity to the observation."""
        if self._tokenizer is None:
            raise ValueError("the tokenizer's state is missing: give a source or load the saved step's state")
        observation = transition[TransitionKey.OBSERVATION]
        encoded = self._tokenizer.encode_batch(transition[TransitionKey.COMPLEMENTARY_DATA][self.task_key])
        for text in encoded:
            if len(text.ids) > self.max_length:
                raise ValueError(
                    f"tokenizer_max_length must hold the whole prompt, {len(text.ids)} tokens; got {self.max_length};"
                    " raise policy.tokenizer_max_length or shorten the instruction"
                )
        device = observation[OBS_STATE].device
        new = transition.copy()
        new[TransitionKey.OBSERVATION] = {
            **observation,
            OBS_LANGUAGE_TOKENS: send(torch.tensor([text.ids for text in encoded]), device),
            OBS_LANGUAGE_ATTENTION_MASK: send(torch.tensor([text.attention_mask for text in encoded]).bool(), device),
        }
        return new

    def get_config(self) -> dict[str, Any]:
        """JSON form, without the source."""
        return {"max_length": self.max_length, "vocab_size": self.vocab_size, "task_key": self.task_key}

    def state_dict(self) -> dict[str, Tensor]:
        """The tokenizer's own JSON as bytes."""
        if self._tokenizer is None:
            return {}
        return {"tokenizer_json": torch.tensor(list(self._tokenizer.to_str().encode()), dtype=torch.uint8)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore a saved tokenizer; one given by `source` stays."""
        if self.source is None:
            self._use(Tokenizer.from_str(bytes(state["tokenizer_json"].tolist()).decode()))

    def _use(self, tokenizer: Tokenizer) -> None:
        largest = max(tokenizer.get_vocab().values())
        if self.vocab_size is not None and largest >= self.vocab_size:
            raise ValueError(
                f"tokenizer must fit the backbone's vocabulary of {self.vocab_size}; its largest token is {largest};"
                " set policy.tokenizer to the one this backbone was made for"
            )
        tokenizer.no_truncation()
        pad = (tokenizer.padding or {}).get("pad_id", 0)
        tokenizer.enable_padding(length=self.max_length, pad_id=pad, pad_token=tokenizer.id_to_token(pad))
        self._tokenizer = tokenizer


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
    """
    stats = dataset_stats or {}
    dataset_meta = getattr(config, "_runtime_dataset_meta", None) if dataset_meta is None else dataset_meta
    if dataset_meta is not None:
        stats = with_exact_quantiles(stats, dataset_meta)
    default = make_default_policy_processor_steps(config, _needed_statistics(config, stats))
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


def load_tokenizer(source: str) -> Tokenizer:
    """A fast tokenizer from the package, a folder (tokenizer.json) or the hub, its padding token known."""
    if source == SHIPPED_TOKENIZER:
        text = resources.files(f"{__package__}.policy").joinpath("tokenizer.json").read_text(encoding="utf-8")
        tokenizer = Tokenizer.from_str(text)
        tokenizer.enable_padding(pad_id=tokenizer.token_to_id("<pad>"), pad_token="<pad>")
        return tokenizer
    folder = Path(source)
    if folder.is_dir() and not (folder / "tokenizer_config.json").exists():
        if not (folder / "tokenizer.json").exists():
            raise ValueError(f"tokenizer must be a folder with tokenizer.json; got {source}, which has none")
        fast: Any = PreTrainedTokenizerFast
        return _with_padding(fast(tokenizer_file=str(folder / "tokenizer.json")), folder)
    try:
        fetched = AutoTokenizer.from_pretrained(source, use_fast=True)
    except OSError as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise ValueError(
            f"tokenizer {source!r} cannot be had ({reason}); accept its licence on the hub and log in (hf auth login),"
            " or set policy.tokenizer to a folder with tokenizer.json"
        ) from error
    return _with_padding(fetched, folder)


def _with_padding(fast: Any, folder: Path) -> Tokenizer:
    # A copy: the pipeline's padding must not leak into a tokenizer that others hold.
    tokenizer = Tokenizer.from_str(fast.backend_tokenizer.to_str())
    if fast.pad_token_id is not None:
        tokenizer.enable_padding(pad_id=fast.pad_token_id, pad_token=fast.pad_token)
    elif tokenizer.padding is None:
        known = [name for name in ("<pad>", "[PAD]") if tokenizer.token_to_id(name) is not None]
        if not known:
            raise ValueError(f"tokenizer must have a padding token; {folder} names none in {_files(folder)}")
        tokenizer.enable_padding(pad_id=tokenizer.token_to_id(known[0]), pad_token=known[0])
    return tokenizer


def _files(folder: Path) -> str:
    return json.dumps(sorted(path.name for path in folder.glob("*.json"))) if folder.is_dir() else "the hub's files"


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


def _needed_statistics(config: QuantileConfig, stats: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The statistics that normalisation reads; refuses a fresh pipeline that would not normalise at all."""
    needed = {
        NormalizationMode.QUANTILES: ("q01", "q99"),
        NormalizationMode.QUANTILE10: ("q10", "q90"),
        NormalizationMode.MIN_MAX: ("min", "max"),
        NormalizationMode.MEAN_STD: ("mean", "std"),
    }
    chosen: dict[str, dict[str, Any]] = {}
    for key, kind in ((OBS_STATE, "STATE"), (ACTION, "ACTION")):
        names = needed.get(config.normalization_mapping.get(kind, NormalizationMode.IDENTITY), ())
        missing = [name for name in names if name not in stats.get(key, {})]
        if missing:
            raise ValueError(
                f"dataset_stats must hold {', '.join(missing)} of {key}; got {sorted(stats.get(key, {}))};"
                " give a dataset's statistics or load saved processors"
            )
        if names:
            chosen[key] = {name: stats[key][name] for name in names}
    return chosen
