"""How often the base checkpoint puts the named thing into the basket: `make base-proof`. Exit code 1 below 90 %.

100 mixed initial states (tasks 1 to 4) that pretraining never saw and the 50 of task 0, in closed loop with median
decoding. A stopped run goes on where it was.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from lerobot_policy_quantile.evaluation.engine import EngineError
from lerobot_policy_quantile.evaluation.journal import JournalError
from lerobot_policy_quantile.evaluation.whole_run import UnfinishedError
from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.pretraining.run import print_proof


def main() -> int:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, default=None, help="another folder than the shipped one")
    parser.add_argument("--out", type=Path, default=Path("runs/base-proof"), help="folder of the journal")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    folder, notes = arguments.policy or base_checkpoint(), Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        return 0 if print_proof(folder, arguments.out, arguments.workers, notes) else 1
    except (JournalError, EngineError, UnfinishedError) as error:
        notes.print(str(error), markup=False)
        return 1


if __name__ == "__main__":
    sys.exit(main())
