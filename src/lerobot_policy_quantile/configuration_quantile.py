"""The policy's configuration: every choice of the method as one flat, validated field."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lerobot.configs import NormalizationMode, PreTrainedConfig
from lerobot.optim import AdamWConfig
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from lerobot.utils.constants import ACTION, OBS_STATE

from lerobot_policy_quantile.backbone.variants import VARIANTS
from lerobot_policy_quantile.core._checks import require_between, require_choice
from lerobot_policy_quantile.core.decoders import parse_decoder
from lerobot_policy_quantile.core.levels import DEFAULT_K, quantile_levels
from lerobot_policy_quantile.core.ordered import DELTA0
from lerobot_policy_quantile.policy.grippers import gripper_indices
from lerobot_policy_quantile.policy.schedule import WarmupCosineConfig

SHIPPED_TOKENIZER = "shipped"
"""Names the small tokenizer inside this package; a checkpoint may carry the word anywhere."""

PALIGEMMA_TOKENIZER = "google/paligemma-3b-pt-224"

BASE, SUITES_BASE, NO_WEIGHTS = "base", "base_suites", "none"
"""As `backbone_weights`: the checkpoints of the tiny variant inside this package; random weights."""
SHIPPED_BASES = (BASE, SUITES_BASE)
DEFAULT_WEIGHTS = {"pi05": "lerobot/pi05_base", "tiny": BASE}
"""Default initial weights of a new policy's backbone; a variant that is not listed has no checkpoint."""

FLOW_HEADS = ("flow", "one_step_flow")

CHOICES: dict[str, tuple[str, ...]] = {
    "backbone": tuple(VARIANTS),
    "head": ("quantile", "l1", "l2", *FLOW_HEADS),
    "supervise": ("all", "median"),
    "gaps": ("separate", "symmetric"),
    "anchor": ("shared", "detached"),
    "query": ("zero", "noise", "vlm"),
    "output_projection": ("inherited", "fresh"),
    "normalise_by": ("dataset", BASE),
    "dtype": ("float32", "bfloat16"),
}

QUANTILE_ONLY = {"supervise": "all", "gaps": "separate", "anchor": "shared", "decoder": "median"}
"""Fields that only the quantile head reads, with the value every other head must leave."""

WEIGHT_FIELDS = (
    *("backbone", "head", "n_quantiles", "chunk_size", "gaps", "delta0"),
    *("query", "n_prompts", "max_action_dim", "backbone_layers"),
)
"""Fields that decide what trained weights mean: a checkpoint is loaded only with its own values."""


