"""`qhead calibrate` from end to end on a toy dataset, and what it refuses before anything is loaded."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app
from tests.calibration.conftest import saved, toy_set  # noqa: F401
from tests.support.command_line import BIN, PATIENCE, environment
from tests.support.datasets import CAMERA


def invoke(*arguments):
    return CliRunner().invoke(app, ["calibrate", *map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def judged(saved, toy_set, tmp_path_factory):  # noqa: F811
    out = tmp_path_factory.mktemp("calibration") / "new" / "folder"
    policies = [word for name in ("quantile", "l1", "flow") for word in ("--policy", f"{name}={saved[name]}")]
    result = invoke(
        *policies, "--dataset", toy_set, "--episodes", "0-2", "--samples", "1,4", "--device", "cpu", "--out", out
    )
    assert result.exit_code == 0, result.output
    return result, json.loads((out / "calibration.json").read_text()), (out / "calibration.html").read_text()


def test_every_policy_and_every_baseline_has_its_scores(judged):
    _, record, _ = judged
    laws = {(law["policy"], law["law"]): law for law in record["laws"] if not law["baseline"]}
    assert {key: law["expert_passes"] for key, law in laws.items()} == {
        ("quantile", "quantiles"): 1,
        ("l1", "point"): 1,
        ("flow", "1 sample"): 10,
        ("flow", "4 samples"): 40,
    }
    assert [law["law"] for law in record["laws"] if law["baseline"]] == ["constant", "gaussian", "persistence"]
    assert record["frames"] == 9
    assert record["dimensions"] == ["dx", "dy", "gripper"]
    for law in record["laws"]:
        assert law["crps"]["low"] <= law["crps"]["value"] <= law["crps"]["high"]
        assert set(law["skill"]) == {"constant", "gaussian", "persistence"}
    for key in (("l1", "point"), ("flow", "1 sample")):
        assert laws[key]["crps"]["value"] == pytest.approx(laws[key]["absolute_error"]["value"], rel=1e-5)
        assert "coverage" not in laws[key]
    shares = laws["quantile", "quantiles"]["coverage"]
    assert len(shares["value"]) == 21
    assert (len(shares["by_dimension"]["value"]), len(shares["by_step"]["value"])) == (3, 4)
    assert shares["value"] == sorted(shares["value"])
    assert "a bootstrap over so few gives intervals too narrow" in record["notes"][0]


def test_the_terminal_shows_scores_coverage_and_dimensions(judged):
    result, record, _ = judged
    for words in ("expert passes", "skill / persistence", "share inside the interval of", "in robot units", "dx"):
        assert words in result.stdout
    crps = next(law["crps"]["value"] for law in record["laws"] if law["law"] == "quantiles")
    assert f"{crps:.4f}" in result.stdout
    assert "policies compute on cpu" in result.stderr


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.outside, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.outside += [value for name, value in attrs if name in ("src", "href") and not value.startswith("data:")]
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_one_file_with_reliability_and_pit(judged):
    _, record, page = judged
    reader = Links()
    reader.feed(re.sub(r"<(\w+)([^<>]*)/>", r"<\1\2></\1>", page))
    assert reader.outside == []
    assert reader.open == []
    assert "<script" not in page
    for figure in ("reliability", "pit", "steps", "reliability-quantile", "pit-flow"):
        assert f'<figure id="{figure}">' in page
    assert page.count("furthest at level") == 2 + 2 * len(record["dimensions"])


def test_a_process_of_its_own_finds_the_policy_type_and_prints_json_alone(saved, toy_set, tmp_path):  # noqa: F811
    """LeRobot's discovery skips this package in a `qhead` process, and its loader prints to standard output."""
    arguments = ["--policy", f"a={saved['l1']}", "--dataset", toy_set, "--episodes", 3, "--json", "--device", "cpu"]
    command = [str(part) for part in (BIN / "qhead", "calibrate", *arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["laws"][0]["crps"]["low"] is None
    assert record["notes"] == ["1 episode: there is no interval."]


@pytest.mark.parametrize(
    ("options", "code", "complaint"),
    [
        (("--dataset", "nowhere"), 1, "--dataset must be the folder of a LeRobotDataset"),
        (("--dataset", "SET", "--episodes", "2-9"), 1, "--episodes must lie in 0-3, .*; got 4"),
        (("--dataset", "SET", "--episodes", ","), 1, "--episodes must read like"),
        (("--dataset", "SET", "--rename", f"observation.images.x={CAMERA}"), 1, "must have the camera .*images.x"),
        (("--dataset", "SET", "--rename", "x"), 2, "--rename must read like"),
        (("--dataset", "SET", "--samples", "1,x"), 2, "--samples must read like"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else None,
)
def test_bad_input_is_refused_before_a_model_is_loaded(saved, toy_set, monkeypatch, options, code, complaint):  # noqa: F811
    monkeypatch.setitem(sys.modules, "lerobot_policy_quantile.calibration.run", None)  # importing it would fail
    words = [str(toy_set) if word == "SET" else word for word in options]
    result = invoke("--policy", f"ours={saved['quantile']}", *words)
    assert result.exit_code == code
    assert re.search(complaint, " ".join(result.stderr.replace("│", " ").split()))
