"""The paper's studies: every file loads, is checked and becomes commands that exist."""

import json

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.core.decoders import canonical_text
from lerobot_policy_quantile.evaluation.tables.published import study_tables
from lerobot_policy_quantile.studies.plan_checks import require_sound
from lerobot_policy_quantile.studies.plans import load_study, parse_study, study_names
from lerobot_policy_quantile.studies.plans.commands import Fit, Where, expand
from lerobot_policy_quantile.studies.plans.size import BATCH, PAPER, load_size

WHERE = Where(1280, "runs", "data/libero")
HEAD = 'title = "t"\npaper = "p"\nseeds = 1\n[training]\ndataset = "d"\nwarmup = 1\n'


def of_kind(steps, kind):
    return [step for step in steps if step.kind == kind]


@pytest.mark.parametrize("name", study_names())
@pytest.mark.parametrize("small", [False, True])
def test_every_study_is_sound_and_its_evaluations_parse(name, small):
    study = load_study(name)
    require_sound(study)
    steps = expand(study, WHERE, load_size("small") if small else PAPER)
    trainings = of_kind(steps, "train")
    assert len(trainings) == len(study.variants) * (1 if small else study.seeds)
    assert len({step.folder for step in trainings}) == len(trainings)
    assert all(step.words[0] == "lerobot-train" for step in trainings)
    for step in of_kind(steps, "eval"):
        qhead, name, *rest = step.words
        assert (qhead, name) == ("qhead", "eval")
        context = get_command(app).commands["eval"].make_context("eval", list(rest))
        assert len(context.params["policy"]) == len(trainings)
        assert context.params["device"] == "cpu"
    assert steps[-1].words[:2] == ("qhead", "table")


def test_the_paper_has_seven_counts_eleven_ratios_eight_cells_and_five_rules_in_four_windows():
    assert [v.policy["n_quantiles"] for v in load_study("k_sweep").variants] == [5, 9, 11, 15, 21, 25, 31]
    assert [v.policy["drop_ratio"] for v in load_study("r_sweep").variants] == [i / 10 for i in range(11)]
    cells = {
        (v.policy.get("n_prompts", 16) > 0, v.policy.get("supervise") != "median", v.policy.get("drop_ratio", 0.1) > 0)
        for v in load_study("ablations").variants
        if set(v.policy) <= {"n_prompts", "supervise", "drop_ratio"}
    }
    assert len(cells) == 8
    windows = [f"l=0.{i}" for i in (1, 2, 3, 4)]
    rules = ["window({})", "gaussian({})", "per_step({})", "window({}, rho=0.7)", "window({}, rho=0.9)"]
    decoders = load_study("sampling").evaluations[0].decoders
    assert set(decoders) == {"median", *(rule.format(window) for rule in rules for window in windows)}
    assert len(decoders) == 21


def test_the_baseline_is_pi05_fully_fine_tuned_in_simulation_and_on_the_robot():
    whole = {"head": "flow", "freeze_vlm": False, "n_prompts": 0, "drop_ratio": 0.0}
    assert [v.policy for v in load_study("pi05").variants] == [whole]
    robot = load_study("real_robot")
    assert {v.name: v.policy for v in robot.variants} == {"pi05": whole, "quantile": {}}
    steps = expand(robot, WHERE)
    assert all("--steps=6000" in step.words for step in of_kind(steps, "train"))
    trials = [step.words for step in of_kind(steps, "robot") if step.words[0] == "python"]
    assert len(trials) == 4
    assert all(words[words.index("--trials") + 1] == "100" for words in trials)
    assert {words[words.index("--name") + 1] for words in trials} == {"pi05#0", "quantile#0"}


def test_training_on_plus_uses_its_public_dataset_and_the_names_of_its_cameras():
    (train, *_, judged, _) = expand(load_study("main_fine_tuned"), Where(1280, "runs"))
    assert "--dataset.repo_id=Sylvest/libero_plus_lerobot" in train.words
    assert not any(word.startswith("--dataset.root") for word in train.words)
    assert "external=observation.images.front" in judged.words


