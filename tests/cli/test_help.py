"""What a new user reads: help texts whose examples parse, light start-up, errors that name the nearest choice."""

import shlex
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app

HEAVY = {"torch", "lerobot", "transformers", "numpy", "mujoco", "websockets", "matplotlib", "huggingface_hub"}


def commands(group=None, names=()):
    """(words, command) of every command, also of those in groups."""
    for name, command in (group or get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*names, name))
        else:
            yield (*names, name), command


COMMANDS = dict(commands())
EXAMPLES = sorted(
    {
        line.strip()
        for command in COMMANDS.values()
        for line in command.help.replace("\\[", "[").splitlines()
        if line.startswith("  qhead ")
    }
)


def invoke(*arguments):
    return CliRunner().invoke(app, [str(part) for part in arguments], env={"COLUMNS": "200"})


def test_help_loads_nothing_heavy():
    code = "import sys, lerobot_policy_quantile.cli.main; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & HEAVY


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_a_summary_an_example_and_help_for_every_option(words):
    command = COMMANDS[words]
    summary = command.help.split("\n\n")[0]
    assert summary.endswith((".", "?"))
    assert len(summary) <= 120
    assert f"  qhead {' '.join(words)}" in command.help
    for parameter in command.params:
        assert parameter.help, parameter.name
        assert parameter.help.endswith("."), parameter.name
    assert invoke(*words, "--help").exit_code == 0


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_parse_and_fit_a_terminal(example):
    assert len(example) <= 76
    _, *words = shlex.split(example)
    depth = 2 if words[0] in ("study", "data", "alarm") else 1
    COMMANDS[tuple(words[:depth])].make_context(words[depth - 1], words[depth:])


def test_a_wrong_example_would_be_noticed():
    with pytest.raises(Exception, match="No such option: --indexes"):
        COMMANDS["eval",].make_context("eval", ["--indexes", "0-9"])


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (("eval", "--policy", "exprt", "--out", "x"), 2, "expert"),
        (("eval", "--policy", "expert", "--out", "x", "--engine", "locl"), 2, "local"),
        (("eval", "--suite", "libero", "--protocol", "papr", "--dry-run"), 2, "paper"),
        (("serve", "--policy", "x", "--guard", "clmp"), 2, "clamp"),
        (("study", "two-demo", "--settings", "dmo", "--out", "x"), 2, "demo"),
        (("study", "run", "ablation"), 1, "ablations"),
        (("table", "x", "--format", "latx"), 1, "latex"),
        (("pretrain", "--budget", "smal", "--out", "x"), 1, "small"),
        (("collect", "--routes", "lfet", "--out", "x"), 1, "left"),
        (("collect", "--wording", "bdll", "--out", "x"), 1, "bddl"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else None,
)
def test_an_unknown_name_is_answered_with_the_nearest_one(tmp_path, monkeypatch, words, code, hint):
    monkeypatch.chdir(tmp_path)
    result = invoke(*words)
    assert result.exit_code == code
    assert f"did you mean '{hint}'?" in " ".join(result.stderr.replace("│", " ").split())
    assert not list(tmp_path.iterdir())
