"""The policy under pretraining and its loss."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.utils.constants import ACTION, OBS_LANGUAGE_ATTENTION_MASK, OBS_STATE
from safetensors.torch import load_file
from torch import Tensor, nn

from lerobot_policy_quantile.backbone import VARIANTS
from lerobot_policy_quantile.backbone.model import Reading
from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.contract import CAMERA_KEYS
from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.core.heads import FlowHead, training_loss
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.policy.base_checkpoint import FLOW_FILE, FLOW_PROJECTION
from lerobot_policy_quantile.policy.base_checkpoint import WEIGHTS as WEIGHT_FILE
from lerobot_policy_quantile.policy.tokenizer import load_tokenizer
from lerobot_policy_quantile.pretraining.auxiliary import AuxiliaryHeads
from lerobot_policy_quantile.pretraining.batches import Batch
from lerobot_policy_quantile.pretraining.ordered_numbers import start_embeddings
from lerobot_policy_quantile.processor_quantile import make_quantile_pre_post_processors
from lerobot_policy_quantile.scenes.contract import ACTION_DIM, STATE_DIM

VARIANT = VARIANTS["tiny"]
CAMERA_SIZE = VARIANT.image_size
"""Images are rendered at the backbone's input size, in pretraining and in evaluation: nothing is resized."""

N_ACTION_STEPS = 3
"""Executed before replanning. Static scenes label first actions only, so later steps of a chunk are less accurate."""

WEIGHTS = {"action": 4.0, "flow": 4.0, "spot": 0.25, "named": 0.25, "distance": 1.0}
"""With equal weights both action losses have expert gradients of similar norm: 0.15 (direct) and 0.18 (flow) after 50
updates."""


@dataclass(frozen=True)
class StudentRecipe:
    """What is pretrained: prompts, losses and aims."""

    n_prompts: int = 16
    flow: bool = False  # the expert also learns flow matching, with an output projection of its own
    aims: int = 1  # positions found by the VLM's tokens: the named object, and where it goes
    n_action_steps: int = N_ACTION_STEPS
    spot: float = WEIGHTS["spot"]  # weight of finding the embedded scene's objects

    @property
    def weights(self) -> dict[str, float]:
        """Weight of every loss."""
        return WEIGHTS | {"spot": self.spot}


DIRECT = StudentRecipe()
JOINT = StudentRecipe(n_prompts=0, flow=True, aims=2, n_action_steps=5)
"""Favours no head: a direct and a flow pass over the same prefix, and no prompts, which are new in fine-tuning."""
SPOTTING = replace(JOINT, spot=2.0)
"""The same with more weight on the embedded scene's objects: beside two action losses 0.25 does not teach them."""


def base_config(*, freeze_vlm: bool, recipe: StudentRecipe = DIRECT) -> QuantileConfig:
    """The checkpoint's configuration; rates are those for fine-tuning from it."""
    features = {OBS_STATE: PolicyFeature(FeatureType.STATE, (STATE_DIM,))}
    features |= {key: PolicyFeature(FeatureType.VISUAL, (3, CAMERA_SIZE, CAMERA_SIZE)) for key in CAMERA_KEYS.values()}
    return QuantileConfig(
        backbone=VARIANT.name,
        freeze_vlm=freeze_vlm,
        input_features=features,
        output_features={ACTION: PolicyFeature(FeatureType.ACTION, (ACTION_DIM,))},
        n_prompts=recipe.n_prompts,
        n_action_steps=recipe.n_action_steps,
        grippers=[ACTION_DIM - 1],
        optimizer_lr=5e-4,
        optimizer_prompt_lr=1e-3,
        optimizer_head_lr=1e-3,
        device="cpu",
        push_to_hub=False,
    )


