"""Saves a trained student as a policy folder for LeRobot and `qhead eval`."""

from pathlib import Path
from typing import Any

from lerobot_policy_quantile.pretraining.student import Student, base_config, processors

CARD = "README.md"


def write_checkpoint(student: Student, statistics: dict[str, dict[str, Any]], folder: Path, card: str) -> None:
    """Write policy, processors and data card, without the auxiliary heads. The saved VLM is frozen by default."""
    folder.mkdir(parents=True, exist_ok=True)
    policy = student.policy
    trained, policy.config = policy.config, base_config(freeze_vlm=True)
    try:
        policy.save_pretrained(folder)
    finally:
        policy.config = trained
    for pipeline in processors(statistics):
        pipeline.save_pretrained(folder)
    (folder / CARD).write_text(card)
