"""Episodes per minute of `qhead eval` and of LeRobot's `lerobot-eval`: same checkpoint, task, starts, steps, machine.

Whole commands as users type them, start-up included, in turns. The checkpoint is the shipped tiny one, executing ten
actions per look. It solves nothing in LIBERO-Object, so every episode runs to the limit in both programs; a run in
which one succeeds is refused, because its episodes would not be equally long. Wall time is what users wait for;
processor time, of the command and its children, is the work behind it and depends less on what else the machine does.

The last rows say where the difference comes from, and whether a batch of observations would help on this machine.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from statistics import median

import numpy as np
from timing import Row, interleaved, milliseconds_row, ratio_row, write

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.contract import CAMERA_KEYS, OWN_DECODER, Observation
from lerobot_policy_quantile.evaluation.journal import read_rows
from lerobot_policy_quantile.scenes.libero.assets import find_assets, libero_settings

SUITE, TASK = "libero_object", 0
ACTIONS_PER_LOOK = 10
SIZE = 256
"""Pixels of our cameras; LeRobot's own default is 360."""
TARGET = 3.0
EIGHT = 8
BIN = Path(sys.executable).parent
THEIRS, OURS = "lerobot-eval", "qhead eval"
THEIRS_SMALL, THEIRS_BEST = f"{THEIRS}, {SIZE} px", f"{THEIRS}, {SIZE} px, one environment per core"
OURS_ALONE = f"{OURS}, 1 worker"


@dataclass(frozen=True)
class Run:
    """One finished command."""

    seconds: float
    """From its start to its end."""
    processor_seconds: float
    """User and system time of the command and the children it waits for (not LeRobot's environment processes)."""
    episode_seconds: float
    """Per episode by the program's own clock, start-up left out."""
    episodes: int