def test_what_the_paper_printed_for_a_plan_belongs_to_a_variant_and_a_decoder_of_it():
    for name in ("ablations", "k_sweep", "r_sweep", "sampling"):
        study, rows = load_study(name), [row for rows in study_tables(name).values() for row in rows]
        decoders = {canonical_text(decoder) for evaluation in study.evaluations for decoder in evaluation.decoders}
        assert {row.variant for row in rows} <= {variant.name for variant in study.variants}
        assert {row.decoder for row in rows} <= decoders
    ablations = {row.variant for rows in study_tables("ablations").values() for row in rows}
    assert ablations == {variant.name for variant in load_study("ablations").variants if not variant.beyond_paper}


def test_one_epoch_is_the_datasets_length_and_small_is_small():
    study = load_study("main")
    first = expand(study, WHERE)[0]
    assert {"--steps=10", "--batch_size=128", "--policy.device=cpu"} <= set(first.words)
    assert first.updates == 10
    small = expand(study, Where(0, "runs"), load_size("small"))
    assert small[0].words[:2] == ("qhead", "collect")
    assert {"--policy.backbone=tiny", "--dataset.root=runs/main/data/dataset"} <= set(small[1].words)
    assert "--sample" in of_kind(small, "eval")[0].words


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_the_global_batch_is_the_papers_on_any_number_of_processes(processes):
    fits = {"quantile": Fit("bfloat16", True, 16)}
    where = Where(1280, "runs", device="cuda", processes=processes, fits=fits)
    (words, *_) = (step.words for step in expand(load_study("main"), where))
    (batch,) = (int(word.partition("=")[2]) for word in words if word.startswith("--batch_size="))
    assert processes * batch == BATCH
    assert "--steps=10" in words
    assert words[0] == ("torchrun" if processes > 1 else "lerobot-train")
    assert (f"--nproc_per_node={processes}" in words) == (processes > 1)
    assert {"--policy.dtype=bfloat16", "--policy.gradient_checkpointing=true", "--policy.micro_batch=16"} <= set(words)


@pytest.mark.bad_input
def test_processes_that_cannot_share_the_batch_are_refused():
    with pytest.raises(ValueError, match="processes must divide the global batch of 128; got 3"):
        Where(1, "runs", processes=3)


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
        (HEAD + "[[variant]]\nname='a'", "must have an evaluation or a robot"),
    ],
)
def test_wrong_studies_are_refused_by_name(text, said):
    with pytest.raises(ValueError, match=said):
        require_sound(parse_study("mine", text))


def test_the_command_lists_prints_and_explains(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    invoke = CliRunner().invoke
    assert "k_sweep: Number of quantiles" in invoke(app, ["study", "run"]).stdout
    refused = invoke(app, ["study", "run", "main", "--dataset", str(tmp_path)])
    assert refused.exit_code == 1
    assert "--dataset must be the folder of a LeRobotDataset" in refused.stderr
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text(json.dumps({"total_frames": 256}))
    options = ["--dataset", str(tmp_path), "--dry-run", "--device", "cuda"]
    printed = invoke(app, ["study", "run", "main", *options])
    assert printed.exit_code == 0, printed.stderr
    assert printed.stdout.count("lerobot-train") == 3
    assert "--steps=2 " in printed.stdout
    assert "--device cuda" in printed.stdout


@pytest.mark.parametrize(("name", "said"), [("ablations", "LIBERO assets must be in one of"), ("main", "LIBERO")])
def test_a_study_whose_benchmark_is_not_here_is_refused_before_anything_is_trained(tmp_path, name, said):
    """Tests without a marker see no assets."""
    refused = CliRunner().invoke(app, ["study", "run", name, "--small", "--device", "cpu", "--out", str(tmp_path)])
    assert refused.exit_code == 1
    assert said in refused.stderr
    assert list(tmp_path.iterdir()) == []
