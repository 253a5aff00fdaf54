"""`qhead data`: public checkouts become the folders that scenes read; nothing of a checkout is run."""

import hashlib
import json
import os
import zipfile

import numpy as np
import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.scenes.libero import assets as libero_assets
from lerobot_policy_quantile.scenes.libero.upstream.plus import convert_plus
from lerobot_policy_quantile.scenes.libero.upstream.pro import convert_pro
from lerobot_policy_quantile.scenes.libero.upstream.python_source import value_of
from tests.support import upstream_checkout as checkout
from tests.support.upstream_checkout import SOUP


class Attack:
    def __reduce__(self):
        return os.mkdir, ("broken_in",)


@pytest.fixture
def plus(tmp_path):
    names = checkout.plus_checkout(tmp_path / "LIBERO-plus")
    made = convert_plus([tmp_path / "LIBERO-plus"], tmp_path / "data" / "plus")
    lines = [json.loads(line) for line in (made.folder / "instances.jsonl").read_text().splitlines()]
    return made, names, lines


def test_every_category_says_what_it_changes(plus):
    made, names, lines = plus
    common = {"suite": "libero_object", "base_task": SOUP}
    assert all(common.items() <= line.items() for line in lines)
    assert [(line["id"], line["name"], line["category"]) for line in lines] == [
        (n, name, category) for n, (category, name) in enumerate(names.items(), 1)
    ]
    change = {
        line["category"]: {
            key: value
            for key, value in line.items()
            if key not in ("suite", "id", "name", "category", "difficulty", "base_task")
        }
        for line in lines
    }
    problem = "Libero_Floor_Manipulation_"
    assert change == {
        "Background Textures": {
            "problem": f"{problem}marble", "scene_xml": None, "floor_style": "marble", "wall_style": "w"
        },
        "Robot Initial States": {"initstate": 2},
        "Camera Viewpoints": {"view": [0, 15, 90, 2, 352]},
        "Language Instructions": {"language": "Could you  fetch the soup"},
        "Sensor Noise": {"noise": 41},
        "Objects Layout": {"added_objects": ["jug_of_tea__1"]},
        "Light Conditions": {"problem": f"{problem}Light_3", "scene_xml": "scenes/lights/3.xml"},
    }  # fmt: skip
    assert made.counts["instances"] == 7


def test_layouts_and_arm_starts_come_out_as_plain_numbers(plus):
    made, names, _ = plus
    layout = f"libero_object/{names['Objects Layout']}"
    with np.load(made.folder / "layout_init.npz", allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive[layout], np.arange(4.0))
    with zipfile.ZipFile(made.folder / "layout_bddl.zip") as archive:
        assert b"jug_of_tea__1" in archive.read(f"{layout}.bddl")
    starts = json.loads((made.folder / "robot_init_qpos.json").read_text())
    assert starts == [[n, -0.15, 0.0, -2.4, 0.0, 2.2, np.pi / 4] for n in (1.0, 2.0)]


def test_the_same_checkout_gives_the_same_bytes_and_the_record_knows_them(plus, tmp_path):
    made, _, _ = plus
    again = convert_plus([tmp_path / "LIBERO-plus"], tmp_path / "again" / "plus")
    assert again.hashes == made.hashes
    assert again.digest == made.digest
    record = json.loads((made.folder / "source.json").read_text())
    assert record["commits"] == ["unknown"]
    for name, digest in record["sha256"].items():
        assert hashlib.sha256((made.folder / name).read_bytes()).hexdigest() == digest


def test_a_folder_that_is_there_is_kept_and_half_a_conversion_leaves_nothing(plus, tmp_path):
    made, names, _ = plus
    with pytest.raises(ValueError, match=r"remove .* to convert again"):
        convert_plus([tmp_path / "LIBERO-plus"], made.folder)
    bddl_files = tmp_path / "LIBERO-plus" / "libero" / "libero" / "bddl_files"
    (bddl_files / "libero_object" / f"{names['Light Conditions']}.bddl").unlink()
    with pytest.raises(ValueError, match=r"must hold every instance's bddl file; there is no .*light_5\.bddl"):
        convert_plus([tmp_path / "LIBERO-plus"], tmp_path / "other" / "plus")
    assert not list((tmp_path / "other").iterdir())


