"""`qhead eval` and `qhead doctor` as a user calls them, in the embedded scene."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.factory import make_pre_post_processors
from typer.testing import CliRunner

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.evaluation.journal import read_errors, read_rows
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.explorer.episode_reading import read_episode
from lerobot_policy_quantile.explorer.run_reading import read_run
from lerobot_policy_quantile.explorer.units import parse_units
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.scenes import doctor
from tests.support.openpi_server import openpi_server

QHEAD = Path(sys.executable).parent / "qhead"
SHORT = ("--limit", "12", "--camera-size", "32", "--workers", "1")


def qhead(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "MUJOCO_GL": "egl", "COLUMNS": "200"}
    command = [str(part) for part in (QHEAD, *arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)


def invoke(*arguments: object):
    return CliRunner().invoke(app, [str(part) for part in arguments], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny policy, untrained, saved as training saves it."""
    cameras = ("observation.images.image", "observation.images.image2")
    features = {
        "input_features": {
            "observation.state": PolicyFeature(FeatureType.STATE, (8,)),
            **{camera: PolicyFeature(FeatureType.VISUAL, (3, 32, 32)) for camera in cameras},
        },
        "output_features": {"action": PolicyFeature(FeatureType.ACTION, (7,))},
    }
    torch.manual_seed(0)
    policy = QuantilePolicy(QuantileConfig(backbone="tiny", device="cpu", push_to_hub=False, **features))
    where = tmp_path_factory.mktemp("policy")
    policy.save_pretrained(where)
    stats = {
        name: {"q01": -torch.ones(n), "q99": torch.ones(n)} for name, n in (("observation.state", 8), ("action", 7))
    }
    for pipeline in make_pre_post_processors(policy.config, dataset_stats=stats):
        pipeline.save_pretrained(where)
    return where


@pytest.mark.slow
def test_expert_and_policy_run_side_by_side_and_resuming_is_the_same_command(folder, tmp_path):
    command = ("eval", "--policy", "expert", "--policy", f"ours={folder}", "--decoder", "median", *SHORT)
    command = (*command, "--decoder", "shared(l=0.1)", "--indices", "0-1", "--out", tmp_path)
    first = qhead(*command)
    assert first.returncode == 0, first.stderr
    assert first.stderr.splitlines()[-1] == f"look at the episodes: qhead explore {tmp_path}"
    units = parse_units([f"ours={folder}"], [read_run(tmp_path)])
    assert units["ours"].scale == pytest.approx((1.0,) * 7)
    assert units["ours"].grippers == (6,)
    lines = [line.split() for line in first.stdout.splitlines() if not line.startswith("#")]
    assert lines[0][:4] == ["scene", "policy", "decoder", "episodes"]
    assert [line[:2] for line in lines[1:]] == [["embedded", "expert"], ["embedded", "ours"], ["embedded", "ours"]]
    assert "mujoco 3.3.2" in first.stdout
    rows = read_rows(tmp_path / "journal.sqlite")
    assert [(row.status, row.steps) for row in rows] == [("failure", 12)] * 6
    assert {row.key.decoder for row in rows} == {"own", "median", "shared(l=0.1, rho=0.9)"}
    medians, shared = ([r for r in rows if r.key.decoder.startswith(d)] for d in ("median", "shared"))
    assert all(a.first_action != b.first_action for a, b in zip(medians, shared, strict=True))
    side = SideFiles(tmp_path / "side")
    assert side.read(shared[0].key)["quantiles"].shape == (2, 10, 7, 21)
    assert side.path(shared[0].key, ".png").is_file()
    assert not side.path(next(r.key for r in rows if r.key.policy == "expert"), ".png").exists()

    again = qhead(*command)
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert read_rows(tmp_path / "journal.sqlite") == rows

    moved = qhead("eval", "--policy", "expert", "--seeds", "1", "--out", tmp_path, *SHORT, "--limit", "13")
    assert moved.returncode == 1
    assert "limit: journal has '12', this run has '13'" in moved.stderr
    assert read_rows(tmp_path / "journal.sqlite") == rows