@PreTrainedConfig.register_subclass("quantile")
@dataclass
class QuantileConfig(PreTrainedConfig):  # type: ignore[misc]
    """pi0.5 with a quantile action head (or L1, L2, flow matching on the same backbone)."""

    # Backbone
    backbone: str = "pi05"  # pi05 (full size) | small | tiny (laptop CPU)
    backbone_layers: list[int] | None = None  # of a truncated checkpoint: [Gemma and expert, SigLIP]; null: all
    backbone_weights: str | None = None  # pi05 checkpoint, "base" or "base_suites" (tiny), "none"; null: the backbone's
    freeze_vlm: bool = True  # false trains the VLM, too
    random_vlm: bool = False  # a frozen VLM of random weights is meant, with backbone_weights = none
    gradient_checkpointing: bool = False  # less memory, more time: activations are computed again going backward
    micro_batch: int | None = None  # rows per forward and backward pass; the update is the whole batch's all the same
    fast_training: bool = False  # training on the fast path, as far as it can be; not with FSDP
    prefix_cache: str | None = None  # "memory" or a folder: a frozen VLM reads each training frame only once
    dtype: str = "float32"  # float32 | bfloat16: precision of backbone arithmetic; the head is float32
    query: str = "zero"  # zero | noise | vlm (Sec. 4.3)
    n_prompts: int = 16  # 0 switches prompts off

    # Head
    head: str = "quantile"  # quantile | l1 | l2 | flow | one_step_flow
    n_quantiles: int = DEFAULT_K  # K, odd
    output_projection: str = "inherited"  # inherited (from backbone_weights) | fresh, as in the two-demonstration study
    delta0: float = DELTA0  # every gap before the first update, in normalised action units
    supervise: str = "all"  # all | median: Median-Only (Sec. 4.3)
    gaps: str = "separate"  # separate | symmetric (Sec. 4.3)
    anchor: str = "shared"  # shared | detached (Sec. 4.3)
    drop_ratio: float = 0.1  # share of valid labels without supervision, per sample and forward (Sec. 3.3)
    loss_scale: float = 1.0  # factor of the training loss, to match gradient scales: 0.5 gives l1 that of Median-Only

    # Chunks, decoding
    chunk_size: int = 10  # H, steps predicted
    n_action_steps: int = 10  # steps executed before replanning, at most chunk_size
    decoder: str = "median"  # a decoder preset, such as "shared(l=0.2, rho=0.9)"
    grippers: list[int] | None = None  # action dimensions that open and close; null: as the dataset's action names tell
    rtc_config: RTCConfig | None = None  # LeRobot's schedule of a chunk's taking over from the last one; null: ours
    episode_seed: int = 0  # seed of the first episode after loading; the next episodes count up

    # Inputs
    max_action_dim: int = 32  # actions are padded to it; 32 in pi0.5 checkpoints
    max_state_dim: int = 32  # the longest state accepted
    tokenizer: str | None = None  # "shipped", a local folder, or a hub id; None: the backbone's own
    tokenizer_max_length: int | None = None  # None: the backbone's own
    normalise_by: str = "dataset"  # dataset | base: ranges of states and actions; a frozen base reads states in its own
    normalization_mapping: dict[str, NormalizationMode] = field(  # by kind of feature; QUANTILES: q01 to -1, q99 to 1
        default_factory=lambda: {
            "VISUAL": NormalizationMode.IDENTITY,
            "STATE": NormalizationMode.QUANTILES,
            "ACTION": NormalizationMode.QUANTILES,
        }
    )

    # Optimisation (App. B)
    optimizer_lr: float = 2.5e-5  # AdamW's rate
    optimizer_prompt_lr: float = 1e-4  # of the prompts
    optimizer_head_lr: float | None = None  # of the output projection; null: as optimizer_lr
    optimizer_betas: tuple[float, float] = (0.9, 0.95)  # AdamW's
    optimizer_eps: float = 1e-8  # AdamW's
    optimizer_weight_decay: float = 0.01  # prompts: none
    optimizer_grad_clip_norm: float = 1.0  # norm to which gradients are clipped
    scheduler_warmup_steps: int = 200  # linear warm-up, then cosine; never rescaled
    scheduler_final_fraction: float = 0.1  # of the rate, at the end of the cosine

    def __post_init__(self) -> None:
        super().__post_init__()
        _raise_together("policy configuration", list(self._problems()))

    def _problems(self) -> Iterator[str]:
        """Everything wrong with the fields, reported together."""
        for name, choices in CHOICES.items():
            yield from _caught(require_choice, name, getattr(self, name), choices)
        yield from (f"n_quantiles: {message}" for message in _caught(quantile_levels, self.n_quantiles))
        yield from (f"decoder {self.decoder!r}: {message}" for message in _caught(parse_decoder, self.decoder))
        yield from _caught(require_between, "drop_ratio", self.drop_ratio, 0.0, 1.0)
        yield from _caught(require_between, "scheduler_final_fraction", self.scheduler_final_fraction, 0.0, 1.0)
        for name in ("chunk_size", "n_action_steps", "max_action_dim", "max_state_dim"):
            yield from self._unless(getattr(self, name) >= 1, name, "at least 1")
        for name in ("n_prompts", "scheduler_warmup_steps", "episode_seed"):
            yield from self._unless(getattr(self, name) >= 0, name, "0 or more")
        for name in ("delta0", "loss_scale", "optimizer_lr", "optimizer_prompt_lr", "optimizer_eps"):
            yield from self._unless(getattr(self, name) > 0, name, "positive")
        head_lr = self.optimizer_head_lr
        yield from self._unless(head_lr is None or head_lr > 0, "optimizer_head_lr", "positive, or null")
        piece = self.micro_batch
        yield from self._unless(piece is None or piece >= 1, "micro_batch", "at least 1, or null")
        yield from self._unless(self.n_obs_steps == 1, "n_obs_steps", "1")
        layers = self.backbone_layers
        two = layers is None or (len(layers) == 2 and min(layers) >= 1)
        yield from self._unless(two, "backbone_layers", "two numbers of at least 1, or null")
        yield from self._unless(
            self.n_action_steps <= self.chunk_size, "n_action_steps", f"at most chunk_size = {self.chunk_size}"
        )
        yield from self._unless((self.tokenizer_max_length or 1) >= 1, "tokenizer_max_length", "at least 1, or null")
        if self.head != "quantile" and self.head in CHOICES["head"]:
            for name, default in QUANTILE_ONLY.items():
                yield from self._unless(getattr(self, name) == default, name, f"{default!r} with head = {self.head!r}")
        if self.backbone_weights in SHIPPED_BASES:
            fits = self.backbone == "tiny"
            yield from self._unless(fits, "backbone", f"'tiny' with backbone_weights = {self.backbone_weights!r}")
        if self.normalise_by == BASE:
            fits = self.weights_source in SHIPPED_BASES
            yield from self._unless(fits, "normalise_by", "'dataset' where backbone_weights is not a shipped base")
        if self.prefix_cache is not None:
            yield from self._unless(bool(self.prefix_cache), "prefix_cache", "'memory', a folder, or null")
            yield from self._unless(self.freeze_vlm, "freeze_vlm", "true with a prefix_cache")
        if self.head in FLOW_HEADS:
            yield from self._unless(self.query == "zero", "query", f"'zero' with head = {self.head!r}")

    def _unless(self, holds: bool, name: str, allowed: str) -> list[str]:
        return [] if holds else [f"{name} must be {allowed}; got {getattr(self, name)!r}"]

    def validate_features(self) -> None:
        """Refuse features that the policy cannot take, before any weight is made."""
        problems = []
        if not self.image_features:
            problems.append(f"input_features must hold at least one camera; got {sorted(self.input_features or {})}")
        for name, feature, width in (
            (OBS_STATE, self.robot_state_feature, "max_state_dim"),
            (ACTION, self.action_feature, "max_action_dim"),
        ):
            if feature is None:
                problems.append(f"features must hold {name}; add it to the dataset or the environment")
            elif len(feature.shape) != 1:
                problems.append(f"{name} must be a vector; got shape {tuple(feature.shape)}")
            elif feature.shape[0] > getattr(self, width):
                problems.append(
                    f"{name} has {feature.shape[0]} dimensions, above {width} = {getattr(self, width)};"
                    f" set policy.{width} to at least {feature.shape[0]}{self._beside(width)}"
                )
        if self.action_feature is not None and len(self.action_feature.shape) == 1:
            problems += _caught(gripper_indices, self.grippers, self.action_dim)
        _raise_together("policy features", problems)

    def _beside(self, width: str) -> str:
        """What else must be set where a width grows beyond the pretrained one."""
        inherits = self.output_projection == "inherited" and self.weights_source != NO_WEIGHTS
        return " and policy.output_projection=fresh" if width == "max_action_dim" and inherits else ""

    @property
    def weights_source(self) -> str:
        """Where a new policy's backbone starts: a folder, a hub id, a shipped base or "none"."""
        return self.backbone_weights or DEFAULT_WEIGHTS.get(self.backbone, NO_WEIGHTS)

    @property
    def image_resolution(self) -> tuple[int, int]:
        """Height and width the backbone's vision tower takes."""
        size = VARIANTS[self.backbone].image_size
        return size, size

    @property
    def token_length(self) -> int:
        """Tokens per prompt, padding included."""
        return self.tokenizer_max_length or VARIANTS[self.backbone].max_token_length

    @property
    def tokenizer_source(self) -> str:
        """Where the tokenizer comes from when a run starts without a saved one."""
        if self.tokenizer is not None:
            return self.tokenizer
        return PALIGEMMA_TOKENIZER if self.backbone == "pi05" else SHIPPED_TOKENIZER

    @property
    def action_dim(self) -> int:
        """Dimensions of a real action, model padding left out."""
        if self.action_feature is None:
            raise ValueError(f"output_features must hold {ACTION}; got {sorted(self.output_features or {})}")
        return int(self.action_feature.shape[0])

    @property
    def gripper_dims(self) -> tuple[int, ...]:
        """Action dimensions that are grippers; all others are motion."""
        return gripper_indices(self.grippers, self.action_dim)

    def get_optimizer_preset(self) -> AdamWConfig:
        """AdamW; `QuantilePolicy.get_optim_params` sets rate and decay per group."""
        return AdamWConfig(
            lr=self.optimizer_lr,
            betas=self.optimizer_betas,
            eps=self.optimizer_eps,
            weight_decay=self.optimizer_weight_decay,
            grad_clip_norm=self.optimizer_grad_clip_norm,
        )

    def get_scheduler_preset(self) -> WarmupCosineConfig:
        """Linear warm-up, cosine to a tenth; never rescaled."""
        return WarmupCosineConfig(
            num_warmup_steps=self.scheduler_warmup_steps, final_fraction=self.scheduler_final_fraction
        )

    @property
    def observation_delta_indices(self) -> None:
        """Only the current observation."""
        return

    @property
    def action_delta_indices(self) -> list[int]:
        """The current action and those after it."""
        return list(range(self.chunk_size))

    @property
    def reward_delta_indices(self) -> None:
        """No rewards."""
        return


def _caught(check: Callable[..., object], *arguments: Any) -> list[str]:
    """The complaint of a check that raises ValueError, if it has one."""
    try:
        check(*arguments)
    except ValueError as error:
        return [str(error)]
    return []


def _raise_together(what: str, problems: list[str]) -> None:
    if problems:
        raise ValueError(f"{what}: {len(problems)} problem(s)\n" + "\n".join(f"- {p}" for p in problems))
