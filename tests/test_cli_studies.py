"""The paper's studies: every file loads, is checked and becomes commands that exist."""

import json
import shlex

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from lerobot_policy_quantile.cli import app
from lerobot_policy_quantile.cli_studies import check
from lerobot_policy_quantile.studies.plans import Where, expand, load_study, parse_study, study_names

WHERE = Where("data/libero", 1280, "runs")
HEAD = 'title = "t"\npaper = "p"\nseeds = 1\n[training]\ndataset = "d"\nwarmup = 1\n'


def words(command):
    return shlex.split(command)


@pytest.mark.parametrize("name", study_names())
@pytest.mark.parametrize("small", [False, True])
def test_every_study_is_sound_and_its_evaluations_parse(name, small):
    study = load_study(name)
    check(study)
    commands = expand(study, WHERE, small=small)
    trainings = [c for c in commands if c.startswith("lerobot-train ")]
    assert len(trainings) == len(study.variants) * (1 if small else study.seeds)
    assert len(set(trainings)) == len(trainings)
    for command in commands[len(trainings) :]:
        qhead, name, *rest = words(command)
        assert (qhead, name) == ("qhead", "eval")
        context = get_command(app).commands["eval"].make_context("eval", list(rest))
        assert len(context.params["policy"]) == len(trainings)


def test_the_paper_has_seven_counts_eleven_ratios_and_eight_cells():
    assert [v.policy["n_quantiles"] for v in load_study("k_sweep").variants] == [5, 9, 11, 15, 21, 25, 31]
    assert [v.policy["drop_ratio"] for v in load_study("r_sweep").variants] == [i / 10 for i in range(11)]
    cells = {
        (v.policy.get("n_prompts", 16) > 0, v.policy.get("supervise") != "median", v.policy.get("drop_ratio", 0.1) > 0)
        for v in load_study("ablations").variants
        if set(v.policy) <= {"n_prompts", "supervise", "drop_ratio"}
    }
    assert len(cells) == 8
    assert len(load_study("sampling").evaluations[0].decoders) == 17


def test_one_epoch_is_the_datasets_length_and_small_is_small():
    study = load_study("main")
    assert "--steps=10" in words(expand(study, WHERE)[0])
    assert "--batch_size=128" in words(expand(study, WHERE)[0])
    small = expand(study, WHERE, small=True)
    assert "--policy.backbone=tiny" in words(small[0])
    assert "--sample" in words(small[-1])


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "[[variant]]\nname='a'\npolicies={}\n[[evaluation]]\nsuite='libero'", "got 'policies'"),
        (HEAD + "[[variant]]\nname='a'\n[[variant]]\nname='a'\n[[evaluation]]\nsuite='libero'", "each once"),
        (HEAD + "[[variant]]\nname='a'\npolicy={hed='l1'}\n[[evaluation]]\nsuite='libero'", "hed"),
        (HEAD + "[[variant]]\nname='a'\npolicy={head='l3'}\n[[evaluation]]\nsuite='libero'", "l3"),
        (HEAD + "[[variant]]\nname='a'\n[[evaluation]]\nsuite='libera'", "did you mean"),
        (HEAD + "[[variant]]\nname='a'\n[[evaluation]]\nsuite='libero'\ndecoders=['medain']", "medain"),
    ],
)
def test_wrong_studies_are_refused_by_name(text, said):
    with pytest.raises(ValueError, match=said):
        check(parse_study("mine", text))


def test_the_command_lists_prints_and_explains(tmp_path):
    invoke = CliRunner().invoke
    assert "k_sweep: Number of quantiles" in invoke(app, ["study-plan"]).stdout
    refused = invoke(app, ["study-plan", "main"])
    assert refused.exit_code == 1
    assert "--dataset must be the folder of a LeRobotDataset" in refused.stderr
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text(json.dumps({"total_frames": 256}))
    printed = invoke(app, ["study-plan", "main", "--dataset", str(tmp_path)])
    assert printed.exit_code == 0, printed.stderr
    assert printed.stdout.count("lerobot-train") == 3
    assert "--steps=2 " in printed.stdout
