"""Two short made-up demonstrations and a study's folder, without a simulator."""

from pathlib import Path

import numpy as np

from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.studies.two_demo import records
from lerobot_policy_quantile.studies.two_demo.settings import StudySettings
from lerobot_policy_quantile.util.files import write_json

SETTINGS = StudySettings(obstacle=(False,), updates=4, warmup=1, draws=8, camera_size=16, episodes=2, limit=6)
STEPS, SIZE = 14, 16


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """Two demonstrations with the same start; they differ in the first action coordinate."""
    draw = np.random.default_rng(seed)
    found: dict[str, np.ndarray] = {}
    start = {camera: draw.integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8) for camera in ("external", "wrist")}
    for side, sign in (("left", 1.0), ("right", -1.0)):
        states = np.cumsum(draw.normal(0, 0.01, (STEPS, 8)), axis=0)
        states[0] = 0
        found[f"{side}.states"] = states.astype(np.float32)
        actions = np.tile([0.3 * sign, -0.3, 0.0, 0.0, 0.0, 0.0, -1.0], (STEPS, 1))
        actions[STEPS // 2 :, 6] = 1.0
        found[f"{side}.actions"] = actions.astype(np.float32)
        for camera, first in start.items():
            frames = draw.integers(0, 255, (STEPS, SIZE, SIZE, 3), dtype=np.uint8)
            frames[0] = first
            found[f"{side}.{camera}"] = frames
    return found


def make_arm(folder: Path, seed: int = 0) -> Path:
    """An arm after its first stage."""
    folder.mkdir(parents=True)
    np.savez(folder / records.DEMONSTRATIONS, **arrays(seed))
    facts = {
        "scene": folder.name,
        "obstacle": False,
        "instruction": "pick up the can and place it in the basket",
        "limit": SETTINGS.limit,
        "ground": 0.8,
        "versions": {"simulator": "none"},
        "levels": quantile_levels().tolist(),
        "places": {
            "start": [0.0, 0.0, 1.0],
            "object": [0.0, -0.25, 0.8],
            "goal": [0.2, 0.2, 0.8],
            "plane": [0.0, -0.1, 0.9],
            "obstacle_size": None,
        },
        "demonstrations": [{"route": side, "success": True, "contacts": 0} for side in ("left", "right")],
        "control": None,
    }
    write_json(folder / records.ARM, facts)
    return folder
