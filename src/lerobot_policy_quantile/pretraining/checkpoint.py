"""From a trained student to a policy folder that LeRobot and `qhead eval` load."""

from pathlib import Path
from typing import Any

from lerobot_policy_quantile.pretraining.student import Student, base_config, processors

CARD = "README.md"


def write_checkpoint(student: Student, statistics: dict[str, dict[str, Any]], folder: Path, card: str) -> None:
    """Policy, processors and data card; auxiliary heads stay behind. The saved policy's VLM is frozen by default."""
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
