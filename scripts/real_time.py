"""`make real-time`: chunks that join while the robot moves. Writes docs/results/real_time.md and its figures; resumes.

    python -m scripts.real_time --policy embedded:quantile=FOLDER --policy embedded:l1=FOLDER --obstacle FOLDER

Parts: delays (every handover at every delay), cost (a replan's passes and time), pushes (surprise after the object was
pushed), sides (with --obstacle, a policy of the two-demonstration study: which side of the obstacle). Without --policy
the shipped base acts in the embedded scene.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from lerobot_policy_quantile.evaluation.engine import EngineError
from lerobot_policy_quantile.evaluation.journal import JournalError
from lerobot_policy_quantile.evaluation.plan import parse_numbers
from lerobot_policy_quantile.evaluation.whole_run import UnfinishedError
from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.studies.real_time import report
from lerobot_policy_quantile.studies.real_time.cost import DELAY, replan_costs
from lerobot_policy_quantile.studies.real_time.run import JoiningStudy
from lerobot_policy_quantile.util.files import write_text
from lerobot_policy_quantile.util.processes import share_cores

PARTS = ("delays", "cost", "pushes", "sides")
HEAD = """# Real time

After this page you know how chunks join where an answer takes time, as measured by `{command}`.

[Real time](../explanation/real_time.md) explains the handovers and the measures. {episodes} episodes per line, paired.
"""


def policies_of(texts: list[str]) -> dict[str, dict[str, str]]:
    """Scene -> name -> folder, of texts such as embedded:l1=runs/l1."""
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        scene, colon, rest = text.partition(":")
        name, equals, folder = rest.partition("=")
        if not (colon and equals and scene and name and folder):
            raise ValueError(f"--policy must read like embedded:l1=FOLDER; got {text!r}")
        found.setdefault(scene, {})[name] = folder
    return found or {"embedded": {"quantile": str(base_checkpoint())}}


def sections(study: JoiningStudy, options: argparse.Namespace) -> Iterator[str]:
    """The page's parts, each run before it is written."""
    policies, parts = policies_of(options.policy), options.parts.split(",")
    for scene, own in policies.items():
        if "delays" not in parts:
            break
        cells = report.cells_of(*study.delays_in(scene, own))
        figure = report.delay_figure(scene, cells)
        write_text(options.into / f"{figure.name}.svg", figure.svg_file())
        yield f"## Delays: {scene}\n\n![{figure.caption}]({figure.name}.svg)\n\n{report.delay_table(cells)}"
        if lines := report.target_lines(cells, DELAY):
            yield f"At a delay of {DELAY} steps:\n\n" + "\n".join(lines) + "\n"
    everyone = {name: folder for own in policies.values() for name, folder in own.items()}
    if "cost" in parts:
        yield f"## Cost of a replan\n\n{report.cost_table(replan_costs(everyone))}"
    laws = {name: folder for name, folder in policies.get("embedded", {}).items() if name.startswith("quantile")}
    if "pushes" in parts and laws:
        yield "## Surprise after a push\n\n" + "\n".join(report.push_lines(study.pushes(laws, DELAY))) + "\n"
    if "sides" in parts and options.obstacle:
        counts = study.sides({"quantile": str(options.obstacle)}, DELAY)
        yield "## Sides of the obstacle\n\n" + "\n".join(report.side_lines(counts)) + "\n"


def main() -> int:
    """Run what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="append", default=[], help="SCENE:NAME=FOLDER; repeatable")
    parser.add_argument("--obstacle", type=Path, help="a quantile policy of the two-demonstration study")
    parser.add_argument("--episodes", type=int, default=100, help="per policy, decoder, handover and delay")
    parser.add_argument("--delays", default="0,2,4,6", help="in steps")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, default=Path("runs/real_time"), help="folder of the journals")
    parser.add_argument("--into", type=Path, default=Path("docs/results"), help="folder of the page")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    share_cores(options.workers)
    notes = Console(stderr=True, soft_wrap=True, highlight=False)
    delays = parse_numbers("--delays", options.delays)
    study = JoiningStudy(options.out, options.episodes, delays, options.workers, notes)
    command = " ".join(["python -m scripts.real_time", *sys.argv[1:]])
    options.into.mkdir(parents=True, exist_ok=True)
    try:
        parts = [HEAD.format(command=command, episodes=options.episodes), *sections(study, options)]
    except (UnfinishedError, JournalError, EngineError, ValueError) as error:
        notes.print(str(error), markup=False)
        return 1
    write_text(options.into / "real_time.md", "\n".join(parts))
    notes.print(f"wrote {options.into / 'real_time.md'}", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
