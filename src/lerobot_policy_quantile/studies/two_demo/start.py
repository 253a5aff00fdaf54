"""Where training begins: a base's VLM and expert, prompts and output projection, the same for every head (App. B.3)."""

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.configs import FeatureType, PolicyFeature, PreTrainedConfig

import lerobot_policy_quantile
from lerobot_policy_quantile.backbone import load_pi05_weights
from lerobot_policy_quantile.backbone.recognise import recognise
from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.contract import CAMERA_KEYS
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.policy.base_checkpoint import load_base_weights, processors_from_base
from lerobot_policy_quantile.policy.normalisation import normalisation_range
from lerobot_policy_quantile.processor_quantile import make_quantile_pre_post_processors
from lerobot_policy_quantile.scenes.contract import ACTION_DIM, STATE_DIM
from lerobot_policy_quantile.studies.two_demo.demos import Lesson
from lerobot_policy_quantile.studies.two_demo.records import DemonstrationRecord
from lerobot_policy_quantile.studies.two_demo.settings import StudySettings
from lerobot_policy_quantile.util.digests import digest_each, digest_files

RANDOM = "random"
"""In place of a base: the tiny variant with random weights, to try the machinery; it grasps nothing."""

OWN, PI05 = "quantile", "pi05"
CHUNK_SIZE = 10
LEAST_RANGE = {"observation.state": 0.05, "action": 0.2}
"""Of a normalised dimension without a base's statistics: a rotation command of 0.01 must stay small."""


@dataclass(frozen=True)
class Fresh:
    """A policy before its first update, and its processors."""

    policy: QuantilePolicy
    before: Any
    after: Any


def base_fingerprint(base: str) -> str:
    """Hash of the base's weights, settings and processors; the word itself for random weights."""
    if base == RANDOM:
        return RANDOM
    files = sorted(path for path in Path(base).iterdir() if path.suffix in (".json", ".safetensors"))
    return _files_fingerprint(tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in files))


@cache
def _files_fingerprint(files: tuple[tuple[Path, int, int], ...]) -> str:
    return digest_files(path for path, *_ in files)


def fresh_policy(base: str, head: str, training_seed: int, settings: StudySettings, lesson: Lesson) -> Fresh:
    """The policy from which a head's training begins. Given the seed, all heads share everything they have in common.

    The backbone is built before the head and the head's projection before its gaps, so one seed draws the same
    prompts and the same projection for every head; the base then overwrites all but the gaps, which begin at
    zero, an output projection that is to be fresh, and prompts that are to be new or that it does not have.
    """
    _ = lerobot_policy_quantile.QuantileConfig  # registers the policy type
    config = _config(base, head, settings)
    policy = _seeded_policy(config, training_seed)
    drawn = [prompts.detach().clone() for prompts in policy.backbone.prompt_parameters()]
    if base == RANDOM:
        stand_in = _seeded_policy(config, 0).backbone.paligemma_with_expert.paligemma
        policy.backbone.paligemma_with_expert.paligemma.load_state_dict(stand_in.state_dict())
        before, after = make_quantile_pre_post_processors(config, _statistics(lesson.demonstrations))
    elif base_type(base) == PI05:
        load_pi05_weights(policy.backbone, policy.head, base, output_projection=config.output_projection)
        before, after = make_quantile_pre_post_processors(config, _statistics(lesson.demonstrations))
    else:
        load_base_weights(policy.backbone, policy.head, Path(base), output_projection=config.output_projection)
        before, after = processors_from_base(config, folder=Path(base), ground=lesson.ground)
    if settings.prompts == "new":
        with torch.no_grad():
            for prompts, values in zip(policy.backbone.prompt_parameters(), drawn, strict=True):
                prompts.copy_(values)
    return Fresh(policy.to(settings.device), before, after)


def base_type(base: str) -> str:
    """`quantile` or `pi05`: what kind of policy lies in the folder; others are refused."""
    kind = json.loads((Path(base) / "config.json").read_text()).get("type")
    if kind not in (OWN, PI05):
        raise ValueError(f"--base must hold a policy of type {OWN} or {PI05}; {base} holds {kind!r}")
    return str(kind)


def only_float32() -> None:
    """No TF32 on a GPU, as in the paper: it rounds to 10 bits."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def _seeded_policy(config: QuantileConfig, seed: int) -> QuantilePolicy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return QuantilePolicy(config, load_backbone_weights=False)


def _config(base: str, head: str, settings: StudySettings) -> QuantileConfig:
    ours: dict[str, Any] = {
        "head": head,
        "decoder": "median",
        "drop_ratio": 0.0,  # padding masks only
        "fast_training": True,
        "n_action_steps": CHUNK_SIZE,
        "optimizer_lr": settings.learning_rate,
        "optimizer_prompt_lr": settings.prompt_learning_rate,
        "optimizer_head_lr": settings.head_learning_rate,
        "scheduler_warmup_steps": settings.warmup,
        "scheduler_final_fraction": settings.final_fraction,
        "output_projection": settings.output_projection,
        "device": settings.device,
    }
    if base == RANDOM:
        ours |= {"backbone": "tiny"}
    elif base_type(base) == PI05:
        ours |= _of_pi05(Path(base))
    else:
        saved: QuantileConfig = PreTrainedConfig.from_pretrained(base)
        return replace(saved, n_prompts=saved.n_prompts or QuantileConfig.n_prompts, **ours)
    camera = PolicyFeature(FeatureType.VISUAL, (3, settings.camera_size, settings.camera_size))
    return QuantileConfig(
        push_to_hub=False,
        input_features={
            "observation.state": PolicyFeature(FeatureType.STATE, (STATE_DIM,)),
            **dict.fromkeys(CAMERA_KEYS.values(), camera),
        },
        output_features={"action": PolicyFeature(FeatureType.ACTION, (ACTION_DIM,))},
        **ours,
    )


def _of_pi05(base: Path) -> dict[str, Any]:
    """What a pi05 checkpoint decides. Its folder may hold the tokenizer, too, which is gated on the hub."""
    saved = json.loads((base / "config.json").read_text())
    backbone, layers = recognise(base)
    return {
        "backbone": backbone,
        "backbone_layers": layers,
        "backbone_weights": str(base),
        "max_action_dim": saved["max_action_dim"],
        "tokenizer": str(base) if (base / "tokenizer.json").is_file() else None,
        "grippers": [ACTION_DIM - 1],
    }


def _statistics(demonstrations: tuple[DemonstrationRecord, ...]) -> dict[str, dict[str, Any]]:
    found = {}
    for key, field in (("observation.state", "states"), ("action", "actions")):
        values = np.concatenate([getattr(d, field) for d in demonstrations])
        ends = normalisation_range(values)
        middle, half = (ends["q01"] + ends["q99"]) / 2, (ends["q99"] - ends["q01"]) / 2
        half = np.maximum(half, LEAST_RANGE[key] / 2)
        found[key] = {"q01": torch.from_numpy(middle - half), "q99": torch.from_numpy(middle + half)}
    return found


def frozen_hash(policy: QuantilePolicy) -> str:
    """Hash of every weight that training must leave alone."""
    return digest_each(p.detach().cpu().numpy().tobytes() for p in policy.backbone.vlm_parameters())


def shared_hash(policy: QuantilePolicy) -> str:
    """Hash of what all heads start from: expert, prompts, output projection."""
    backbone = policy.backbone
    parts = [*backbone.expert_parameters(), *backbone.prompt_parameters(), *policy.head.projection.parameters()]
    return digest_each(p.detach().cpu().numpy().tobytes() for p in parts)
