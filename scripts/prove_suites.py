"""How often each head succeeds in LIBERO's suites straight from a base, without fine-tuning. Resumes.

python scripts/prove_suites.py --policy runs/base2/policy --out runs/base2/proof_suites --heads quantile --states 20-22
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from lerobot_policy_quantile.evaluation.engine import EngineError
from lerobot_policy_quantile.evaluation.journal import JournalError
from lerobot_policy_quantile.evaluation.plan import parse_numbers
from lerobot_policy_quantile.evaluation.whole_run import UnfinishedError
from lerobot_policy_quantile.pretraining.run import print_suite_proof
from lerobot_policy_quantile.pretraining.suite_proof import DEFAULT_HEADS, ProofChoice
from lerobot_policy_quantile.pretraining.suite_samples import SUITES


def main() -> int:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, required=True, help="the base's folder")
    parser.add_argument("--out", type=Path, required=True, help="folder of the journal")
    parser.add_argument("--suites", default=",".join(SUITES))
    parser.add_argument("--heads", default=",".join(DEFAULT_HEADS))
    parser.add_argument("--states", default="20-29")
    parser.add_argument("--tasks", default="0-9")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    notes = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        suites, heads = asked.suites.split(","), asked.heads.split(",")
        choice = ProofChoice(
            suites, heads, parse_numbers("--states", asked.states), parse_numbers("--tasks", asked.tasks)
        )
        print_suite_proof(asked.policy, asked.out, choice, asked.workers, notes)
    except (ValueError, JournalError, EngineError, UnfinishedError) as error:
        notes.print(str(error), markup=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
