"""The built wheel, without extras, in a clean environment: LeRobot knows the type, trains it, loads a saved policy."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lerobot_policy_quantile.processor_quantile import make_quantile_pre_post_processors
from tests.support.command_line import BIN, ROOT, environment, train_arguments
from tests.support.datasets import make_dataset
from tests.support.policies import STATS, make_policy

pytestmark = pytest.mark.slow

LOAD = """
import sys
from lerobot.utils.import_utils import register_third_party_plugins
register_third_party_plugins()
from lerobot.configs import PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
config = PreTrainedConfig.from_pretrained(sys.argv[1])
policy = get_policy_class(config.type).from_pretrained(sys.argv[1])
make_pre_post_processors(config, pretrained_path=sys.argv[1])
from lerobot_policy_quantile.policy.tokenizer import load_tokenizer
print("tokens:", load_tokenizer("shipped").get_vocab_size())
print("file:", sys.modules[type(policy).__module__].__file__)
"""


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> Path:
    """The folder of an environment that holds our wheel and its pinned dependencies, and nothing else."""
    root = tmp_path_factory.mktemp("wheel")
    sources = root / "sources"
    shutil.copytree(ROOT / "src", sources / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    quietly(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", root / "dist", cwd=sources)
    (wheel,) = (root / "dist").glob("*.whl")
    quietly(BIN / "uv", "venv", "--python", sys.executable, root / "venv", cwd=root)
    install = (BIN / "uv", "pip", "install", "--python", root / "venv" / "bin" / "python")
    install = (*install, "-c", ROOT / "requirements.lock", wheel)
    try:
        quietly(*install, "--offline", cwd=root)  # what `make` has just downloaded is in the cache
    except subprocess.CalledProcessError:
        quietly(*install, cwd=root)
    return root / "venv"


def quietly(*command: object, cwd: Path) -> str:
    settings = environment()
    del settings["PYTHONPATH"], settings["HF_HUB_OFFLINE"]
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=settings, check=True, capture_output=True, text=True
    )
    return done.stdout


def test_the_reports_templates_are_in_the_wheel(clean):
    (folder,) = clean.glob("lib/python*/site-packages/lerobot_policy_quantile/studies/two_demo/report/templates")
    assert {file.name for file in folder.iterdir()} >= {"study.html.j2", "study.md.j2", "style.css"}


def test_lerobot_train_knows_the_type(clean, tmp_path):
    text = quietly(clean / "bin" / "lerobot-train", "--help", cwd=tmp_path)
    (choices,) = re.findall(r"^  --policy.type \{(.*)\}", text, flags=re.MULTILINE)
    assert "quantile" in choices.split(",")


def test_ten_training_steps_run_without_a_simulator(clean, tmp_path):
    assert not list(clean.glob("lib/python*/site-packages/mujoco"))
    make_dataset(tmp_path / "data", frames=20)
    arguments = train_arguments(tmp_path / "data", tmp_path / "run", "--steps=10", "--policy.chunk_size=10")
    quietly(clean / "bin" / "lerobot-train", *arguments, cwd=tmp_path)
    assert (tmp_path / "run" / "checkpoints" / "000010" / "pretrained_model" / "model.safetensors").is_file()


@pytest.mark.parametrize(("command", "extra"), [("eval", "sim"), ("serve", "serve")])
def test_commands_name_the_extra_they_need(clean, tmp_path, command, extra):
    assert command in quietly(clean / "bin" / "qhead", "--help", cwd=tmp_path)
    arguments = (
        clean / "bin" / "qhead",
        command,
        "--policy",
        "nowhere",
        *(("--out", "o") if command == "eval" else ()),
    )
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"pip install 'lerobot_policy_quantile[{extra}]'" in done.stderr


def test_a_saved_policy_loads_in_a_fresh_process(clean, tmp_path):
    policy = make_policy()
    for part in (policy, *make_quantile_pre_post_processors(policy.config, STATS)):
        part.save_pretrained(tmp_path / "saved")
    out = quietly(clean / "bin" / "python", "-c", LOAD, tmp_path / "saved", cwd=tmp_path)
    assert "tokens: 824" in out
    assert f"file: {clean}" in out
