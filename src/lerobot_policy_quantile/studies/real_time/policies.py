"""The study's policies: heads straight from the shipped bases, and one trained at the obstacle.

An L1 head straight from a base answers as the median does, so pausing, swapping and ensembling of the median are its
rows, too. `base` is the better one in the embedded scene, `base_suites` the only one that prepares a flow head.
"""

from dataclasses import replace
from pathlib import Path

from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.pretraining.suite_proof import head_folders
from lerobot_policy_quantile.studies.two_demo.base_folder import SHIPPED, base_folder
from lerobot_policy_quantile.studies.two_demo.run import train_study
from lerobot_policy_quantile.studies.two_demo.settings import load_settings
from lerobot_policy_quantile.studies.two_demo.training import TrainingJob
from lerobot_policy_quantile.util.progress import Narrator

SUITE = "libero_object"
SUITES_BASE = "base_suites"


def base_policies(out: Path) -> dict[str, dict[str, str]]:
    """Scene -> name -> folder."""
    heads = head_folders(base_checkpoint(SUITES_BASE), out, ("quantile", "flow"))
    embedded = {"quantile": str(base_checkpoint()), "flow": heads["flow"]}
    return {"embedded": embedded, SUITE: heads}


def obstacle_policy(out: Path, workers: int, narrator: Narrator) -> str:
    """A quantile head of two demonstrations that pass the obstacle on opposite sides, trained as in `make demo`."""
    settings, base = replace(load_settings("demo"), obstacle=(True,)), base_folder(SHIPPED)
    train_study(out, settings, base, workers=workers, narrator=narrator)
    (arm,), (seed,) = settings.arms, settings.training_seeds
    return str(TrainingJob(out / arm, settings, base, "quantile", seed).policy)
