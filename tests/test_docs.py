"""Docs that must stay true: the index of equations, and every command and Python block of the manuals."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import draccus
import pytest
from typer.main import get_command

import lerobot_policy_quantile
from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.core.decoders import PRESETS
from tests.support.pages import EQUATIONS, MANUALS, README, ROOT, STUDY_RESULTS, blocks, command_lines, words

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


INDEX = EQUATIONS.read_text()


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


# --- commands and Python blocks ---

LINES = sorted({line for page in MANUALS for line in command_lines(page)})
CHEAP = ("decoders", "verify")
"""Run here as they stand; all others are run smaller in cli/, studies/ and test_tutorial.py, and parsed here."""
ELSEWHERE = {"git", "hf", "pip", "source"}
"""Programs that are not ours and not LeRobot's."""


def check(line: str) -> None:
    """Raise unless the program exists and takes these arguments."""
    program, *arguments = words(line)
    if "lerobot-train" in arguments:  # behind torchrun or accelerate
        program, arguments = "lerobot-train", arguments[arguments.index("lerobot-train") + 1 :]
    if program == "qhead":
        check_qhead(arguments)
    elif program in ("lerobot-train", "lerobot-eval", "lerobot-rollout"):
        check_lerobot(program, arguments)
    elif program == "make":
        (target,) = arguments
        if not re.search(rf"^{target}:.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE):
            raise ValueError(f"no make target {target}")
    elif program == "python":
        written = {block.title for page in MANUALS for block in blocks(page)}
        if arguments[0] not in written and not (ROOT / arguments[0]).is_file():
            raise ValueError(f"no file {arguments[0]}")
    elif program not in ELSEWHERE and not (ROOT / program).is_file():
        raise ValueError(f"unknown program {program}")


def check_qhead(arguments: list[str]) -> None:
    command = get_command(app)
    while hasattr(command, "commands"):
        name, *arguments = arguments
        if name not in command.commands:
            raise ValueError(f"no command {name}; there are {', '.join(command.commands)}")
        command = command.commands[name]
    command.make_context(name, arguments)


def check_lerobot(program: str, arguments: list[str]) -> None:
    """By LeRobot's own parser. A saved policy's or run's file is not there: its options are read as the type's."""
    import lerobot.configs.eval
    import lerobot.configs.train
    import lerobot.scripts.lerobot_rollout  # knows the robots

    _ = lerobot_policy_quantile.QuantileConfig  # registers policy type and scene
    evaluation, training = program == "lerobot-eval", program == "lerobot-train"
    config = {
        "lerobot-eval": lerobot.configs.eval.EvalPipelineConfig,
        "lerobot-train": lerobot.configs.train.TrainPipelineConfig,
        "lerobot-rollout": lerobot.scripts.lerobot_rollout.RolloutConfig,
    }[program]
    files = ("--policy.path=", "--config_path=")
    options = [word for word in arguments if not word.startswith(files)]
    if not any(word.startswith("--policy.type=") for word in options):
        options.append("--policy.type=quantile")
    if evaluation and not any(word.startswith("--env.type=") for word in options):
        options.append("--env.type=embedded")
    if training and not any(word.startswith("--dataset.repo_id=") for word in options):
        options.append("--dataset.repo_id=you/your_dataset")
    draccus.parse(config, args=[*options, "--policy.device=cpu"])


def test_the_manuals_have_commands():
    assert len(LINES) > 40
    assert all(command_lines(page) for page in MANUALS)


@pytest.mark.parametrize("line", LINES)
def test_commands_are_spelled_right(line):
    check(line)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("qhead eval --polcy expert", "No such option: --polcy"),
        ("qhead study rum main", "no command rum"),
        ("lerobot-train --policy.type=quantile --policy.quantiles=21", "unrecognized arguments"),
        ("lerobot-rollout --policy.path=a --robot.type=so101_follower --inference.type=rtcc", "invalid choice|rtcc"),
        ("lerobot-train --policy.type=quantile --policy.head=l3", "instantiate class QuantileConfig"),
        ("torchrun --nproc_per_node=2 lerobot-train --policy.type=quantil", "invalid choice|quantil"),
        ("make dmeo", "no make target dmeo"),
        ("python benchmarks/sped.py", "no file"),
        ("rm -rf /", "unknown program rm"),
    ],
)
def test_misspelled_commands_are_noticed(line, complaint, capsys):
    with pytest.raises((Exception, SystemExit)) as caught:
        check(line)
    assert re.search(complaint, f"{caught.value} {capsys.readouterr().err}")


@pytest.mark.parametrize("line", [x for x in LINES if words(x)[0] == "qhead" and words(x)[1] in CHEAP])
def test_cheap_commands_run(line):
    command = [Path(sys.executable).parent / "qhead", *words(line)[1:]]
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0


@pytest.mark.parametrize("code", [block.code for block in blocks(README, "python")])
def test_readme_python_runs(code):
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for said, got in zip(re.findall(r"# -> (.*)", code), result.stdout.splitlines(), strict=True):
        assert got == said


@pytest.mark.parametrize("page", MANUALS, ids=lambda page: page.stem)
def test_what_python_blocks_import_exists(page):
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block.code)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("lerobot"):
                module = importlib.import_module(node.module)
                for alias in node.names:
                    if not hasattr(module, alias.name):
                        importlib.import_module(f"{node.module}.{alias.name}")


def test_the_studys_rates_in_the_readme_are_those_of_its_results():
    results = STUDY_RESULTS.read_text().splitlines()
    (section,) = [part for part in re.split(r"\n##+ ", README.read_text()) if part.startswith("Two demonstrations")]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert len(rows) > 5
    assert [row for row in rows if row not in results] == []


def test_after_installation_the_readme_starts_with_its_two_commands():
    assert [c for c in command_lines(README) if not c.startswith("pip install")][:2] == ["make test", "make demo"]