@pytest.mark.bad_input
def test_what_a_checkout_may_not_do_is_refused(tmp_path, monkeypatch):
    """A pickle that would run something; a name that leads out of the folder; a number that is a call."""
    monkeypatch.chdir(tmp_path)
    names = checkout.plus_checkout(tmp_path / "c")
    root = tmp_path / "c" / "libero" / "libero"
    states = root / "init_files" / "libero_newobj" / "libero_object" / f"{names['Objects Layout']}.pruned_init"
    checkout.states(states, Attack())
    with pytest.raises(ValueError, match="may only hold numpy arrays"):
        convert_plus([tmp_path / "c"], tmp_path / "plus")
    listing = root / "benchmark" / "task_classification.json"
    listed = json.loads(listing.read_text())
    listed["libero_object"][0]["name"] = f"{SOUP}_/../../secret"
    listing.write_text(json.dumps(listed))
    with pytest.raises(ValueError, match="must be letters, digits and underscores"):
        convert_plus([tmp_path / "c"], tmp_path / "plus")
    robots = root / "envs" / "robots" / "mounted_panda.py"
    checkout.plus_checkout(tmp_path / "d")
    robots = tmp_path / "d" / "libero" / "libero" / "envs" / "robots" / "mounted_panda.py"
    robots.write_text(checkout.ROBOTS.replace("np.pi / 4", "os.mkdir('broken_in')"))
    with pytest.raises(ValueError, match=r"expected a literal value in line \d+; got os\.mkdir"):
        convert_plus([tmp_path / "d"], tmp_path / "plus")
    assert not (tmp_path / "broken_in").exists()
    assert not (tmp_path / "plus").exists()


def test_pro_takes_tasks_from_the_hub_and_objects_from_the_repository(tmp_path):
    repository, hub = tmp_path / "LIBERO-PRO", tmp_path / "hub"
    checkout.pro_repository(repository)
    with pytest.raises(ValueError, match=r"32 of 32 folders are missing.*hf download --repo-type dataset zhouxueyang"):
        convert_pro([repository], tmp_path / "pro")
    checkout.pro_tasks(hub)
    with pytest.raises(
        ValueError, match=r"objects in envs/objects.*git clone https://github\.com/Zxy-MLlab/LIBERO-PRO"
    ):
        convert_pro([hub], tmp_path / "pro")
    broken = "bddl_files/libero_goal_object/turn_on_the_stove.bddl"
    checkout.bddl(hub / broken, kinds=("pink_cabinet", "green_ghost"))
    made = convert_pro([repository, hub], tmp_path / "pro")
    assert made.counts == {"tasks": 160, "tasks that can be run": 158, "objects": 2}
    assert [note.partition(":")[0] for note in made.notes] == [
        f"libero_spatial_task/{checkout.BOWL}",
        "libero_goal_object/turn_on_the_stove",
    ]
    assert "does not define its green_ghost" in made.notes[1]
    objects = json.loads((made.folder / "objects.json").read_text())
    assert objects == {
        "pink_cabinet": {"folder": "articulated_objects", "like": "wooden_cabinet"},
        "red_soup": {
            "folder": "stable_hope_objects", "rotation": [-np.pi / 2, np.pi / 2], "rotation_axis": None
        },
    }  # fmt: skip
    assert (made.folder / broken).read_bytes() == (hub / broken).read_bytes()
    assert (made.folder / "libero_ood" / "ood_task.yaml").is_file()


def test_the_command_puts_the_folder_where_scenes_look_with_the_sources_assets(tmp_path, monkeypatch):
    checkout.plus_checkout(tmp_path / "c")
    assets = tmp_path / "c" / "libero" / "libero" / "assets"
    (assets / libero_assets.MARK).parent.mkdir(parents=True)
    (assets / libero_assets.MARK).write_text("<mujoco/>")
    monkeypatch.setenv(libero_assets.VARIABLE, str(tmp_path / "home"))
    done = CliRunner().invoke(app, ["data", "plus", "--from", str(tmp_path / "c")])
    assert done.exit_code == 0, done.output
    assert "7 instances" in done.output
    assert "1 files of assets added" in done.output
    assert libero_assets.find_data("plus") == tmp_path / "home" / "plus"
    assert libero_assets.find_assets() == tmp_path / "home" / "assets"
    again = CliRunner().invoke(app, ["data", "plus", "--from", str(tmp_path / "nowhere")])
    assert (again.exit_code, "--from must be a folder" in again.output) == (1, True)


def test_values_are_literals_and_nothing_else():
    import ast

    def read(text):
        return value_of(ast.parse(text, mode="eval").body)

    assert read("{'x': (np.pi / 2, -1), 'y': None, 'z': np.array([1.5, 2])}") == {
        "x": [np.pi / 2, -1],
        "y": None,
        "z": [1.5, 2],
    }
    for text in ("open('x')", "a.b", "[x for x in y]", "np.zeros(3)", "2 ** 9"):
        with pytest.raises(ValueError, match="expected a literal value"):
            read(text)
