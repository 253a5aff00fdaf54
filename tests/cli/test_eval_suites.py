"""`qhead eval --suite`: which episodes it plans, what it refuses, its dry run; worlds are never built here."""

import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.adapters import suites
from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.adapters.scripted_expert import ExpertPolicy, TaskPolicy, expert_side, is_expert
from lerobot_policy_quantile.adapters.suite_choice import SuiteChoice
from lerobot_policy_quantile.adapters.suites import SuiteEntry
from lerobot_policy_quantile.cli.main import app

LINES = [("a", "own"), ("b", "median")]


@pytest.fixture(autouse=True)
def listing(monkeypatch):
    """Ten tasks per LIBERO scene; LIBERO-Plus: thirty noises and ten lights without files."""

    def entries_of(scene):
        if scene.startswith("libero_plus"):
            noises = [SuiteEntry(scene, n, f"noise_{n}", "Sensor Noise", 1, None) for n in range(30)]
            return noises + [
                SuiteEntry(scene, n, f"light_{n}", "Light Conditions", 0, "no file") for n in range(30, 40)
            ]
        return [SuiteEntry(scene, n, f"task_{n}", None, 50, None) for n in range(10)]

    monkeypatch.setattr(suites, "entries_of", entries_of)


def choice(suite="libero_object", protocol="paper", episodes=None, categories=(), sample=None, seed=0):
    return SuiteChoice(suite, protocol, episodes, list(categories), sample, seed)


def plan(mixed=False, **options):
    chosen = choice(**options)
    return list(chosen.plan(chosen.entries(), LINES, mixed=mixed))


def invoke(*arguments):
    result = CliRunner().invoke(app, ["eval", *map(str, arguments)], env={"COLUMNS": "300"})
    return result, " ".join(result.output.replace("│", " ").split())


def test_the_papers_protocol_is_a_hundred_episodes_per_task_openpis_fifty():
    assert len(plan()) == 10 * 100 * 2
    assert len(plan(protocol="openpi")) == 10 * 50 * 2
    assert len(set(plan(episodes=2))) == 10 * 2 * 2
    assert len(plan(suite="libero_plus_10")) == 30 * 2


def test_initial_states_can_be_chosen_in_place_of_a_number_of_episodes():
    chosen = SuiteChoice("libero_object,libero_spatial", "paper", None, [], None, 0, (40, 44))
    keys = list(chosen.plan(chosen.entries(), LINES[:1], mixed=False))
    assert len(keys) == 2 * 10 * 2
    assert {(key.index, key.seed) for key in keys} == {(40, 0), (44, 0)}


@pytest.mark.bad_input
@pytest.mark.parametrize(("suite", "indices"), [("libero_object", (3, 50)), ("libero_plus_10", (0,))])
def test_initial_states_that_do_not_exist_are_refused(suite, indices):
    chosen = SuiteChoice(suite, "paper", None, [], None, 0, indices)
    with pytest.raises(ValueError, match="--indices must lie in 0"):
        chosen.plan(chosen.entries(), LINES, mixed=False)


@pytest.mark.parametrize("sample", [None, 11])
def test_policies_that_a_worker_keeps_take_turns_on_one_episode(sample):
    chosen, lines = choice(episodes=2, sample=sample), [(name, "own") for name in "abcde"]
    alone = list(chosen.plan(chosen.entries(), lines, mixed=False))
    pairs = list(chosen.plan(chosen.entries(), lines, mixed=False, models=2))
    assert set(pairs) == set(alone), "the same episodes"
    whole = len(pairs) // 5
    assert [key.policy for key in pairs] == ["a", "b"] * whole + ["c", "d"] * whole + ["e"] * whole
    for first, second in zip(pairs[: 4 * whole : 2], pairs[1 : 4 * whole : 2], strict=True):
        assert (first.scene, first.task, first.index, first.seed) == (
            second.scene,
            second.task,
            second.index,
            second.seed,
        )


def test_several_models_need_a_suite_and_workers_of_this_machine(tmp_path):
    options = ("--policy", "expert", "--out", tmp_path, "--models", 2)
    assert "--models needs --suite; got --models 2" in invoke(*options)[1]
    far = invoke(*options, "--suite", "libero_object", "--engine", "ray")[1]
    assert "--models must be 1 with --engine ray" in far


