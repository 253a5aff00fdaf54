"""LIBERO-Plus as scenes `libero_plus_spatial`, `_object`, `_goal`, `_10`. A task is an instance, with start index 0.

The instruction is the base task's or, in the language category, the instance's; never the perturbed file name, which
describes the perturbation.
"""

import atexit
import os
import shutil
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.contract import Array, Frames, require_index
from lerobot_policy_quantile.scenes.libero.assets import find_data
from lerobot_policy_quantile.scenes.libero.dressing import CameraPose, Dressing
from lerobot_policy_quantile.scenes.libero.image_noise import corrupt
from lerobot_policy_quantile.scenes.libero.plus_instances import (
    LAYOUT_BDDL,
    LAYOUT_STATES,
    Instance,
    arm_starts,
    instances,
    why_unavailable,
)
from lerobot_policy_quantile.scenes.libero.suites import LiberoScene
from lerobot_policy_quantile.scenes.libero.wording import as_bddl_reads
from lerobot_policy_quantile.util.wording import BDDL, TASK

PREFIX = "libero_plus_"


class PlusScene(LiberoScene):
    """The instances made from one suite."""

    def __init__(self, name: str, *, obstacle: bool, camera_size: int, wording: str = TASK) -> None:
        if obstacle:
            raise ValueError(f"obstacle is defined for libero_object, task 0; got {name}")
        suite = "libero_" + name.removeprefix(PREFIX)
        super().__init__(name, obstacle=False, camera_size=camera_size, wording=wording, suite=suite)
        self.instances = instances(self.suite)
        self._base = {str(entry.name): number for number, entry in enumerate(self.tasks)}
        self.task_count = len(self.instances)
        self._noise: tuple[int, list[int]] | None = None
        self._seen: dict[int, Frames] = {}
        self._steps = 0

    def state_count(self, task: int) -> int:
        """One start per instance (App. B)."""
        require_index("task", task, self.task_count)
        return 1

    def instruction_of(self, task: int) -> str:
        """The base task's instruction; in the language category the instance's, in its original case with `bddl`."""
        require_index("task", task, self.task_count)
        own: str | None = self.instances[task].change.get("language")
        if own is None:
            return super().instruction_of(task)
        return own if self.wording == BDDL else as_bddl_reads(own)

    def reset(self, task: int, index: int, seed: int) -> None:
        """Begin the episode of an instance; raises ValueError if its files are missing."""
        require_index("task", task, self.task_count)
        if reason := why_unavailable(self.instances[task]):
            raise ValueError(f"{self.name} task {task} ({self.instances[task].name}) cannot be run: {reason}")
        super().reset(task, index, seed)
        number = self.instances[task].change.get("noise")
        self._noise = None if number is None else (int(number), [seed, task, index])
        self._seen, self._steps = {}, 0

    def step(self, action: Float[Array, "7"], *, observe: bool = False) -> None:
        """One control step (1/20 s). Cameras are rendered only with `observe`."""
        super().step(action, observe=observe)
        self._steps += 1

    def frames(self) -> Frames:
        """The current images; with sensor noise the external one is corrupted, the same way each time."""
        clean = super().frames()
        if self._noise is None:
            return clean
        if self._steps not in self._seen:
            number, key = self._noise
            generator = np.random.default_rng([*key, self._steps])
            # Upstream corrupts its pictures as the simulator gives them: upside down and mirrored.
            turned = corrupt(clean["external"][::-1, ::-1], number, generator)
            self._seen = {self._steps: {**clean, "external": np.ascontiguousarray(turned[::-1, ::-1])}}
        return self._seen[self._steps]

    def _words(self, task: int) -> str:
        return super()._words(self._base[self.instances[task].base_task])

    def _initial_states(self, task: int) -> Float[Array, "index n"]:
        instance = self.instances[task]
        if instance.layout_name is None:
            return super()._initial_states(self._base[instance.base_task])[:1]
        with np.load(find_data("plus") / LAYOUT_STATES, allow_pickle=False) as archive:
            state: Float[Array, "n"] = archive[instance.layout_name]
        if state.ndim != 1 or state.dtype != np.float64 or not np.isfinite(state).all():
            raise ValueError(f"start of {instance.layout_name} must be finite float64 numbers; got {state.dtype}")
        states: Float[Array, "index n"] = state[None]
        return states

    def _dressing(self, task: int) -> Dressing:
        instance = self.instances[task]
        change = instance.change
        start = change.get("initstate")
        styles = (change.get("floor_style"), change.get("wall_style"))
        return Dressing(
            bddl=self._bddl(instance),
            view=CameraPose(*change.get("view", ())),
            joints=arm_starts()[start - 1] if start else None,
            scene_xml=change.get("scene_xml"),
            styles=(str(styles[0]), str(styles[1])) if all(styles) else None,
        )

    def _bddl(self, instance: Instance) -> Path:
        if instance.layout_name is None:
            return self._file(self._base[instance.base_task], "bddl_files", "bddl_file")
        path = _unpacked() / f"{instance.suite}-{instance.number}.bddl"
        if not path.is_file():
            with zipfile.ZipFile(find_data("plus") / LAYOUT_BDDL) as archive:
                path.write_bytes(archive.read(f"{instance.layout_name}.bddl"))
        return path


@cache
def _unpacked() -> Path:
    """A folder for the layouts' bddl files, which hf-libero reads by name; gone when this process ends."""
    folder, owner = Path(tempfile.mkdtemp(prefix="qhead-plus-")), os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    return folder


def make(name: str, *, obstacle: bool, camera_size: int, wording: str) -> PlusScene:
    """Build the scene; called by `scenes.contract.make_scene`."""
    return PlusScene(name, obstacle=obstacle, camera_size=camera_size, wording=wording)
