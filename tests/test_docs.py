"""Docs that must stay true: the index of equations and the README's commands."""

import ast
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

import lerobot_policy_quantile
from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.core.decoders import PRESETS

ROOT = Path(__file__).parent.parent
PACKAGE = Path(lerobot_policy_quantile.__file__).parent
# The paper numbers 7 equations in its body, 15 in appendix A and 5 in appendix B.
NUMBERED = [*map(str, range(1, 8)), *(f"A.{i}" for i in range(1, 16)), *(f"B.{i}" for i in range(1, 6))]
CLAIM = re.compile(r"Paper eq\. ((?:[AB]\.)?\d+)")


def tables(text: str) -> tuple[list[list[str]], list[list[str]]]:
    """Rows (cells without markup) of the numbered and of the unnumbered table."""
    sections = text.split("\n## ")
    found = []
    for title in ("Numbered equations", "Rules the paper states"):
        (section,) = [s for s in sections if s.startswith(title)]
        lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
        found.append([[c.strip().strip("`") for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines])
    return found[0], found[1]


def problems(text: str, claims: dict[str, list[str]]) -> list[str]:
    """Everything wrong with the index, given which docstrings claim which equation."""
    numbered, rules = tables(text)
    listed = [row[0] for row in numbered]
    wrong = [f"equation {n} is listed {listed.count(n)} times" for n in NUMBERED if listed.count(n) != 1]
    wrong += [f"equation {n} is not one of the paper's" for n in set(listed) - set(NUMBERED)]
    for number, _, function, test in numbered:
        if claims.get(number) != [function]:
            wrong.append(f"equation {number} is listed at {function}, docstrings claim it at {claims.get(number)}")
        wrong += missing(number, function, test)
    for rule, function, test in rules:
        wrong += missing(rule, function, test)
    return wrong


def missing(entry: str, function: str, test: str) -> list[str]:
    wrong = []
    if not resolves(function):
        wrong.append(f"{entry}: no function {function}")
    path, _, name = test.partition("::")
    file = ROOT / "tests" / path
    if not file.exists() or f"def {name}(" not in file.read_text():
        wrong.append(f"{entry}: no test {test}")
    return wrong


def resolves(function: str) -> bool:
    parts = function.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module("lerobot_policy_quantile." + ".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)
        return callable(found)
    return False


def docstring_claims() -> dict[str, list[str]]:
    """Equation number -> dotted names of the functions whose docstring says `Paper eq. N`."""
    claims: dict[str, list[str]] = {}

    def visit(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                for number in CLAIM.findall(ast.get_docstring(child) or ""):
                    claims.setdefault(number, []).append(f"{name}.{child.name}")
                visit(child, f"{name}.{child.name}")

    for file in sorted(PACKAGE.rglob("*.py")):
        visit(ast.parse(file.read_text()), ".".join(file.relative_to(PACKAGE).with_suffix("").parts))
    return claims


INDEX = (ROOT / "docs" / "equations.md").read_text()


def test_every_equation_is_indexed_once_and_truly():
    assert problems(INDEX, docstring_claims()) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (r"\| A\.4 .*\n", "", "equation A.4 is listed 0 times"),
        (r"(\| 6 .*\n)", r"\1\1", "equation 6 is listed 2 times"),
        (r"\| B\.5 \|", "| B.6 |", "equation B.6 is not one of the paper's"),
        (r"core\.losses\.pinball`", "core.losses.pinbal`", "6: no function core.losses.pinbal"),
        (r"test_point_losses", "test_pointless", "A.1: no test core/test_losses.py::test_pointless"),
    ],
)
def test_the_index_check_notices(old, new, expected):
    changed, n = re.subn(old, new, INDEX, count=1)
    assert n == 1
    assert expected in problems(changed, docstring_claims())


def test_every_decoder_beyond_the_paper_is_documented_with_its_function_and_test():
    (section,) = [part for part in INDEX.split("\n## ") if part.startswith("Decoders beyond the paper")]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    rows = [[cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    ours = {preset.name for preset in PRESETS.values() if preset.source == "ours"}
    assert {row[0].partition("(")[0] for row in rows if row[0]} == ours
    assert [wrong for name, _, function, test in rows for wrong in missing(name, function, test)] == []


def test_a_second_function_claiming_an_equation_is_noticed():
    claims = docstring_claims()
    claims["6"] = [*claims["6"], "core.heads.another_pinball"]
    assert any("equation 6 is listed at core.losses.pinball" in p for p in problems(INDEX, claims))


# --- README ---

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(python|sh)\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("code", [code for language, code in BLOCKS if language == "python"])
def test_readme_python_runs(code):
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for said, got in zip(re.findall(r"# -> (.*)", code), result.stdout.splitlines(), strict=True):
        assert got == said


COMMANDS = [line.split("#")[0].strip() for language, code in BLOCKS if language == "sh" for line in code.splitlines()]


QHEAD = sorted({c.removeprefix(".venv/bin/qhead ") for c in COMMANDS if c.startswith(".venv/bin/qhead ")})
SIMULATED = ("collect", "replay", "eval", "serve", "client", "doctor", "study", "table", "compare")
"""Run for real, smaller, in studies/ and in test_cli_*.py of collect, evaluation, serving and table."""


@pytest.mark.parametrize("command", [c for c in QHEAD if not c.startswith(SIMULATED)])
def test_readme_commands_run(command):
    words = [Path(sys.executable).parent / "qhead", *shlex.split(command)]
    assert subprocess.run(words, cwd=ROOT, capture_output=True).returncode == 0


@pytest.mark.parametrize("command", [c for c in QHEAD if c.startswith(SIMULATED)])
def test_readme_commands_of_the_simulator_are_spelled_right(command):
    name, *arguments = shlex.split(command)
    get_command(app).commands[name].make_context(name, arguments)


def test_a_misspelled_option_is_noticed():
    with pytest.raises(Exception, match="No such option: --polcy"):
        get_command(app).commands["eval"].make_context("eval", ["--polcy", "expert"])


@pytest.mark.parametrize("command", sorted({c for c in COMMANDS if c.startswith("make ")}))
def test_readme_make_targets_exist(command):
    (target,) = shlex.split(command)[1:]
    assert re.search(rf"^{target}:.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def test_the_studys_rates_in_the_readme_are_those_of_its_results():
    results = (ROOT / "docs" / "results" / "two_demo" / "README.md").read_text().splitlines()
    (section,) = [part for part in README.split("\n## ") if part.startswith("Two demonstrations")]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert len(rows) > 5
    assert [row for row in rows if row not in results] == []


def test_after_installation_the_readme_starts_with_its_two_commands():
    assert [c for c in COMMANDS if not c.startswith("pip install")][:2] == ["make test", "make demo"]
