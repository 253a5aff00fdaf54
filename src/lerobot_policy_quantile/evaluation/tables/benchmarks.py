"""LIBERO, LIBERO-Plus, LIBERO-Pro and a robot's trials: scenes, columns, limits and episodes per task (App. B)."""

import math
from collections.abc import Sequence

SUITES = {"libero_spatial": "Spatial", "libero_object": "Object", "libero_goal": "Goal", "libero_10": "Long"}
"""Scene of a LIBERO suite -> its column in tables."""

PLUS, PRO = "libero_plus", "libero_pro"

ROBOT = "piper"
"""Trials of a real arm have scenes of their own, `piper TASK`: examples/piper.py writes them."""

CATEGORIES = {
    "Camera Viewpoints": "Camera",
    "Robot Initial States": "Robot",
    "Language Instructions": "Lang.",
    "Light Conditions": "Light",
    "Background Textures": "Bkg.",
    "Sensor Noise": "Noise",
    "Objects Layout": "Layout",
}
"""LIBERO-Plus's seven categories in the order and with the headings of the paper's tables."""

PERTURBATIONS = {"object": "Object", "position": "Pos.", "semantic": "Sem.", "task": "Task"}
"""LIBERO-Pro's perturbations that count into the average."""

CONTROLS = {"original": "Original", "environment": "Env."}
"""Reported beside them and left out of the average."""

LIMITS = {
    "paper": {"libero_spatial": 280, "libero_object": 280, "libero_goal": 300, "libero_10": 520},
    "openpi": {"libero_spatial": 220, "libero_object": 280, "libero_goal": 300, "libero_10": 520},
}
"""Protocol -> steps per episode. `paper`: its appendix, LIBERO-Plus's limits. `openpi`: its LIBERO example."""

PRO_LONG_LIMIT = 800
"""LIBERO-Pro gives LIBERO-Long more time under both protocols (App. B)."""

PROTOCOL = "paper"
"""Unless told otherwise."""

EPISODES = {"paper": 100, "openpi": 50}
"""Episodes per task: the paper's, and openpi's `num_trials_per_task`. LIBERO-Plus always runs one per instance."""


def plus_scene(suite: str) -> str:
    """The scene that holds a suite's LIBERO-Plus instances."""
    return suite.replace("libero", PLUS)


def pro_scene(suite: str, perturbation: str) -> str:
    """The scene that holds a suite's tasks under a LIBERO-Pro perturbation."""
    return f"{suite.replace('libero', PRO)}_{perturbation}"


def suite_of(scene: str) -> str | None:
    """The LIBERO suite a scene belongs to or was made from, None for other scenes."""
    for suite in SUITES:
        perturbed = (pro_scene(suite, name) for name in (*PERTURBATIONS, *CONTROLS))
        if scene in (suite, plus_scene(suite), *perturbed):
            return suite
    return None


def robot_task(scene: str) -> str | None:
    """What a robot was told to do in a scene of trials, None for other scenes."""
    robot, _, task = scene.partition(" ")
    return task if robot == ROBOT and task else None


def limit_of(scene: str, protocol: str) -> int | None:
    """Steps per episode of a scene under a protocol; None for scenes that no protocol speaks of."""
    if protocol not in LIMITS:
        raise ValueError(f"protocol must be one of {', '.join(LIMITS)}; got {protocol!r}")
    suite = suite_of(scene)
    if suite is None:
        return None
    return PRO_LONG_LIMIT if scene.startswith(f"{PRO}_10") else LIMITS[protocol][suite]


def mean(values: Sequence[float]) -> float | None:
    """Their mean, None if there are none."""
    return math.fsum(values) / len(values) if values else None
