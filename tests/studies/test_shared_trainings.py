"""Studies of one folder share what they have in common: a training is made once, an episode is run once."""

import json
from dataclasses import replace

import pytest

from lerobot_policy_quantile.evaluation.journal import Journal
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.tables.facts import Facts
from lerobot_policy_quantile.studies.plan_machine import Machine, place
from lerobot_policy_quantile.studies.plan_rows import relabelled, study_rows
from lerobot_policy_quantile.studies.plan_run import run_steps
from lerobot_policy_quantile.studies.plans import load_study, parse_study
from lerobot_policy_quantile.studies.plans.commands import Episodes, Where, expand
from lerobot_policy_quantile.studies.plans.size import load_size
from lerobot_policy_quantile.studies.plans.trainings import readable
from tests.studies.test_plan_run import INPUTS, TRAIN
from tests.support.rows import row

MINIATURE = load_size("miniature")
WHERE = Where(1280, "runs", "data", content="abc")


def trainings(name, where=WHERE, size=MINIATURE):
    """Label in the study -> folder."""
    steps = [step for step in expand(load_study(name), where, size) if step.kind == "train"]
    return {label: step.folder for step in steps for label, _ in step.labels}


def test_the_full_model_is_trained_once_for_all_studies():
    full = {trainings(study)[label] for study, label in (
        ("main", "quantile-1"), ("ablations", "quantile-1"), ("k_sweep", "K21-1"), ("r_sweep", "r0.1-1"),
        ("sampling", "quantile-1"),
    )}  # fmt: skip
    assert len(full) == 1
    assert full.pop().startswith("runs/trainings/quantile-")
    assert trainings("r_sweep")["r0.0-2"] == trainings("ablations")["prompts-pinball-2"]
    assert trainings("main")["flow-0"] == trainings("ablations")["flow-0"]


def test_no_two_variants_or_seeds_of_all_studies_are_taken_for_each_other():
    found = [trainings(name) for name in ("ablations", "k_sweep", "r_sweep")]
    assert [len(set(each.values())) for each in found] == [8 * 17, 8 * 7, 8 * 11]
    assert len({folder for each in found for folder in each.values()}) == 8 * (17 + 6 + 9)


@pytest.mark.parametrize(
    "changed",
    [
        {"where": replace(WHERE, content="abd")},
        {"size": replace(MINIATURE, batch=16)},
        {"size": replace(MINIATURE, warmup=100)},
        {"size": replace(MINIATURE, policy={**MINIATURE.policy, "optimizer_lr": 1e-4})},
        {"size": replace(MINIATURE, study={"main": replace(MINIATURE.study["main"], updates=10)})},
    ],
)
def test_whatever_decides_the_weights_makes_another_training(changed):
    before, now = trainings("main"), trainings("main", **changed)
    assert before.keys() == now.keys()
    assert not set(before.values()) & set(now.values())


def test_device_and_place_of_the_prefixes_do_not():
    moved = replace(WHERE, out="elsewhere", device="cuda")
    names = [{folder.rpartition("/")[2] for folder in trainings("main", where).values()} for where in (WHERE, moved)]
    assert names[0] == names[1]


def test_names_are_readable():
    assert readable({}) == readable({"n_quantiles": 21}) == "quantile"
    assert readable({"head": "l1", "loss_scale": 0.5}) == "l1-loss_scale_0.5"
    assert readable({"supervise": "median", "n_prompts": 0}) == "quantile-n_prompts_0-supervise_median"


TWINS = """
title = "t"
paper = "p"
seeds = 1
[training]
dataset = "d"
warmup = 1
[[variant]]
name = "a"
[[variant]]
name = "b"
policy = { n_quantiles = 21 }
[[evaluation]]
suite = "libero_10"
"""


def test_two_variants_that_are_one_training_become_one_command_and_both_have_its_rows():
    size = replace(MINIATURE, study={})
    steps = expand(parse_study("mine", TWINS), WHERE, replace(size, seeds=1, updates=5))
    (train,) = (step for step in steps if step.kind == "train")
    (judge,) = (step for step in steps if step.kind == "eval")
    assert [label for label, _ in train.labels] == ["a-0", "b-0"]
    assert judge.words.count("--policy") == 1
    policy = judge.labels[0][1]
    made = [row("libero_10", policy=policy), row("libero_10", policy="another#0")]
    assert [each.key.policy for each in relabelled(made, judge.labels, judge.episodes)] == ["a#0", "b#0"]


