"""`make bounds-study`, `make alarm-study`, `make acting-study`: what predicted distributions are good for, measured.

bounds   share of actions inside predicted intervals before and after the conformal correction, on fresh demonstrations
         of LIBERO-Object used for neither training nor calibration (the shipped base)
alarm    failures told from successes by an alarm fitted on other, successful episodes of the embedded scene, signal by
         signal, beside episode length; false alarms at two alphas
acting   success and expert passes when the alarm makes the loop look again, against ten and five fixed steps and
         adaptive replanning, on the same episodes

Each part runs commands of `qhead`, which resume, and writes its page into the folder for pages.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.evaluation.journal import Row, read_rows
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.tables.intervals import compare, wilson
from lerobot_policy_quantile.evaluation.whole_run import JOURNAL, SIDE
from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.serving.signals import SIGNALS
from lerobot_policy_quantile.util.files import write_text
from lerobot_policy_quantile.util.tables import markdown

MASSES = (0.5, 0.8, 0.95)
ALPHAS = (0.05, 0.1)
ADAPTIVE = 0.08
"""Spread up to which the adaptive arm follows a chunk, in commands: the guide's example, not tuned."""


@dataclass(frozen=True)
class StudySize:
    """How much is run."""

    demonstrations: int
    """Per task."""
    tasks: str
    masses: tuple[float, ...]
    fitting: str
    """Initial states that the alarm is fitted on, of tasks 1 to 4."""
    judging: str
    acting: str
    seeds: str
    """Of the decoder's noise; the embedded scene does not depend on them."""
    alphas: tuple[float, ...]


FULL = StudySize(20, "0-9", MASSES, "0-24", "25-49", "25-49", "0-2", ALPHAS)
SMALL = StudySize(3, "0-2", (0.5,), "0-2", "25-25", "25-25", "0", (0.4,))
DECODER = "window(l=0.2)"


@dataclass(frozen=True)
class Study:
    """Where things are."""

    out: Path
    pages: Path
    workers: int
    size: StudySize

    def qhead(self, *words: object, read: bool = False) -> str:
        """Run a command; its table is shown, or returned if it is read."""
        command = [sys.executable, "-m", "lerobot_policy_quantile.cli.main", *map(str, words)]
        print(f"qhead {shlex.join(map(str, words))}", file=sys.stderr, flush=True)
        done = subprocess.run(command, stdout=subprocess.PIPE if read else None, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.returncode)
        return done.stdout or ""

    def evaluate(self, run: str, indices: str, *how: object, seeds: str | None = None) -> Path:
        """Episodes of the embedded scene's mixed tasks; what the journal holds is not run again."""
        place = ("--tasks", "1-4", "--indices", indices, "--seeds", seeds or self.size.seeds, "--camera-size", 96)
        policy = ("--policy", f"base={base_checkpoint()}", "--decoder", DECODER)
        self.qhead("eval", *policy, *place, *how, "--workers", self.workers, "--no-video", "--out", self.out / run)
        return self.out / run

    def write(self, name: str, title: str, opening: str, target: str, parts: Sequence[str]) -> None:
        """A page of results."""
        self.pages.mkdir(parents=True, exist_ok=True)
        text = "\n\n".join([f"# {title}", opening, f"```sh\nmake {target}\n```", *(part.strip() for part in parts)])
        write_text(self.pages / name, text + "\n")
        print(self.pages / name)


def bounds(study: Study) -> None:
    """Calibration before and after the conformal correction."""
    data, policy, size = study.out / "demonstrations", study.out / "policy", study.size
    how = ("--suite", "libero_object", "--camera-size", 96, "--wording", "bddl", "--seed", 7, "--tasks", size.tasks)
    study.qhead("collect", *how, "--episodes", size.demonstrations, "--workers", study.workers, "--out", data)
    if not policy.is_dir():
        shutil.copytree(base_checkpoint(), policy)
    total = json.loads((data / "dataset" / "meta" / "info.json").read_text())["total_episodes"]
    fit, judge = (",".join(map(str, range(part, total, 2))) for part in (0, 1))
    common = ("--policy", f"base={policy}", "--dataset", data / "dataset")
    study.qhead("calibrate", *common, "--episodes", fit, "--conformal", ",".join(map(str, size.masses)))
    record = json.loads(study.qhead("calibrate", *common, "--episodes", judge, "--json", read=True))
    rows = [
        [f"{100 * each['mass']:g} %", *(_share(each[n]) for n in ("coverage_before", "coverage"))]
        + [f"{each[n]['value']:.3f}" for n in ("width_before", "width")]
        for each in record["laws"][0]["conformal"]
    ]
    opening = (
        "After this page you can tell how often actions are inside the base checkpoint's predicted intervals, and"
        f" inside the conformal bounds made of them. Bounds were fitted on {len(fit.split(','))} fresh demonstrations"
        f" of LIBERO-Object and judged on {len(record['episodes'])} others; 95 % intervals over episodes, widths in"
        " normalised units."
    )
    table = markdown(("nominal", "inside before", "inside after", "width before", "width after"), rows)
    study.write("bounds.md", "Conformal bounds on LIBERO-Object", opening, "bounds-study", [table])


