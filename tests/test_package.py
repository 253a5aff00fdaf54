"""Importing the package: LeRobot's plugin registers where LeRobot is; the maths alone needs none of it."""

import subprocess
import sys

import pytest

BLOCK = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "lerobot":
            raise ModuleNotFoundError(f"{name} is blocked", name=name)
sys.meta_path.insert(0, Blocker())
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_maths_works_where_lerobot_cannot_be_imported():
    done = python(BLOCK + "import lerobot_policy_quantile.core.heads as heads; print(heads.QuantileHead.__name__)")
    assert (done.returncode, done.stdout) == (0, "QuantileHead\n"), done.stderr


def test_the_policy_fails_loudly_where_lerobot_cannot_be_imported():
    done = python(BLOCK + "from lerobot_policy_quantile import QuantileConfig")
    assert done.returncode != 0
    assert "lerobot is blocked" in done.stderr or "lerobot.configs is blocked" in done.stderr


def test_the_maths_alone_does_not_load_lerobot():
    done = python("import sys, lerobot_policy_quantile.core.heads; print('lerobot' in sys.modules)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_a_broken_lerobot_is_not_hidden():
    """LeRobot is here but not whole: registering must fail, not be skipped."""
    done = python(
        "import sys, types; sys.modules['lerobot'] = types.ModuleType('lerobot')\nimport lerobot_policy_quantile"
    )
    assert done.returncode != 0
    assert "ModuleNotFoundError" in done.stderr


def test_registered_beside_lerobots_own_policies():
    from lerobot.configs import PreTrainedConfig
    from lerobot.processor import ProcessorStepRegistry

    import lerobot_policy_quantile

    ours = lerobot_policy_quantile.QuantileConfig  # registers where the package was there before LeRobot
    assert PreTrainedConfig.get_choice_class("quantile") is ours
    assert {"quantile_state_prompt", "quantile_tokenizer", "quantile_images"} <= set(ProcessorStepRegistry.list())
    with pytest.raises(AttributeError, match="no attribute 'Quantile'"):
        _ = lerobot_policy_quantile.Quantile


def test_importing_the_plugin_leaves_the_environment_alone():
    """LeRobot imports every plugin, whatever policy or environment it is asked for."""
    done = python(
        "import os; os.environ.pop('MUJOCO_GL', None)\n"
        "import lerobot.configs, lerobot.envs, lerobot.policies.factory, lerobot.processor\n"
        "before = dict(os.environ)\n"
        "import lerobot_policy_quantile, lerobot_policy_quantile.modeling_quantile\n"
        "from lerobot.envs.configs import EnvConfig\n"
        "assert EnvConfig.get_choice_class('embedded')\n"
        "print({name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name)})"
    )
    assert (done.returncode, done.stdout) == (0, "set()\n"), done.stderr
