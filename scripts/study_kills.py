"""`make study-kills`: `qhead study run ablations --small` from start to table, killed twice on the way.

The first kill -9 falls into a training, the second into the evaluation. What was done before a kill must not be done
again, and the table must hold every variant with all its episodes.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from lerobot_policy_quantile.evaluation.journal import JournalError, read_rows
from lerobot_policy_quantile.studies.plans import load_study
from lerobot_policy_quantile.studies.plans.size import load_size

QHEAD = (sys.executable, "-c", "from lerobot_policy_quantile.cli.main import app; app()")
LOOK_SECONDS = 0.2
SMALL = load_size("small")


def start(study: str, out: Path) -> subprocess.Popen[bytes]:
    """The command, as a user types it."""
    return subprocess.Popen([*QHEAD, "study", "run", study, "--small", "--device", "cpu", "--out", str(out)])


def kill_when(process: subprocess.Popen[bytes], reached: object) -> None:
    """kill -9 as soon as a moment has come."""
    while not reached():  # type: ignore[operator]
        if process.poll() is not None:
            raise RuntimeError(f"the run ended with {process.returncode} before it could be killed")
        time.sleep(LOOK_SECONDS)
    process.kill()
    process.wait()


def finished(home: Path) -> dict[str, float]:
    """Training -> when its last checkpoint was written."""
    states = home.glob("train/*/checkpoints/last/training_state/training_step.json")
    done = [path for path in states if json.loads(path.read_text())["step"] >= SMALL.updates]
    return {path.parents[3].name: path.stat().st_mtime for path in done}


def episodes(home: Path) -> dict[str, float]:
    """Episode -> how long it took."""
    try:
        return {row.key.text: row.wall_seconds for row in read_rows(home / "libero" / "journal.sqlite")}
    except JournalError:  # not there yet
        return {}


def main() -> None:
    """Kill twice, then let it end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", default="ablations")
    parser.add_argument("--out", type=Path, default=Path("runs/study-kills"))
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    home, began = options.out / options.study, time.monotonic()
    names = [f"{variant.name}-0" for variant in load_study(options.study).variants]

    third = home / "train" / names[2] / "checkpoints" / "last"
    kill_when(start(options.study, options.out), third.exists)
    trained = finished(home)
    print(
        f"first kill: {time.monotonic() - began:.0f} s, {len(trained)} of {len(names)} trainings complete", flush=True
    )

    kill_when(start(options.study, options.out), lambda: len(episodes(home)) >= len(names))
    judged = episodes(home)
    print(f"second kill: {time.monotonic() - began:.0f} s, {len(judged)} episodes in the journal", flush=True)

    code = start(options.study, options.out).wait()
    minutes = (time.monotonic() - began) / 60
    table, final = (home / "table.md").read_text(), episodes(home)
    checks = {
        "exit code 0": code == 0,
        "every variant is in the table": all(f"| {name.removesuffix('-0')} " in table for name in names),
        "no training was repeated": finished(home).items() >= trained.items(),
        "no episode was repeated": final.items() >= judged.items(),
        "every episode has a result": len(final) == SMALL.evaluation["sample"] * len(names),
        "a figure beside the table": (home / "libero.svg").is_file(),
    }
    for what, holds in checks.items():
        print(f"{'pass' if holds else 'FAIL'}  {what}")
    print(f"{minutes:.1f} minutes in all")
    sys.exit(0 if all(checks.values()) else 1)


if __name__ == "__main__":
    main()
