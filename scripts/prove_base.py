"""How often the base checkpoint puts the named thing into the basket: `make base-proof`. Exit code 1 below 90 %.

100 mixed initial states (tasks 1 to 4) that pretraining never saw and the 50 of task 0, in closed loop with median
decoding. A stopped run goes on where it was.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.pretraining.run import print_proof


def main() -> int:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, default=None, help="another folder than the shipped one")
    parser.add_argument("--out", type=Path, default=Path("runs/base-proof/episodes.jsonl"), help="one line per episode")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    folder = arguments.policy or base_checkpoint()
    return 0 if print_proof(folder, arguments.out, arguments.workers, Console(stderr=True)) else 1


if __name__ == "__main__":
    sys.exit(main())
