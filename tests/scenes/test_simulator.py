"""MuJoCo's settings are made when a simulator is about to be imported: not earlier, and not too late."""

import subprocess
import sys

IMPORT_EACH = """
import importlib, os, pkgutil, sys
import lerobot_policy_quantile.scenes as scenes

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("mujoco", "robosuite", "libero"):
            raise ImportError(f"asked for a simulator with MUJOCO_GL={os.environ.get('MUJOCO_GL')}")

def outcome(name):
    for loaded in [loaded for loaded in sys.modules if loaded.startswith(scenes.__name__)]:
        del sys.modules[loaded]
    os.environ.pop("MUJOCO_GL", None)
    try:
        importlib.import_module(name)
    except ImportError as error:
        return str(error)
    return f"imported with MUJOCO_GL={os.environ.get('MUJOCO_GL')}"

def names(package):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        yield module.name
        if module.ispkg and not module.name.endswith(".fast"):
            yield from names(importlib.import_module(module.name))

sys.meta_path.insert(0, Watch())
found = list(names(scenes)) + [f"{scenes.__name__}.fast.{module}" for module in ("physics", "visible", "arm_control")]
for name in found:
    print(name.removeprefix(scenes.__name__ + "."), outcome(name), sep=": ")
"""


def test_no_module_asks_for_a_simulator_without_its_settings_or_makes_them_for_nothing():
    done = subprocess.run([sys.executable, "-c", IMPORT_EACH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    chosen = "egl" if sys.platform == "linux" else None
    asking = {name for name, text in told.items() if text == f"asked for a simulator with MUJOCO_GL={chosen}"}
    quiet = {name for name, text in told.items() if text == "imported with MUJOCO_GL=None"}
    assert {"embedded", "staging", "libero.suites", "fast.physics", "fast.visible", "fast.arm_control"} <= asking
    assert {"contract", "demonstrations", "lerobot_env", "libero.wording"} <= quiet
    assert told.keys() - asking - quiet <= {"simulator", "fast"}, told
