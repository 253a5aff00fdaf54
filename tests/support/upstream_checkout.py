"""Checkouts of LIBERO-Plus and LIBERO-Pro in miniature, in our own words: one instance of every kind, one bad task.

Their Python files end the process if anything runs them.
"""

import json
import pickle
import zipfile

import numpy as np

from lerobot_policy_quantile.scenes.libero.assets import libero_package

POISON = "raise SystemExit('a file of the checkout was run')\n"
SOUP = "pick_up_the_alphabet_soup_and_place_it_in_the_basket"
BOWL = "pick_up_the_black_bowl_on_the_stove_and_place_it_on_the_plate"
SUITES = ("libero_spatial", "libero_object", "libero_goal", "libero_10")

PROBLEMS = f"""{POISON}
class Libero_Floor_Manipulation(BDDLBaseDomain):
    def __init__(self, **kwargs):
        kwargs.update({{"scene_xml": "scenes/base.xml", "scene_properties": {{"floor_style": "f", "wall_style": "w"}}}})

class Libero_Floor_Manipulation_Marble(Libero_Floor_Manipulation):
    def __init__(self, **kwargs):
        kwargs.update({{"scene_properties": {{"floor_style": "marble", "wall_style": "w"}}}})

class Libero_Floor_Manipulation_Light_3(Libero_Floor_Manipulation):
    def __init__(self, **kwargs):
        kwargs.update({{"scene_xml": "scenes/lights/3.xml"}})
"""

ROBOTS = (
    POISON
    + "class MountedPanda(Robot):\n    pass\n"
    + "".join(
        f"class MountedPanda{n}(MountedPanda):\n    @property\n    def init_qpos(self):\n"
        f"        return np.array([{n}, -1.5e-01, 0.0, -2.4, 0, 2.2, np.pi / 4])\n"
        for n in (1, 2)
    )
)

OBJECTS = f"""{POISON}
@register_object
class RedSoup(HopeBaseObject):
    def __init__(self, name="red_soup", obj_name="red_soup"):
        super().__init__(name, obj_name)
        self.rotation = (-np.pi / 2, np.pi / 2)
        self.rotation_axis = None
"""


def states(path, array) -> None:
    """An array as LIBERO stores initial states."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{path.stem}/data.pkl", pickle.dumps(array, protocol=2))


def bddl(path, *, problem="Libero_Floor_Manipulation", language="Pick  the soup ", kinds=()) -> None:
    """A bddl file with what a conversion looks at."""
    declared = "".join(f"    {kind}_1 - {kind}\n" for kind in kinds)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"(define (problem {problem})\n  (:language {language})\n  (:fixtures\n    floor - floor\n  )\n"
        f"  (:objects ; what there is - said_in_a_comment\n{declared}  )\n)\n"
    )


def plus_checkout(folder):
    """LIBERO-Plus with seven instances; returns their names by category."""
    root = folder / "libero" / "libero"
    names = {
        "Background Textures": f"{SOUP}_tb_2",
        "Robot Initial States": f"{SOUP}_view_0_0_100_0_0_initstate_2",
        "Camera Viewpoints": f"{SOUP}_view_0_15_90_2_352_initstate_0",
        "Language Instructions": f"{SOUP}_language_7_view_0_0_100_0_0_initstate_0",
        "Sensor Noise": f"{SOUP}_view_0_0_100_0_0_initstate_0_noise_41",
        "Objects Layout": f"{SOUP}_add_3",
        "Light Conditions": f"{SOUP}_light_5",
    }
    entries = [
        {"id": n, "name": name, "category": category, "difficulty_level": 1 + n % 5}
        for n, (category, name) in enumerate(names.items(), 1)
    ]
    (root / "benchmark").mkdir(parents=True)
    listed = {suite: entries if suite == "libero_object" else [] for suite in SUITES}
    (root / "benchmark" / "task_classification.json").write_text(json.dumps(listed))
    (root / "envs" / "problems").mkdir(parents=True)
    (root / "envs" / "problems" / "libero_floor_manipulation.py").write_text(PROBLEMS)
    (root / "envs" / "robots").mkdir()
    (root / "envs" / "robots" / "mounted_panda.py").write_text(ROBOTS)
    files = root / "bddl_files" / "libero_object"
    bddl(files / f"{SOUP}_tb_2.bddl", problem="Libero_Floor_Manipulation_marble")
    bddl(files / f"{SOUP}_light_5.bddl", problem="Libero_Floor_Manipulation_Light_3")
    bddl(files / f"{SOUP}_language_7.bddl", language="Could you  fetch the soup ")
    bddl(files / f"{SOUP}_add_3.bddl", kinds=("alphabet_soup", "jug_of_tea__1", "basket"))
    states(root / "init_files" / "libero_newobj" / "libero_object" / f"{SOUP}_add_3.pruned_init", np.arange(4.0))
    return names


def pro_tasks(folder) -> None:
    """LIBERO-Pro's perturbed tasks as the hub has them: ten in each of sixteen groups, one of them broken."""
    for suite in SUITES:
        for task in sorted((libero_package() / "bddl_files" / suite).glob("*.bddl")):
            for kind in ("object", "swap", "lan", "task"):
                extra = ("red_soup",) if kind == "object" else ()
                bddl(folder / "bddl_files" / f"{suite}_{kind}" / task.name, kinds=("alphabet_soup", *extra))
                place = folder / "init_files" / f"{suite}_{kind}" / f"{task.stem}.pruned_init"
                broken = (kind, task.stem) == ("task", BOWL)
                states(place, np.zeros(0) if broken else np.zeros((2, 3)))


def pro_repository(folder) -> None:
    """LIBERO-Pro's repository: its objects and rules."""
    objects = folder / "libero" / "libero" / "envs" / "objects"
    objects.mkdir(parents=True)
    (objects / "hope_objects.py").write_text(OBJECTS)
    own = (libero_package() / "envs" / "objects" / "articulated_objects.py").read_text()
    start = own.index("class WoodenCabinet")
    twin = own[start : own.index("@register_object", start)]
    twin = twin.replace("WoodenCabinet", "PinkCabinet").replace("wooden_cabinet", "pink_cabinet")
    (objects / "articulated_objects.py").write_text(POISON + "@register_object\n" + twin)
    (folder / "libero_ood").mkdir()
    (folder / "libero_ood" / "ood_task.yaml").write_text("libero_goal: {}\n")