def test_a_finished_run_does_not_hide_changed_settings(folder, tmp_path):
    """Nothing is pending, so no worker starts; the rates of other settings must not be printed all the same."""
    policy, out = tmp_path / "policy", tmp_path / "run"
    shutil.copytree(folder, policy)
    command = ("eval", "--policy", f"ours={policy}", "--indices", "0", "--workers", "1", "--out", out)
    usual = ("--limit", "3", "--camera-size", "32")
    first = invoke(*command, *usual)
    assert first.exit_code == 0, first.output
    again = invoke(*command, *usual)
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    for options, said in (
        (("--limit", "3", "--camera-size", "48"), "camera_size: journal has '32', this run has '48'"),
        (("--limit", "4", "--camera-size", "32"), "limit: journal has '3', this run has '4'"),
        ((*usual, "--replan", "fixed:2"), "replanning: journal has None, this run has 'FixedSteps(steps=2)'"),
    ):
        moved = invoke(*command, *options)
        assert (moved.exit_code, moved.stdout) == (1, ""), moved.output
        assert said in moved.stderr
    weights = policy / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    edited = invoke(*command, *usual)
    assert (edited.exit_code, edited.stdout) == (1, "")
    assert "policy ours is not what the journal was begun with: policy: journal has" in edited.stderr

    shutil.copy(folder / "model.safetensors", weights)
    (row,) = read_rows(out / "journal.sqlite")
    SideFiles(out / "side").path(row.key).unlink()
    lost = invoke(*command, *usual)
    assert (lost.exit_code, lost.stdout) == (1, first.stdout)
    assert "1 side files of finished episodes are gone" in lost.stderr


def test_an_episode_that_cannot_exist_is_refused_before_anything_runs(tmp_path):
    result = qhead("eval", "--policy", "expert", "--indices", "0-50", *SHORT, "--out", tmp_path)
    assert result.returncode == 1
    assert "indices of embedded task 0 must lie in 0..49; got 50" in result.stderr
    assert read_rows(tmp_path / "journal.sqlite") == []
    unknown = qhead("eval", "--policy", "expert", "--scene", "embeded", *SHORT, "--out", tmp_path)
    assert unknown.returncode == 1
    assert "did you mean 'embedded'?" in unknown.stderr


def test_a_server_is_a_policy_by_its_address(tmp_path):
    requests = []

    def infer(observation):
        requests.append(observation)
        return {"actions": np.zeros((10, 7))}

    with openpi_server(infer) as url:
        result = qhead("eval", "--policy", f"{url}?steps=6", "--indices", "0", *SHORT, "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    (row,) = read_rows(tmp_path / "journal.sqlite")
    assert (row.key.policy, row.status, row.steps) == (f"{url}?steps=6", "failure", 12)
    assert [request["observation/image"].shape for request in requests] == [(224, 224, 3)] * 2
    assert requests[0]["prompt"]
    seen = read_episode(read_run(tmp_path), row)
    assert seen.problems == ["the policy predicted no quantiles: no fans, ranks, spread or decoders"]
    assert (seen.actions.shape, seen.query_steps.tolist()) == ((12, 7), [0, 6])

    gone = qhead("eval", "--policy", f"far={url}", "--indices", "0", *SHORT, "--out", tmp_path / "gone")
    assert gone.returncode == 1
    assert f"policy 'far' must answer before episodes start; {url} cannot be reached" in gone.stderr
    assert read_errors(tmp_path / "gone" / "journal.sqlite") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "exprt"), "must be expert, expert:SIDE or a folder saved by LeRobot"),
        (("--policy", "far=ws://host?stps=1"), "server options are external, wrist, state, prompt, steps"),
        (("--policy", "ws://a:1?steps=x"), "server option steps must be a number; got 'x'"),
        (("--policy", "expert:up"), "side must be one of left, straight, right; got 'up'"),
        (("--policy", "a=expert", "--policy", "a=expert:left"), "must use a name once"),
        (("--policy", "expert", "--decoder", "shraed"), "did you mean 'shared'?"),
        (("--policy", "expert", "--indices", "9-0"), "--indices must read like 0-9"),
        (("--policy", "expert", "--indices", "0-999999999"), "--indices must name at most 100000 numbers"),
        (("--policy", "expert", "--indices", "0-49999", "--seeds", "0-20"), "at most 1000000 episodes; got 1050000"),
        (("--policy", "expert", "--wording", "bdll"), "did you mean 'bddl'?"),
        (("--policy", "expert", "--camera", "side=x"), "--camera must read like external=observation.images.front"),
    ],
)
def test_wrong_usage_is_told_with_what_is_allowed(tmp_path, arguments, said):
    result = invoke("eval", *arguments, "--out", tmp_path)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def test_other_camera_names_are_asked_for_before_anything_runs_and_stand_in_the_rows(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "policy")
    config = tmp_path / "policy" / "config.json"
    config.write_text(config.read_text().replace('"observation.images.image"', '"observation.images.front"'))
    refused = invoke("eval", "--policy", tmp_path / "policy", "--out", tmp_path / "run")
    assert refused.exit_code == 2
    assert "--camera external=observation.images.front" in " ".join(refused.stderr.replace("│", " ").split())
    assert not (tmp_path / "run").exists()
    cameras = {"external": "observation.images.front", "wrist": "observation.images.image2"}
    policy = SceneFactory({"ours": str(tmp_path / "policy")}, cameras=cameras).policy("ours")
    assert policy.context["cameras"] == "external=observation.images.front, wrist=observation.images.image2"
    assert "cameras" not in SceneFactory({"ours": str(folder)}).policy("ours").context


