"""Which words a LIBERO task is given in: the rule that every LIBERO scene writes into the journal's context.

LIBERO states a task twice: in hf-libero's `task.language`, the words of the task's file name without the scene's
prefix, and in the bddl's `:language`. They differ in 25 of 40 tasks. Public datasets and checkpoints, LeRobot and
openpi use the first. docs/benchmarks.md says what holds for each perturbation of LIBERO-Plus and LIBERO-Pro, and why.
"""

from pathlib import Path

from lerobot_policy_quantile.contract import UNSAID_WORDING
from lerobot_policy_quantile.util.names import nearest

TASK, BDDL = "task.language", UNSAID_WORDING
WORDINGS = (TASK, BDDL)
"""`task.language`: the unperturbed task's, but where the perturbation is the language or the goal. `bddl`: every file's
own `:language`, as scenes spoke before this rule; the shipped base checkpoint was pretrained on it."""


def require_wording(wording: str) -> str:
    """Refuse a wording that is not one of `WORDINGS`."""
    if wording not in WORDINGS:
        raise ValueError(f"wording must be one of {', '.join(WORDINGS)}; got {wording!r}{nearest(wording, WORDINGS)}")
    return wording


def bddl_language(path: Path) -> str:
    """A bddl's `:language` as LIBERO reads it: lower case, single spaces. LIBERO must have been imported."""
    from libero.libero.envs.bddl_utils import get_problem_info

    return str(get_problem_info(str(path))["language_instruction"])


def as_bddl_reads(text: str) -> str:
    """A text as it would come out of a bddl."""
    return " ".join(text.lower().split())
