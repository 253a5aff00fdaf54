"""A pytest plugin (`-p tests.support.blocked_imports`) that makes LeRobot and the simulators unimportable."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

BLOCKED = frozenset({"lerobot", "transformers", "datasets", "gymnasium", "mujoco", "robosuite", "libero"})


class Blocker:
    """An import hook in front of all others."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked in this run", name=name)
        return None


def pytest_configure() -> None:
    """Only as a plugin: importing this module blocks nothing."""
    sys.meta_path.insert(0, Blocker())
