"""The policy alone is a light install: what else is needed is an extra, declared, and named where it is missing."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from lerobot_policy_quantile.util.extras import EXTRAS, missing_extras

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "lerobot_policy_quantile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WITHOUT = """
import sys
HIDDEN = {names!r}
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name.split(".")[0] in HIDDEN else find(name, package)
from lerobot_policy_quantile.cli.main import app
app({arguments!r})
"""


def names(requirements) -> set[str]:
    return {canonical(Requirement(text).name) for text in requirements}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(file: Path) -> set[str]:
    """Top-level modules of other distributions that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.split(".")[0])
    return found - sys.stdlib_module_names - {PACKAGE.name}


def module_owners() -> dict[str, list[str]]:
    """Module -> distributions that bring it; Rerun's is found by a path file, which the metadata do not tell."""
    return {**packages_distributions(), "rerun": ["rerun-sdk"]}


def undeclared(files, requirements) -> set[str]:
    owners = module_owners()
    declared = names(requirements)
    return {
        module
        for file in files
        for module in imported(file)
        if not {canonical(owner) for owner in owners.get(module, [module])} & declared
    }


def test_every_import_is_declared():
    extras = PROJECT["optional-dependencies"]
    everything = [*PROJECT["dependencies"], *(text for name in EXTRAS for text in extras[name])]
    assert undeclared(PACKAGE.rglob("*.py"), everything) == set()


def test_an_import_that_is_not_declared_is_found(tmp_path):
    (tmp_path / "new.py").write_text("def later():\n    import ray.util\n    from einops import rearrange\n")
    assert undeclared([tmp_path / "new.py"], ["einops"]) == {"ray"}


def test_the_policy_asks_for_no_simulator_and_extras_bring_what_they_say():
    extras = PROJECT["optional-dependencies"]
    owners = module_owners()
    for extra, modules in EXTRAS.items():
        brought = names(extras[extra])
        assert not brought & names(PROJECT["dependencies"])
        assert {canonical(owners[module][0]) for module in modules} == brought
    (together,) = extras["all"]
    assert Requirement(together).extras == EXTRAS.keys()


def qhead(*arguments: str, extra: str) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(names=EXTRAS[extra], arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("sim", ("eval", "--policy", "expert", "--out", "nowhere")),
        ("serve", ("serve", "--policy", "nowhere")),
        ("report", ("report", "nowhere")),
    ],
)
def test_a_command_without_its_extra_names_it_in_one_sentence(extra, command):
    done = qhead(*command, extra=extra)
    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert sentence.endswith(f"pip install 'lerobot_policy_quantile[{extra}]'")
    assert EXTRAS[extra][0] in sentence
    assert not (ROOT / "nowhere").exists()


def test_only_a_policy_server_needs_the_extra_for_servers():
    far = qhead("eval", "--policy", "ws://host:8000", "--out", "nowhere", extra="serve")
    assert far.returncode == 2
    assert "lerobot_policy_quantile[serve]" in far.stderr
    near = qhead("eval", "--policy", "expert", "--out", "nowhere", "--engine", "none", extra="serve")
    assert "--engine must be one of local, ray" in near.stderr


def test_the_list_of_commands_needs_no_extra():
    done = qhead("--help", extra="sim")
    assert done.returncode == 0, done.stderr
    assert "eval" in done.stdout


def test_here_nothing_is_missing():
    assert missing_extras(*EXTRAS) is None
