"""LeRobot's pi05 with random weights, as a model, a policy and a checkpoint."""

from pathlib import Path

from lerobot.policies.pi05 import modeling_pi05

from benchmarks.lerobot_reference import pi05_config, randomise, shrunk
from lerobot_policy_quantile.backbone import Backbone, Variant
from lerobot_policy_quantile.core.heads import Head
from tests.backbone.samples import CHUNK


def lerobot_model(variant: Variant) -> modeling_pi05.PI05Pytorch:
    with shrunk(variant):
        return randomise(modeling_pi05.PI05Pytorch(pi05_config(variant, CHUNK)))


def lerobot_policy(variant: Variant) -> modeling_pi05.PI05Policy:
    with shrunk(variant):
        policy = modeling_pi05.PI05Policy(pi05_config(variant, CHUNK))
    randomise(policy.model)
    return policy


def lerobot_checkpoint(variant: Variant, folder: Path) -> modeling_pi05.PI05Policy:
    policy = lerobot_policy(variant)
    policy.save_pretrained(folder)
    return policy


def share_weights(reference: modeling_pi05.PI05Pytorch, backbone: Backbone, head: Head) -> None:
    """By LeRobot's names alone, so that it does not lean on the loader under test."""
    weights = {name: w for name, w in reference.state_dict().items() if "lm_head" not in name}
    head.projection.load_state_dict({n: weights.pop(f"action_out_proj.{n}") for n in ("weight", "bias")})
    result = backbone.load_state_dict(weights, strict=False)
    assert not result.unexpected_keys
    assert set(result.missing_keys) <= {"prompts", "query_projection.weight", "query_projection.bias"}
