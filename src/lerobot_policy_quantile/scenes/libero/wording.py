"""The instruction text of LIBERO tasks: the rule that every LIBERO scene records in the journal's context.

LIBERO states a task twice: in hf-libero's `task.language`, the words of the task's file name without the scene's
prefix, and in the bddl's `:language`. They differ in 25 of 40 tasks. Public datasets and checkpoints, LeRobot and
openpi use the first. docs/guides/benchmarks.md explains what applies to each perturbation of LIBERO-Plus and -Pro.
"""

from pathlib import Path

from lerobot_policy_quantile.util.names import require_choice
from lerobot_policy_quantile.util.wording import BDDL, TASK

WORDINGS = (TASK, BDDL)
"""`task.language`: the unperturbed task's, except where the perturbation is the language or the goal. `bddl`: every
file's own `:language`; the shipped base checkpoint was pretrained on it."""


def require_wording(wording: str) -> str:
    """Raise ValueError unless it is one of `WORDINGS`; returns it."""
    require_choice("wording", wording, WORDINGS)
    return wording


def bddl_language(path: Path) -> str:
    """A bddl's `:language` as LIBERO reads it: lower case, single spaces. LIBERO must have been imported."""
    from libero.libero.envs.bddl_utils import get_problem_info

    return str(get_problem_info(str(path))["language_instruction"])


def as_bddl_reads(text: str) -> str:
    """A text as it would come out of a bddl."""
    return " ".join(text.lower().split())