def test_a_folder_that_cannot_be_loaded_is_found_before_anything_runs(folder, tmp_path):
    """Files are looked at before a worker starts; what only the model can tell ends the run with the first answer."""
    shutil.copytree(folder, tmp_path / "policy")
    weights = tmp_path / "policy" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    cut = invoke("eval", "--policy", tmp_path / "policy", "--out", tmp_path / "run")
    assert cut.exit_code == 2
    assert "model.safetensors is cut off or no safetensors file" in " ".join(cut.stderr.replace("│", " ").split())
    assert not (tmp_path / "run").exists()

    weights.write_bytes(whole)
    config = json.loads((tmp_path / "policy" / "config.json").read_text())
    (tmp_path / "policy" / "config.json").write_text(json.dumps({**config, "n_prompts": 3}))
    other = qhead("eval", "--policy", f"a={tmp_path / 'policy'}", *SHORT, "--out", tmp_path / "run")
    assert other.returncode == 1
    assert f"policy 'a' cannot be loaded from {tmp_path / 'policy'}" in other.stderr
    assert "prompts" in other.stderr
    assert read_rows(tmp_path / "run" / "journal.sqlite") == []
    assert read_errors(tmp_path / "run" / "journal.sqlite") == []


def test_a_read_only_place_is_one_sentence_and_exit_one(tmp_path):
    (tmp_path / "file").write_text("")
    result = invoke("eval", "--policy", "expert", "--out", tmp_path / "file" / "run")
    assert result.exit_code == 1
    assert "cannot be opened for writing" in result.stderr
    assert "Traceback" not in result.output


def test_help_teaches_resume_exit_codes_and_examples():
    text = " ".join(invoke("eval", "--help").stdout.split())
    for said in ("run the same command again", "never counted as a failure", "Exit codes: 0", "--policy expert:left"):
        assert said in text
    assert "doctor" in invoke("--help").stdout


def test_doctor_prints_findings_with_fixes_and_exits_one_on_a_failure(monkeypatch):
    good = doctor.Finding("sqlite", "ok", "3.40")
    monkeypatch.setattr(doctor, "examine", lambda: [good])
    assert invoke("doctor").exit_code == 0
    monkeypatch.setattr(doctor, "examine", lambda: [good, doctor.Finding("rendering", "fail", "no EGL", "install it")])
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "install it" in result.stdout


def test_doctor_finds_this_machine_fit():
    findings = {finding.what: finding for finding in doctor.examine()}
    assert {"mujoco", "robosuite", "hf-libero", "lerobot", "sqlite", "rendering", "LIBERO assets", "threads"} <= set(
        findings
    )
    assert [f for f in findings.values() if f.status == "fail"] == []
    assert findings["mujoco"].found == "3.3.2 (wanted ==3.3.2)"


def test_every_check_of_the_doctor_can_fail(monkeypatch):
    monkeypatch.setattr(doctor, "requires", lambda name: ["mujoco==3.8.1", "no-such-thing>=1", "x; extra == 'y'"])
    assert [(f.what, f.status, f.fix) for f in doctor.check_versions()] == [
        ("mujoco", "fail", "pip install 'mujoco==3.8.1'"),
        ("no-such-thing", "fail", "pip install 'no-such-thing>=1'"),
    ]
    assert doctor.check_sqlite((3, 31, 1)).status == "fail"
    for code in ("import os; os.abort()", "raise ImportError('no EGL')", "print('brightest pixel 0')"):
        finding = doctor.check_rendering(code)
        assert (finding.status, finding.fix) == ("fail", doctor.GL_FIX)
    assert "no EGL" in doctor.check_rendering("raise ImportError('no EGL')").found

    def nowhere():
        raise ValueError("LIBERO assets must be in one of these places")

    assert doctor.check_assets(nowhere).status == "warn"
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert doctor.check_threads().status == "warn"
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert doctor.check_threads().status == "ok"