def test_a_study_reads_its_own_episodes_of_a_shared_journal():
    labels, episodes = [("K21#0", "quantile-1234#0")], Episodes(("libero_10",), (0, 1))
    mine = row("libero_10", index=1, policy="quantile-1234#0")
    others = [
        row("libero_10", index=2, policy="quantile-1234#0"),
        row("libero_goal", index=1, policy="quantile-1234#0"),
        row("libero_10", index=1, policy="l1-1234#0"),
    ]
    (found,) = relabelled([mine, *others], labels, episodes)
    assert found == replace(mine, key=replace(mine.key, policy="K21#0"))


def fake(steps, out):
    """The same steps with a training and an evaluation that only leave their files."""
    made = []
    for step in steps:
        if step.kind == "train":
            words = ("python", "-c", TRAIN, step.folder, str(step.updates))
            made.append(replace(step, words=words, batch=128))
        if step.kind == "eval":
            made.append(replace(step, words=("python", "-c", f"open({str(out / 'asked')!r}, 'a').write('x')")))
    return made


def test_what_one_study_trained_is_done_before_for_the_next_and_rows_are_found(tmp_path):
    where = replace(WHERE, out=str(tmp_path))
    (tmp_path / "trainings").mkdir()
    said = []
    for name in ("sampling", "k_sweep"):
        steps = fake(expand(load_study(name), where, MINIATURE, [0]), tmp_path)
        assert run_steps(steps, where, tmp_path / name, INPUTS, said.append, root=tmp_path)
    assert sum("done before" in line for line in said) == 1
    assert (tmp_path / "trainings" / "calls").read_text() == f"{MINIATURE.study['k_sweep'].updates} " * 7
    assert (tmp_path / "logs").is_dir()
    policy = dict(steps[-1].labels)["K21#0"]
    folder = tmp_path / "episodes" / "libero"
    Facts({"libero_object": 1000, "libero_goal": 1000}).write(_made(folder))
    with Journal(folder / "journal.sqlite") as journal:
        for scene in ("libero_object", "libero_goal"):
            key = row(scene, policy=policy, decoder="median").key
            journal.record(Outcome(key, "success", steps=40, scene_context={"mujoco": "3.3.2"}, traceback=None))
    for name, label in (("k_sweep", "K21#0"), ("sampling", "quantile#0"), ("r_sweep", "r0.1#0")):
        rows, facts = study_rows(expand(load_study(name), where, MINIATURE))
        assert [(each.key.scene, each.key.policy) for each in rows] == [("libero_object", label)]
        assert list(facts.population) == ["libero_object"]
    rows, _ = study_rows(expand(load_study("main"), where, MINIATURE))
    assert len(rows) == 2


def _made(folder):
    folder.mkdir(parents=True)
    return folder


@pytest.mark.bad_input
def test_studies_that_share_a_folder_run_one_at_a_time(tmp_path):
    with (tmp_path / "lock").open("w") as lock:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(ValueError, match="is in use by another run of a study"):
            run_steps([], WHERE, tmp_path / "main", INPUTS, print, root=tmp_path)


def test_other_statistics_are_another_dataset(tmp_path):
    def content(name, mean):
        meta = tmp_path / name / "meta"
        meta.mkdir(parents=True)
        (meta / "info.json").write_text(json.dumps({"total_frames": 64}))
        (meta / "stats.json").write_text(json.dumps({"action": mean}))
        machine = Machine("cpu", None, 1, None)
        data = tmp_path / name
        return place(load_study("main"), data, "runs", "", machine, size=MINIATURE, dry_run=True).content

    assert content("a", 0.5) == content("b", 0.5)
    assert content("c", 0.6) != content("d", 0.5)


@pytest.mark.bad_input
def test_an_evaluation_of_two_benchmarks_is_refused_where_journals_are_shared():
    text = TWINS.replace('"libero_10"', '"libero_10,libero_plus"')
    with pytest.raises(ValueError, match="must belong to one benchmark; got libero, libero_plus"):
        expand(parse_study("mine", text), WHERE, replace(MINIATURE, study={}, updates=5))