def test_policies_meet_the_same_episodes():
    keys = plan(episodes=3, sample=11)
    episodes = {p: {(k.task, k.index, k.seed) for k in keys if k.policy == p} for p, _ in LINES}
    assert episodes["a"] == episodes["b"]
    assert len(episodes["a"]) == 11


def test_a_mixed_plan_holds_the_same_keys_in_another_order():
    assert plan(episodes=2, mixed=True) != plan(episodes=2)
    assert set(plan(episodes=2, mixed=True)) == set(plan(episodes=2))


def test_a_category_leaves_the_rest_out_but_not_of_the_population():
    chosen = choice(suite="libero_plus_10", categories=["light"])
    entries = chosen.entries()
    assert {entry.category for entry in entries} == {"Light Conditions"}
    assert chosen.facts(entries).population == {"libero_plus_10": 40}
    with pytest.raises(ValueError, match="no task of the suite can be run here"):
        chosen.plan(entries, LINES, mixed=False)


def test_the_dry_run_lists_everything_and_why_not():
    result, text = invoke("--suite", "libero_plus", "--dry-run")
    assert result.exit_code == 0, text
    assert len([line for line in result.stdout.splitlines() if line.count("\t") == 4]) == 160
    for said in ("160 instances, 120 can be run here", "libero_plus_10: 40, 30 can", "40: no file"):
        assert said in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--suite", "libero_plsu", "--dry-run"), "did you mean 'libero_plus'?"),
        (("--suite", "libero", "--protocol", "mine", "--dry-run"), "--protocol must be one of paper, openpi"),
        (("--suite", "libero_plus", "--category", "smell", "--dry-run"), "--category must be one of"),
        (("--dry-run",), "need --suite"),
        (("--suite", "libero", "--indices", "0-3", "--episodes", "2", "--dry-run"), "exclude each other"),
        (("--suite", "libero", "--tasks", "0", "--scene", "embedded", "--dry-run"), "leave out --scene, --tasks"),
        (("--suite", "libero_object"), "--out and --policy must be given"),
        (("--suite", "libero_object", "--policy", "scripted", "--out", "x", "--budget", "soon"), "--budget must read"),
        (("--suite", "libero_object", "--policy", "scripted", "--out", "x", "--until", "0"), "--until must be a width"),
        (("--suite", "libero_object", "--policy", "scripted", "--out", "x", "--engine", "dask"), "local, ray"),
        (("--policy", "scripted", "--out", "x", "--replan", "fixed:2"), "--replan is for policy folders"),
        (
            ("--suite", "libero_object", "--policy", "no/such", "--out", "x"),
            "fetch it where there is a network: hf download",
        ),
    ],
)
def test_wrong_usage_says_what_is_allowed(tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    result, text = invoke(*arguments)
    assert result.exit_code == 2
    assert said in text
    assert not list(tmp_path.iterdir())


def test_scripted_is_the_expert():
    assert is_expert("scripted")
    assert expert_side("scripted:left") == "left"


def test_scripted_plans_every_task_and_expert_keeps_its_way_points():
    factory = SceneFactory({name: name for name in ("scripted", "scripted:left", "expert", "expert:left")})
    assert isinstance(factory.policy("scripted"), TaskPolicy)
    assert factory.policy("scripted:left") == factory.policy("expert:left") == ExpertPolicy("left")
    assert factory.policy("expert") == ExpertPolicy()


@pytest.mark.parametrize(("limit", "steps", "told"), [(None, 220, "openpi"), (600, 600, "openpi, limit 600")])
def test_every_row_will_say_whose_limit_holds(monkeypatch, limit, steps, told):
    class Bare:
        limit, versions = 280, {}

    monkeypatch.setattr("lerobot_policy_quantile.scenes.contract.make_scene", lambda *_, **__: Bare())
    scene = SceneFactory(protocol="openpi", limit=limit).scene("libero_spatial")
    assert (scene.limit, scene.versions["protocol"]) == (steps, told)
