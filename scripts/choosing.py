"""`make choice-study`: what `qhead choose-decoder` finds, and whether other episodes confirm it.

Where demonstrations go two ways (four scenes, a policy trained for each) and in the LIBERO task in which sampling
helps the shipped `base_suites` most. All settings are in `studies/choosing/settings.py`. Writes
docs/results/decoder_choice.md; a stopped run goes on where it was.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from lerobot_policy_quantile.evaluation.engine import EngineError
from lerobot_policy_quantile.evaluation.journal import JournalError
from lerobot_policy_quantile.evaluation.whole_run import UnfinishedError
from lerobot_policy_quantile.studies.choosing.run import run_choosing
from lerobot_policy_quantile.studies.choosing.settings import FULL, SMALL, ChoosingStudy
from lerobot_policy_quantile.util.exit_codes import STOPPED
from lerobot_policy_quantile.util.processes import share_cores


def main() -> int:
    """Run what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/choosing"), help="folder of policies and journals")
    parser.add_argument("--page", type=Path, default=Path("docs/results/decoder_choice.md"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="a few episodes, to see that it runs; use another folder")
    options = parser.parse_args()
    share_cores(options.workers)
    notes = Console(stderr=True, soft_wrap=True, highlight=False)
    size = SMALL if options.small else FULL
    try:
        run_choosing(ChoosingStudy(options.out, options.page, options.workers, size, notes))
    except KeyboardInterrupt:
        notes.print("stopped; run the same command again to go on")
        return STOPPED
    except (UnfinishedError, JournalError, EngineError, ValueError) as error:
        notes.print(str(error), markup=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
