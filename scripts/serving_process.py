"""For the proofs of the server: a small policy on disk, `qhead serve` as a process of its own, and its vital signs."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lerobot_policy_quantile.contract import CAMERA_KEYS, WIRE_NAMES

CAMERAS = tuple(WIRE_NAMES.values())
STATE_DIM, ACTION_DIM = 8, 7


def save_policy(folder: Path, backbone: str = "tiny", seed: int = 0) -> Path:
    """An untrained quantile policy with LIBERO's features."""
    import torch
    from lerobot.configs import FeatureType, PolicyFeature
    from lerobot.policies.factory import make_pre_post_processors

    from lerobot_policy_quantile.configuration_quantile import QuantileConfig
    from lerobot_policy_quantile.modeling_quantile import QuantilePolicy

    config = QuantileConfig(
        backbone=backbone,
        device="cpu",
        push_to_hub=False,
        input_features={
            "observation.state": PolicyFeature(FeatureType.STATE, (STATE_DIM,)),
            **{camera: PolicyFeature(FeatureType.VISUAL, (3, 32, 32)) for camera in CAMERA_KEYS.values()},
        },
        output_features={"action": PolicyFeature(FeatureType.ACTION, (ACTION_DIM,))},
    )
    torch.manual_seed(seed)
    policy = QuantilePolicy(config)
    policy.save_pretrained(folder)
    sizes = (("observation.state", STATE_DIM), ("action", ACTION_DIM))
    stats = {name: {"q01": -torch.ones(n), "q99": torch.ones(n)} for name, n in sizes}
    for pipeline in make_pre_post_processors(config, dataset_stats=stats):
        pipeline.save_pretrained(folder)
    return folder


def observation(draw: np.random.Generator, size: int = 32) -> dict[str, object]:
    """Random pictures, state and a prompt."""
    return {
        **{name: draw.integers(0, 256, (size, size, 3), dtype=np.uint8) for name in CAMERAS},
        "observation/state": draw.uniform(-1, 1, STATE_DIM).astype(np.float32),
        "prompt": "put the can into the basket",
    }


class VitalSigns(NamedTuple):
    """What a process holds. Memory that it wrote itself is `own_mib`; the rest of `resident_mib` are pages of files.

    Code of libraries and mapped weights come and go as the kernel likes: only `own_mib` can leak.
    """

    own_mib: float
    resident_mib: float
    descriptors: int
    threads: int


def vital_signs(process: int | str = "self") -> VitalSigns:
    """Of a process of this machine (Linux)."""
    folder = Path(f"/proc/{process}")
    rollup = dict(re.findall(r"^(\w+): +(\d+) kB$", (folder / "smaps_rollup").read_text(), re.MULTILINE))
    return VitalSigns(
        own_mib=int(rollup["Anonymous"]) / 2**10,
        resident_mib=int(rollup["Rss"]) / 2**10,
        descriptors=len(os.listdir(folder / "fd")),
        threads=len(os.listdir(folder / "task")),
    )


def peak_mib(process: int) -> float:
    """Most resident memory of a process since it began or since `forget_peak`."""
    (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    return int(peak) / 2**10


def cpu_seconds(process: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def forget_peak(process: int) -> None:
    """The peak is the present memory."""
    Path(f"/proc/{process}/clear_refs").write_text("5")


class RunningServer:
    """A server of this machine, known by its address and its process."""

    def __init__(self, url: str, pid: int) -> None:
        self.url, self.pid = url, pid

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def vital_signs(self) -> VitalSigns:
        """What it holds at this moment."""
        return vital_signs(self.pid)


class ServerProcess(RunningServer):
    """A server that we started."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        super().__init__(url, process.pid)
        self.process = process

    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None


@contextmanager
def serving(policy: Path, *arguments: object, log: Path | None = None) -> Iterator[ServerProcess]:
    """`qhead serve --policy POLICY --port 0 ARGUMENTS`, stopped at the end."""
    command = [Path(sys.executable).parent / "qhead", "serve", "--policy", policy, "--port", "0", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    errors = log.open("w") if log else subprocess.DEVNULL
    process = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
    )
    try:
        yield ServerProcess(process, _address(process))
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[str]) -> str:
    for line in process.stdout or ():
        if match := re.search(r"wss?://\S+:\d+", line):
            return match[0]
    raise RuntimeError(f"qhead serve ended with {process.wait()} before it listened")
