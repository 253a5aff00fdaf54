"""LeRobot's own commands, run as a user runs them: offline, on the CPU, without a hub."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PATIENCE = 900.0
"""Seconds for one command: loading LeRobot alone takes half a minute on a busy machine."""
POLICY = ("--policy.type=quantile", "--policy.backbone=tiny", "--policy.device=cpu", "--policy.push_to_hub=false")
TRAINING = ("--num_workers=0", "--env_eval_freq=0", "--log_freq=1", "--wandb.enable=false")
ENVIRONMENT = ("--env.type=toy_cart", "--env.discover_packages_path=tests.support.toy_cart")


def environment(**extra: str) -> dict[str, str]:
    settings = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "0"}
    settings["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**os.environ, **settings, **extra}


def start(*command: object, log: Path, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Begin a command in the background; its output goes to `log`."""
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(part) for part in command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env or environment(),
            cwd=ROOT,
            start_new_session=True,
        )


def run(*command: object, log: Path, env: dict[str, str] | None = None, timeout: float = PATIENCE) -> str:
    """Run a command to its end and return its output; a failure shows the end of it."""
    code = start(*command, log=log, env=env).wait(timeout)
    text = log.read_text(errors="replace")
    assert code == 0, f"{command[0]} ended with {code}:\n{text[-4000:]}"
    return text


def wait_for_file(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until a file appears; the end of the process that should write it is an error."""

    def appeared() -> bool:
        code = process.poll()
        assert code in (None, 0), f"ended with {code}:\n{log.read_text(errors='replace')[-3000:]}"
        return path.exists()

    wait_until(appeared, f"{path}", PATIENCE)


def train_arguments(dataset: Path, output: Path, *extra: object) -> list[object]:
    data = ("--dataset.repo_id=tests/toy", f"--dataset.root={dataset}", f"--output_dir={output}")
    return [*POLICY, *TRAINING, *data, "--batch_size=4", *extra]
