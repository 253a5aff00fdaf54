"""`make real-time`: chunks that join while the robot moves. Writes docs/results/real_time/; resumes.

    python -m scripts.real_time
    python -m scripts.real_time --parts embedded,sides --episodes 8 --out runs/try --into runs/try/page

Parts: embedded and libero_object (every handover at every delay), fine_tuned (heads trained on fifty demonstrations of
LIBERO-Object, which it makes first; without delay and with the one that targets are for), cost (a replan's passes and
time), pushes (surprise after the object was pushed), sides (which side of the obstacle; trains its policy first). Each
keeps its results in a small file in --into, from which the page is drawn: what is there, of the same policies, is not
run again.
"""

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from lerobot_policy_quantile.evaluation.engine import EngineError
from lerobot_policy_quantile.evaluation.journal import JournalError
from lerobot_policy_quantile.evaluation.plan import parse_numbers
from lerobot_policy_quantile.evaluation.whole_run import UnfinishedError
from lerobot_policy_quantile.studies.plan_run import StepFailedError
from lerobot_policy_quantile.studies.real_time import report
from lerobot_policy_quantile.studies.real_time.cost import DELAY, replan_costs
from lerobot_policy_quantile.studies.real_time.policies import (
    SUITE,
    base_policies,
    fine_tuned_policies,
    obstacle_policy,
)
from lerobot_policy_quantile.studies.real_time.run import FINE_TUNED_HANDOVERS, JUDGED, JoiningStudy
from lerobot_policy_quantile.util.files import write_json
from lerobot_policy_quantile.util.names import require_choice
from lerobot_policy_quantile.util.processes import share_cores
from lerobot_policy_quantile.util.progress import Narrator

SCENES = ("embedded", SUITE)
FINE_TUNED = "fine_tuned"
JOINED = (*SCENES, FINE_TUNED)
PARTS = (*JOINED, "cost", "pushes", "sides")


def run_part(part: str, study: JoiningStudy, into: Path) -> None:
    """Run what is missing of a part and keep its results."""
    policies = base_policies(study.out)
    if part in SCENES:
        study.delays_in(part, policies[part], report.cell_file(into, part))
    elif part == FINE_TUNED:
        heads = fine_tuned_policies(study.out / "policies", study.workers, study.notes)
        judged = replace(study, delays=JUDGED)
        judged.delays_in(SUITE, heads, report.cell_file(into, part), FINE_TUNED_HANDOVERS, part)
    elif part == "cost":
        costs = replan_costs(policies[SUITE])
        write_json(into / report.COST, {name: asdict(cost) for name, cost in costs.items()})
    elif part == "pushes":
        found = study.pushes({"quantile": policies["embedded"]["quantile"]}, DELAY)
        write_json(into / report.PUSHES, {name: asdict(pushed) for name, pushed in found.items()})
    else:
        folder = obstacle_policy(study.out / "two_demo", study.workers, Narrator(study.notes))
        write_json(into / report.SIDES, study.sides({"quantile": folder}, DELAY))
    if part in JOINED and (seams := study.seams(part, DELAY)) is not None:
        report.keep_seams(into, part, seams)


def main() -> int:
    """Run what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--episodes", type=int, default=100, help="per policy, decoder, handover and delay")
    parser.add_argument("--delays", default="0,2,4,6", help="in steps")
    parser.add_argument("--out", type=Path, default=Path("runs/real_time"), help="folder of the journals")
    parser.add_argument("--into", type=Path, default=Path("docs/results/real_time"), help="folder of the page")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    share_cores(options.workers)
    notes = Console(stderr=True, soft_wrap=True, highlight=False)
    options.into.mkdir(parents=True, exist_ok=True)
    try:
        delays = parse_numbers("--delays", options.delays)
        study = JoiningStudy(options.out, options.episodes, delays, options.workers, notes)
        for part in options.parts.split(","):
            require_choice("--parts", part, PARTS)
        for part in options.parts.split(","):
            notes.print(f"part {part}", markup=False)
            run_part(part, study, options.into)
    except (UnfinishedError, JournalError, EngineError, StepFailedError, ValueError) as error:
        notes.print(str(error), markup=False)
        return 1
    finally:
        notes.print(f"wrote {report.write_report(options.into, JOINED)}", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
