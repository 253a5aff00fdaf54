"""Saves a trained student as a policy folder for LeRobot and `qhead eval`."""

from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from lerobot_policy_quantile.policy.base_checkpoint import FLOW_FILE, FLOW_PROJECTION
from lerobot_policy_quantile.pretraining.student import Student, base_config, processors

CARD = "README.md"


def write_checkpoint(student: Student, statistics: dict[str, dict[str, Any]], folder: Path, card: str) -> None:
    """Write policy, processors and data card, without the auxiliary heads. The saved VLM is frozen by default.

    The output projection of a flow pass has a file of its own, since the policy's own weights are its direct head's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    policy = student.policy
    trained, policy.config = policy.config, base_config(freeze_vlm=True, recipe=student.recipe)
    try:
        policy.save_pretrained(folder)
    finally:
        policy.config = trained
    if student.flow_head is not None:
        projection = student.flow_head.projection.state_dict()
        save_file({f"{FLOW_PROJECTION}{name}": tensor for name, tensor in projection.items()}, folder / FLOW_FILE)
    for pipeline in processors(statistics):
        pipeline.save_pretrained(folder)
    (folder / CARD).write_text(card)
