"""`qhead table` and `qhead compare` on journals as runs leave them."""

import csv
import re

import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.evaluation.journal import Journal
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.tables.facts import Facts
from tests.support.rows import rows

SCENE = {"mujoco": "3.3.2", "protocol": "paper", "limit": "280"}


def invoke(*arguments):
    return CliRunner().invoke(app, [str(part) for part in arguments], env={"COLUMNS": "300"})


def write(folder, wins, judged=4, *, scene="libero_object", policy="ours", decoder="own", mujoco="3.3.2"):
    with Journal(folder / "journal.sqlite") as journal:
        for r in rows(scene, 0, wins, judged, policy=policy, decoder=decoder):
            journal.record(
                Outcome(
                    r.key,
                    r.status,
                    steps=60,
                    wall_seconds=1.5,
                    scene_context={**SCENE, "mujoco": mujoco},
                    policy_context={"policy": policy},
                )
            )
    return folder


def test_table_puts_ours_beside_the_papers_with_intervals_and_what_it_rests_on(tmp_path):
    write(tmp_path, 3)
    Facts({"libero_object": 1000}).write(tmp_path)
    result = invoke("table", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "| 75.0 [30.1, 95.4]" in result.stdout
    assert "4 of 1000" in result.stdout
    assert "A: mujoco 3.3.2; protocol paper" in result.stdout
    assert "paper, Table 1a" in result.stdout
    assert "paper, Table 1a" not in invoke("table", tmp_path, "--no-published").stdout


def test_a_plans_variants_have_the_papers_row_beside_them_and_episode_times_are_simulated_and_wall(tmp_path):
    for policy in ("K15", "l1", "r0.2"):
        write(tmp_path, 3, policy=policy, scene="libero_10", decoder="median")
    result = invoke("table", tmp_path, "--format", "csv")
    lines = [line[1:] for line in csv.reader(result.stdout.splitlines()) if line[0] == "LIBERO"]
    assert [line[0] for line in lines[:6]] == ["K15", "K = 15", "l1", "L1", "r0.2", "Diffusion Policy"]
    assert [line[7] for line in lines[:4]] == ["3.00 / 1.50", "-", "3.00 / 1.50", "8.13"]
    assert [line[5] for line in lines[1:4:2]] == ["98.3 to 98.6", "95"]


def test_plus_and_pro_have_the_papers_own_method_suite_by_suite(tmp_path):
    write(tmp_path, 3, scene="libero_pro_goal_task")
    result = invoke("table", tmp_path, "--format", "csv")
    suites = [line[1:4] for line in csv.reader(result.stdout.splitlines()) if "by suite and perturbation" in line[-1]]
    assert suites[2] == ["Quantile Head", "Goal", ""]
    assert len(suites) == 5


def test_a_robots_table_has_a_row_per_task_and_the_gain_over_pi05(tmp_path):
    tasks = ("piper place apple on yellow plate", "piper remove cuboid from blue plate")
    for task, wins in zip(tasks, (1, 3), strict=True):
        write(tmp_path, wins, policy="quantile#0", scene=task)
        write(tmp_path, wins - 1, policy="pi05#0", scene=task)
    result = invoke("table", tmp_path, "--format", "csv")
    lines = {line[1]: line[2:] for line in csv.reader(result.stdout.splitlines()) if line[0] == "AgileX Piper"}
    names = next(line[2:] for line in csv.reader(result.stdout.splitlines()) if line[1] == "Method")
    paper = ["pi0.5, fully fine-tuned", "Quantile Head", "Delta over pi0.5, fully fine-tuned"]
    assert names == ["pi05", "quantile", "Delta over pi05", *paper]
    assert [cell.split()[0] for cell in lines["place apple on yellow plate"]] == [
        *("0.0", "25.0", "+25.0", "31", "52", "+21.0")
    ]
    assert [cell.split()[0] for cell in lines["Avg."]][2::3] == ["+25.0", "+16.5"]


def test_several_training_seeds_are_printed_with_their_range(tmp_path):
    write(tmp_path / "a", 4, policy="ours#0")
    write(tmp_path / "b", 3, policy="ours#1")
    text = invoke("table", tmp_path / "a", tmp_path / "b", "--no-published").stdout
    assert re.search(r"87\.5 \[\d+\.\d, \d+\.\d\] seeds 75\.0 to 100\.0", text)
    assert "over seeds and episodes" in text


def test_runs_of_two_simulators_stay_apart(tmp_path):
    write(tmp_path / "a", 4)
    write(tmp_path / "b", 0, mujoco="3.8.1")
    result = invoke("table", tmp_path / "a", tmp_path / "b", "--format", "csv", "--no-published")
    lines = [line for line in csv.reader(result.stdout.splitlines()) if line[0] == "LIBERO"]
    assert [(line[4].split()[0], line[-1]) for line in lines] == [("100.0", "A"), ("0.0", "B")]


def test_latex_escapes_and_an_unknown_format_is_refused(tmp_path):
    write(tmp_path, 1, policy="a_b&c")
    text = invoke("table", tmp_path, "--format", "latex").stdout
    assert r"a\_b\&c" in text
    assert r"\begin{tabular}{llllllllll" in text
    result = invoke("table", tmp_path, "--format", "html")
    assert result.exit_code == 1
    assert "format must be one of markdown, latex, csv; got 'html'" in result.stderr


def test_a_folder_without_episodes_of_a_benchmark_says_so(tmp_path):
    write(tmp_path, 1, scene="embedded")
    result = invoke("table", tmp_path)
    assert result.exit_code == 1
    assert "got 4 rows of other scenes" in result.stderr
    assert "does not exist" in invoke("table", tmp_path / "nowhere").stderr


def test_compare_pairs_the_same_episodes(tmp_path):
    write(tmp_path / "a", 4, judged=6)
    write(tmp_path / "b", 1, judged=4, policy="theirs", mujoco="3.8.1")
    result = invoke("compare", tmp_path / "a", tmp_path / "b")
    assert result.exit_code == 0, result.stderr
    assert "A is better on 3, B on 0; alike on 1 (1 both succeed, 0 both fail) of 4 episodes." in result.stdout
    assert "2 further episodes" in result.stdout
    assert "Made differently: mujoco: A 3.3.2, B 3.8.1" in result.stdout


def test_compare_asks_which_policy_when_a_folder_holds_two(tmp_path):
    write(tmp_path, 4)
    write(tmp_path, 0, policy="theirs")
    result = invoke("compare", tmp_path, tmp_path)
    assert result.exit_code == 1
    assert "--policy-a" in result.stderr
    chosen = invoke("compare", tmp_path, tmp_path, "--policy-a", "ours", "--policy-b", "theirs")
    assert "A is better on 4, B on 0" in chosen.stdout
    unknown = invoke("compare", tmp_path, tmp_path, "--policy-a", "ours", "--policy-b", "their")
    assert unknown.exit_code == 1
    assert "--policy-b must be one of ours, theirs; got 'their'; did you mean 'theirs'?" in unknown.stderr


def test_runs_without_a_common_episode_cannot_be_compared(tmp_path):
    nothing = invoke("compare", write(tmp_path / "a", 4), write(tmp_path / "b", 4, scene="libero_10"))
    assert nothing.exit_code == 1
    assert "must share episodes" in nothing.stderr


@pytest.mark.parametrize("command", ["table", "compare"])
def test_help_teaches(command):
    assert invoke(command, "--help").exit_code == 0