class Student(nn.Module):
    """Policy and auxiliary heads, trained together."""

    def __init__(self, seed: int, recipe: StudentRecipe = DIRECT) -> None:
        super().__init__()
        self.recipe = recipe
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            config = base_config(freeze_vlm=False, recipe=recipe)
            self.policy = QuantilePolicy(config, load_backbone_weights=False)
            self.auxiliary = AuxiliaryHeads(VARIANT.vlm_width, len(CAMERA_KEYS), recipe.aims)
            sizes = (self.policy.backbone.expert_width, config.chunk_size, config.action_dim, config.max_action_dim)
            self.flow_head = FlowHead(*sizes) if recipe.flow else None
        towers = self.policy.backbone.paligemma_with_expert
        tokenizer = load_tokenizer(self.policy.config.tokenizer_source)
        start_embeddings(towers.language_model.embed_tokens, tokenizer, torch.Generator().manual_seed(seed))
        for tower in (towers.language_model, towers.expert):  # the same attention, computed faster
            tower.config._attn_implementation = "sdpa"

    def start_from(self, folder: Path) -> None:
        """Take over the weights of a checkpoint of the same recipe; auxiliary heads, which none has, begin anew."""
        saved = self.policy.config.from_pretrained(folder)
        has_flow = (folder / FLOW_FILE).is_file()
        if (saved.n_prompts, has_flow) != (self.recipe.n_prompts, self.recipe.flow):
            raise ValueError(
                f"--start must have {self.recipe.n_prompts} prompts and {'a' if self.recipe.flow else 'no'} flow"
                f" projection, as this budget trains; {folder} has {saved.n_prompts} and"
                f" {'one' if has_flow else 'none'}"
            )
        self.policy.load_state_dict(load_file(folder / WEIGHT_FILE))
        if self.flow_head is not None:
            stored = load_file(folder / FLOW_FILE)
            self.flow_head.projection.load_state_dict({k.removeprefix(FLOW_PROJECTION): v for k, v in stored.items()})

    def read(self, batch: dict[str, Any]) -> Reading:
        """One prefix pass."""
        return self.policy.backbone.read(self.policy.inputs(batch))

    def losses(self, batch: Batch, generator: torch.Generator | None = None) -> dict[str, Float[Tensor, ""]]:
        """Every loss of a batch by name; `total` is their weighted sum. Flow draws from `generator`."""
        reading = self.read(batch.policy)
        target = batch.policy[ACTION].float()
        valid = ~batch.policy["action_is_pad"][..., None].expand_as(target)
        expert = self.policy.backbone.expert(reading.prefix)
        losses = {
            "action": training_loss(
                self.policy.head, expert, target, valid, drop_ratio=0.0, generator=torch.Generator().manual_seed(0)
            )
        }
        if self.flow_head is not None:
            generator = generator or torch.Generator().manual_seed(0)
            losses["flow"] = training_loss(self.flow_head, expert, target, valid, drop_ratio=0.0, generator=generator)
        losses |= self.auxiliary.losses(reading, batch.policy[OBS_LANGUAGE_ATTENTION_MASK].bool(), batch.targets)
        losses["total"] = torch.stack([self.recipe.weights[name] * loss for name, loss in losses.items()]).sum()
        return losses

    @torch.no_grad()
    def medians(self, batch: Batch) -> Float[Tensor, "b h d"]:
        """The predicted median chunk, in normalised units."""
        expert = self.policy.backbone.expert(self.read(batch.policy).prefix)
        head: Any = self.policy.head
        zeros = torch.zeros(len(batch.targets), head.chunk_size, head.model_dim)
        quantiles: Tensor = head.quantiles(expert(zeros, zeros[:, 0, 0]))
        return quantiles[..., quantiles.shape[-1] // 2]

    @torch.no_grad()
    def flow_samples(self, batch: Batch, seeds: Sequence[int]) -> Float[Tensor, "b h d"]:
        """One flow sample per row, in normalised units."""
        if self.flow_head is None:
            raise ValueError("flow samples need a recipe with flow=True; this student has a direct head only")
        expert = self.policy.backbone.expert(self.read(batch.policy).prefix)
        return self.flow_head.predict(expert, [Episode(seed) for seed in seeds]).actions


def processors(statistics: dict[str, dict[str, Any]]) -> tuple[Any, Any]:
    """The policy's own pipelines."""
    as_tensors = {k: {n: torch.as_tensor(v) for n, v in values.items()} for k, values in statistics.items()}
    return make_quantile_pre_post_processors(base_config(freeze_vlm=True), as_tensors)