@dataclass(frozen=True)
class Setting:
    """What all commands share."""

    policy: Path
    limit: int
    home: Path
    runs: Path

    def call(self, command: Sequence[str | Path], out: Path) -> tuple[float, float]:
        """Seconds and processor seconds of a command; its output stays beside its results."""
        environment = {**os.environ, "HOME": str(self.home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling anew would count as start-up
        with out.with_suffix(".log").open("w") as log:
            began, worked = time.perf_counter(), children_seconds()
            code = subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT).returncode
            taken = time.perf_counter() - began, children_seconds() - worked
        if code != 0:
            raise SystemExit(f"{command[0]} ended with exit code {code}:\n{Path(log.name).read_text()[-2000:]}")
        return taken


def children_seconds() -> float:
    """Processor time of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def ours(setting: Setting, out: Path, episodes: int, *, workers: int | None = None) -> Run:
    """`qhead eval`, with its defaults unless told otherwise."""
    command: list[str | Path] = [BIN / "qhead", "eval", "--scene", SUITE, "--tasks", str(TASK)]
    command += ["--indices", f"0-{episodes - 1}"]
    command += ["--policy", f"tiny={setting.policy}", "--limit", str(setting.limit), "--out", out]
    taken = setting.call(command + (["--workers", str(workers)] if workers else []), out)
    rows = read_rows(out / "journal.sqlite")
    require_full_length([row.status == "success" for row in rows], episodes, "qhead eval")
    at_once = min(workers or min(4, os.cpu_count() or 1), episodes)
    return Run(*taken, sum(row.wall_seconds for row in rows) / at_once / episodes, episodes)


def theirs(setting: Setting, out: Path, episodes: int, *, size: int | None = None, at_once: int | None = None) -> Run:
    """`lerobot-eval`, with its defaults unless told otherwise."""
    command: list[str | Path] = [BIN / "lerobot-eval", f"--policy.path={setting.policy}", "--policy.device=cpu"]
    command += ["--env.type=libero", f"--env.task={SUITE}", f"--env.task_ids=[{TASK}]"]
    command += [f"--env.episode_length={setting.limit}", f"--eval.n_episodes={episodes}", f"--output_dir={out}"]
    command += [f"--env.observation_{side}={size}" for side in ("height", "width") if size]
    command += [f"--eval.batch_size={at_once}"] if at_once else []
    taken = setting.call(command, out)
    info = json.loads((out / "eval_info.json").read_text())
    successes = [flag for task in info["per_task"] for flag in task["metrics"]["successes"]]
    require_full_length(successes, episodes, "lerobot-eval")
    return Run(*taken, info["overall"]["eval_ep_s"], episodes)


def require_full_length(successes: list[bool], episodes: int, who: str) -> None:
    """Refuse a run whose episodes do not all have the limit's length."""
    if len(successes) != episodes or any(successes):
        raise SystemExit(f"{who} must run {episodes} episodes to the limit; got successes {successes}")


def prepare(folder: Path, limit: int) -> Setting:
    """The checkpoint, and a home folder in which hf-libero finds its settings and assets without asking."""
    policy, home = folder / "policy", folder / "home"
    shutil.copytree(Path(str(files("lerobot_policy_quantile"))) / "base", policy)
    config = json.loads((policy / "config.json").read_text())
    (policy / "config.json").write_text(json.dumps({**config, "n_action_steps": ACTIONS_PER_LOOK}))
    (home / ".cache" / "libero").mkdir(parents=True)
    (home / ".libero").mkdir()
    (home / ".cache" / "libero" / "assets").symlink_to(find_assets())
    (home / ".libero" / "config.yaml").write_text(libero_settings(find_assets()))
    return Setting(policy, limit, home, folder / "runs")


Arm = Callable[[Path, int], Run]
Found = dict[str, list[Run]]


def in_turns(setting: Setting, arms: dict[str, Arm], once: dict[str, Arm], *, episodes: int, rounds: int) -> Found:
    """Every arm once per round; those of `once` in the first round only, with half the episodes."""
    found: Found = {name: [] for name in (*arms, *once)}
    for number in range(rounds):
        for place, (name, arm) in enumerate({**arms, **({} if number else once)}.items()):
            out = setting.runs / f"{number}-{place}"
            out.parent.mkdir(parents=True, exist_ok=True)
            run = arm(out, max(1, episodes // 2) if name in once else episodes)
            found[name].append(run)
            print(
                f"round {number + 1}, {name}: {run.seconds:.0f} s for {run.episodes} episodes,"
                f" {run.processor_seconds:.0f} s of processor, {run.episode_seconds:.1f} s an episode once running",
                flush=True,
            )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=280, help="steps per episode; 280 is LIBERO-Object's")
    parser.add_argument("--episodes", type=int, default=4, help="per command; the first initial states of task 0")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="qhead-bench-") as folder:
        setting = prepare(Path(folder), arguments.limit)
        arms: dict[str, Arm] = {
            THEIRS: lambda out, n: theirs(setting, out, n),
            OURS: lambda out, n: ours(setting, out, n),
        }
        once: dict[str, Arm] = {
            THEIRS_BEST: lambda out, n: theirs(setting, out, n, size=SIZE, at_once=cores),
            THEIRS_SMALL: lambda out, n: theirs(setting, out, n, size=SIZE),
            OURS_ALONE: lambda out, n: ours(setting, out, n, workers=1),
        }
        found = in_turns(setting, arms, once, episodes=arguments.episodes, rounds=arguments.rounds)
        batch = batching_rows(setting, found[OURS_ALONE][0].episode_seconds)
    facts: dict[str, object] = {
        "suite": SUITE,
        "task": TASK,
        "episodes": arguments.episodes,
        "steps each": arguments.limit,
        "cores": cores,
        "start-up": "included unless it says once running",
    }
    return write(Path("runs/bench-eval/eval_speed"), "Evaluation speed", [*speed_rows(found), *batch], facts)


def speed_rows(found: Found) -> list[Row]:
    """Rates, the ratio that is held against the target, and where it comes from."""
    rows = [rate_row(name, runs) for name, runs in found.items()]
    wall = {name: [run.seconds for run in runs] for name, runs in found.items()}
    work = {name: [run.processor_seconds for run in found[name]] for name in (THEIRS, OURS)}
    rows.append(ratio_row(f"{OURS} against {THEIRS}", wall[THEIRS], wall[OURS], at_least=TARGET))
    rows.append(ratio_row("the same in processor time", work[THEIRS], work[OURS]))
    first = {name: runs[0].episode_seconds for name, runs in found.items()}
    for what, above, below in (
        ("once running, both as they come", THEIRS, OURS),
        (f"once running, against {THEIRS_BEST}", THEIRS_BEST, OURS),
        ("once running, from 360 to 256 px", THEIRS, THEIRS_SMALL),
        ("once running, one process each, 256 px: frames on demand and the light step", THEIRS_SMALL, OURS_ALONE),
        ("once running, our second worker", OURS_ALONE, OURS),
    ):
        rows.append(Row(what, round(first[above] / first[below], 2), "x"))
    return rows


def rate_row(name: str, runs: list[Run]) -> Row:
    """Episodes per minute of whole commands, median and range."""
    rates = [60 * run.episodes / run.seconds for run in runs]
    return Row(name, round(median(rates), 2), "episodes/min", f"{min(rates):.2f} to {max(rates):.2f}")


def batching_rows(setting: Setting, episode_seconds: float) -> list[Row]:
    """Eight observations as one batch against one by one, and how much of an episode is the policy's at all."""
    factory = SceneFactory({"tiny": str(setting.policy)})
    policy, nowhere = factory.policy("tiny"), factory.scene(SUITE)
    rng = np.random.default_rng(0)
    seen = [
        Observation(
            {name: rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8) for name in CAMERA_KEYS},
            rng.uniform(-1, 1, 8),
            "pick up the alphabet soup and place it in the basket",
        )
        for _ in range(EIGHT)
    ]
    memories = [policy.begin(seed, nowhere, OWN_DECODER) for seed in range(EIGHT)]
    batch, single = interleaved(
        [
            lambda: policy.act(seen, memories),
            lambda: [policy.act([o], [m]) for o, m in zip(seen, memories, strict=True)],
        ],
        rounds=9,
    )
    looks = -(-setting.limit // ACTIONS_PER_LOOK)
    share = 100 * looks * median(single) / EIGHT / episode_seconds
    return [
        ratio_row("policy: eight observations in one batch against one by one", single, batch),
        milliseconds_row("policy: one observation", single, per=EIGHT),
        Row("policy: its share of an episode with one worker", round(share, 1), "%"),
    ]


if __name__ == "__main__":
    sys.exit(main())
