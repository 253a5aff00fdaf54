"""`make bounds-study`, `make alarm-study`, `make acting-study`: what predicted distributions are good for, measured.

bounds   share of actions inside predicted intervals before and after the conformal correction, and CRPS beside that of
         flow samples, on demonstrations used for neither training nor calibration
alarm    failures told from successes by an alarm fitted on other, successful episodes, signal by signal, beside the
         disagreement of three training seeds, the spread of flow samples and time; false alarms at two alphas
acting   success and expert passes when the alarm makes the loop look again, against ten and five fixed steps and
         adaptive replanning, on the same episodes

The policies are miniatures trained for these studies on LIBERO-Spatial and LIBERO-Goal. All settings are in
`studies/doubt/settings.py`. A stopped run goes on where it was; --estimate says in advance what a study costs.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from lerobot_policy_quantile.evaluation.engine import EngineError
from lerobot_policy_quantile.evaluation.journal import JournalError
from lerobot_policy_quantile.evaluation.whole_run import UnfinishedError
from lerobot_policy_quantile.studies.doubt.acting import run_acting
from lerobot_policy_quantile.studies.doubt.alarm_study import run_alarms
from lerobot_policy_quantile.studies.doubt.bounds import run_bounds
from lerobot_policy_quantile.studies.doubt.cost import cost_table, estimate
from lerobot_policy_quantile.studies.doubt.settings import FULL, SMALL, DoubtStudy
from lerobot_policy_quantile.studies.plan_run import StepFailedError
from lerobot_policy_quantile.util.exit_codes import STOPPED
from lerobot_policy_quantile.util.processes import share_cores

PARTS: dict[str, Callable[[DoubtStudy], None]] = {"bounds": run_bounds, "alarm": run_alarms, "acting": run_acting}


def main() -> int:
    """Run one part, or say what it costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--out", type=Path, default=Path("runs/doubt"), help="folder of policies, journals and data")
    parser.add_argument("--pages", type=Path, default=Path("docs/results"), help="folder of the page")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="a few episodes, to see that it runs; use other folders")
    parser.add_argument("--estimate", action="store_true", help="time a pilot and print what the study costs (minutes)")
    options = parser.parse_args()
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    share_cores(options.workers)
    notes = Console(stderr=True, soft_wrap=True, highlight=False)
    study = DoubtStudy(options.out, options.pages, options.workers, SMALL if options.small else FULL, notes)
    try:
        if options.estimate:
            print(cost_table(estimate(options.part, study), options.workers), end="")
        else:
            PARTS[options.part](study)
    except KeyboardInterrupt:
        notes.print("stopped; run the same command again to go on")
        return STOPPED
    except (UnfinishedError, JournalError, EngineError, StepFailedError, ValueError) as error:
        notes.print(str(error), markup=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