def alarm(study: Study) -> None:
    """Failure prediction and false alarms."""
    size = study.size
    known, new = study.evaluate("known", size.fitting), study.evaluate("new", size.judging)
    records: dict[str, dict[str, Any]] = {}
    for name in ("all", *SIGNALS):
        chosen = () if name == "all" else ("--signals", name)
        records[name] = _fitted(study, known, new, f"{name}.json", size.alphas[0], *chosen)
    lines = [
        [
            name,
            _auroc(r["auroc"]),
            _auroc(r["horizons"][1]["auroc"]),
            _rate(r["detection"]),
            str(r["lead_steps"] or "-"),
        ]
        for name, r in records.items()
    ]
    lines.append(["episode length alone", _auroc(records["all"]["auroc_of_length"]), "-", "-", "-"])
    false = [
        [f"{alpha:g}", _rate(_fitted(study, known, new, f"alpha{alpha:g}.json", alpha)["false_alarms"])]
        for alpha in size.alphas
    ]
    first = records["all"]
    opening = (
        "After this page you can tell how well predicted quantiles announce failures of the base checkpoint in the"
        f" embedded scene. {first['episodes']} episodes, {first['failures']} of them failures, decoder {DECODER}; the"
        f" alarm was fitted on successful episodes from other initial states. Detection is at alpha ="
        f" {size.alphas[0]:g}. Episodes that differ only in the decoder's noise share an initial state: intervals,"
        " which take episodes as independent, are somewhat too narrow."
    )
    header = ("signals", "AUROC", "AUROC at half of the limit, still running", "failures detected", "lead, steps")
    tables = [markdown(header, lines), markdown(("alpha", "false alarms in successful episodes"), false)]
    study.write("alarm.md", "Failure prediction", opening, "alarm-study", tables)


def acting(study: Study) -> None:
    """What looking again on alarm gains."""
    size = study.size
    known = study.evaluate("known_ten", size.fitting, "--replan", "fixed:10")
    file = study.out / "ten.json"
    study.qhead("alarm", "fit", known, "--alpha", size.alphas[-1], "--out", file)
    arms: dict[str, tuple[object, ...]] = {
        "fixed ten": ("--replan", "fixed:10"),
        "fixed five": ("--replan", "fixed:5"),
        "ten, one on alarm": ("--replan", "fixed:10", "--alarm", file, "--on-alarm", "replan"),
        "adaptive": ("--replan", f"adaptive:{ADAPTIVE},least=2"),
        "ten, stop on alarm": ("--replan", "fixed:10", "--alarm", file, "--on-alarm", "stop"),
    }
    rows = {
        name: _by_place(study.evaluate(f"arm_{number}", size.acting, *how, seeds="8-9"))
        for number, (name, how) in enumerate(arms.items())
    }
    lines = []
    for number, (name, own) in enumerate(rows.items()):
        wins = [row.status == "success" for row in own.values()]
        rate = wilson(sum(wins) / len(wins), len(wins))
        against = ["-" if other == name else _paired(own, rows[other]) for other in ("fixed ten", "fixed five")]
        early = sum(row.status == "failure" and row.steps < int(row.versions["limit"]) for row in own.values())
        passes = _passes(study.out / f"arm_{number}", own.values()) / len(own)
        rates = (f"{sum(wins)} of {len(wins)}", f"{rate.low:.0%} to {rate.high:.0%}")
        lines.append([name, *rates, *against, str(early), f"{passes:.1f}"])
    opening = (
        "After this page you can tell whether it pays to look again when the alarm is on. Base checkpoint, embedded"
        f" scene, decoder {DECODER}, the same {len(rows['fixed ten'])} episodes in every arm, from other initial states"
        " than the alarm's; p-values are McNemar's. A stopped episode is a failure before its limit."
    )
    header = ("arm", "success", "95 %", "better / worse than ten", "than five", "stopped", "expert passes per episode")
    study.write("acting.md", "Acting on the alarm", opening, "acting-study", [markdown(header, lines)])


def _fitted(study: Study, known: Path, new: Path, name: str, alpha: float, *signals: object) -> dict[str, Any]:
    file = study.out / name
    study.qhead("alarm", "fit", known, "--alpha", alpha, *signals, "--out", file)
    found: dict[str, Any] = json.loads(study.qhead("alarm", "score", new, "--alarm", file, "--json", read=True))
    return found


def _by_place(run: Path) -> dict[tuple[int, int, int], Row]:
    return {
        (row.key.task, row.key.index, row.key.seed): row for row in read_rows(run / JOURNAL) if row.status != "error"
    }


def _paired(own: dict[tuple[int, int, int], Row], other: dict[tuple[int, int, int], Row]) -> str:
    shared = own.keys() & other.keys()
    found = compare([(own[place].status == "success", other[place].status == "success") for place in sorted(shared)])
    return f"{found.only_a} / {found.only_b} (p = {found.p_value:.2g})"


def _passes(run: Path, rows: Any) -> int:
    files = SideFiles(run / SIDE)
    return sum(len(files.read(row.key)["query_steps"]) for row in rows)


def _share(estimate: dict[str, Any]) -> str:
    ends = "" if estimate["low"] is None else f" ({100 * estimate['low']:.1f} to {100 * estimate['high']:.1f})"
    return f"{100 * estimate['value']:.1f} %{ends}"


def _auroc(estimate: dict[str, Any]) -> str:
    if estimate["value"] is None:
        return "-"
    return f"{estimate['value']:.2f} ({estimate['low']:.2f} to {estimate['high']:.2f})"


def _rate(share: dict[str, Any]) -> str:
    return "-" if share["value"] is None else f"{share['hits']} of {share['of']}, {_share(share)}"


PARTS: dict[str, Callable[[Study], None]] = {"bounds": bounds, "alarm": alarm, "acting": acting}


def main() -> int:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--out", type=Path, default=Path("runs/doubt"), help="folder of journals and data")
    parser.add_argument("--pages", type=Path, default=Path("docs/results"), help="folder of the page")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="a few episodes, to see that it runs; use other folders")
    options = parser.parse_args()
    PARTS[options.part](
        Study(options.out / options.part, options.pages, options.workers, SMALL if options.small else FULL)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
