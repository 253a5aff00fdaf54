"""A two-demonstration study that nobody ran: a folder as `qhead study two-demo` leaves it, with plausible numbers.

A point hand goes from the start to the object and on to the basket; a rank moves it aside. With the obstacle,
episodes that stay near the middle touch it and end there.
"""

import json
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import numpy as np

from lerobot_policy_quantile.evaluation.journal import Journal
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.side_files import SideFiles, Trace
from lerobot_policy_quantile.studies.two_demo import records

START, OBJECT, GOAL, PLANE = ([0.0, 0, 0.2], [0.28, 0.05, 0.02], [0.12, 0.3, 0.05], [0.1, 0.018, 0.095])
LEVELS = 0.025 + 0.95 * np.arange(21) / 20
SIZE = 32
ASIDE = 0.15
"""Metres to the side that rank 0 and rank 1 take."""
EVERYWHERE = [
    ("quantile", "native(l=0.1, rho=0.9, T=0.35)"),
    ("quantile", "independent(l=0, rho=0.9)"),
    ("quantile", "shared(l=0, rho=0.9)"),
    ("quantile", "density(rho=0.9, n=2)"),
    ("quantile", "median"),
    ("l1", "own"),
    ("l2", "own"),
    ("flow", "own"),
]
SWEEP = [f"shared(l={l}, rho=0.9)" for l in (0.1, 0.2, 0.3, 0.4)] + ["density_all(rho=0.9, n=1)", "densest"]
"""Decoders of the arm with the obstacle only."""


def write_study(folder: Path, *, episodes: int = 6, seeds: int = 1, updates: int = 600, video: bool = True) -> Path:
    """A whole study of both arms of the embedded scene."""
    settings = {
        "arms": ["embedded", "embedded+obstacle"],
        "seeds": seeds,
        "first_seed": 0,
        "updates": updates,
        "episodes": episodes,
        "first_episode": 0,
        "learning_rate": 5e-4,
        "head_learning_rate": 1e-3,
        "prompt_learning_rate": 1e-3,
        "camera_size": SIZE,
        "decoders": EVERYWHERE + [("quantile", decoder) for decoder in SWEEP],
        "obstacle_decoders": SWEEP,
        "base": "tiny, sha256 0123456789ab",
    }
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / records.STUDY, settings)
    for name in settings["arms"]:
        _write_arm(folder / name, settings, video)
    return folder


def _write_arm(folder: Path, settings: dict, video: bool) -> None:
    obstacle = folder.name.endswith("+obstacle")
    folder.mkdir(exist_ok=True)
    demos = {route: walk(rank, 86 if obstacle else 63, obstacle) for route, rank in (("left", 0.0), ("right", 1.0))}
    places = {"start": START, "object": OBJECT, "goal": GOAL, "plane": PLANE}
    facts = {
        "obstacle": obstacle,
        "instruction": "pick up the can and place it in the basket",
        "limit": 600 if obstacle else 400,
        "versions": {"mujoco": "3.3.2", "robosuite": "1.4.0", "assets": "robosuite 1.4.0"},
        "places": {**places, "obstacle_size": [0.06, 0.044, 0.19] if obstacle else None},
        "demonstrations": [{"route": route, "success": True, "contacts": 0} for route in demos],
        "control": {"success": False, "contacts": 31} if obstacle else None,
        "levels": LEVELS.tolist(),
    }
    _write(folder / records.ARM, facts)
    arrays = {}
    for route, (states, actions) in demos.items():
        arrays |= {f"{route}.states": states[:-1], f"{route}.actions": actions}
        films = np.stack([picture(state, obstacle) for state in states[:-1]])
        arrays |= {f"{route}.external": films, f"{route}.wrist": films[:, ::-1]}
    if obstacle:
        arrays["control.path"] = walk(0.5, 40, obstacle)[0][:, :3]
    np.savez_compressed(folder / records.DEMONSTRATIONS, **arrays)
    _write(folder / records.CHECKS, [asdict(check) for check in checks(obstacle)])
    for seed in range(settings["seeds"]):
        _write_seed(records.seed_folder(folder, seed), settings, demos, seed)
    _write_episodes(folder, settings, obstacle, video)


def checks(obstacle: bool) -> list[records.Check]:
    found = [
        records.Check("demonstrations", "identical starts", "external picture differs by 0, robot state by 0", True),
        records.Check("training", "quantile-0: cached = full", "outputs differ by 2.4e-07 (bound 1e-05)", True),
        records.Check("closed loop", "quantile-0: batch of 8 = single inference", "largest difference 1.2e-06", True),
    ]
    if obstacle:
        found.append(records.Check("demonstrations", "the straight control fails", "failed, 31 steps", True))
    return found


def walk(rank: float, steps: int, obstacle: bool, stop: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """States (one more than actions) and actions of a hand that passes at a rank between far left and far right."""
    start, thing, goal = map(np.array, (START, OBJECT, GOAL))
    ahead = (thing - start)[:2] / np.linalg.norm((thing - start)[:2])
    left = np.array([-ahead[1], ahead[0]])
    time = np.linspace(0, stop, steps + 1)
    reach, carry = np.clip(time / 0.5, 0, 1), np.clip((time - 0.55) / 0.4, 0, 1)
    positions = start + reach[:, None] * (thing - start) + carry[:, None] * (goal - thing)
    aside = (1 - 2 * rank) * (ASIDE if obstacle else 0.11) * np.sin(np.pi * np.clip(time / 0.45, 0, 1))
    positions[:, :2] += aside[:, None] * left
    positions[:, 2] += 0.12 * np.sin(np.pi * carry)
    states = np.concatenate([positions, np.zeros((steps + 1, 3)), np.full((steps + 1, 2), 0.03)], axis=1)
    actions = np.zeros((steps, 7))
    actions[:, :3] = 20 * np.diff(positions, axis=0)
    actions[:, 6] = np.where((time[1:] > 0.5) & (time[1:] < 0.97), 1.0, -1.0)
    return states, actions


def picture(state: np.ndarray, obstacle: bool) -> np.ndarray:
    """The table from above: object red, basket brown, obstacle dark, hand white."""
    frame = np.full((SIZE, SIZE, 3), (196, 188, 170), np.uint8)
    spots = [(OBJECT, (200, 40, 40), 2), (GOAL, (120, 80, 40), 4)]
    spots += [(PLANE, (40, 60, 90), 3)] if obstacle else []
    for place, shade, half in [*spots, (state[:3], (250, 250, 250), 2)]:
        row, column = (int(np.clip(v, half, SIZE - half - 1)) for v in (26 - 70 * place[0], 16 - 45 * place[1]))
        frame[row - half : row + half, column - half : column + half] = shade
    return frame


def _write_seed(folder: Path, settings: dict, demos: dict, seed: int) -> None:
    folder.mkdir(exist_ok=True)
    updates = np.arange(50, settings["updates"] + 1, 50)
    rng = np.random.default_rng(seed)
    curves = {
        head: {
            "updates": updates.tolist(),
            "losses": (
                0.3 * scale * np.exp(-updates / 180) + scale * (0.02 + 0.004 * rng.random(len(updates)))
            ).tolist(),
            "seconds": 61.0,
        }
        for head, scale in {"quantile": 0.4, "l1": 1.0, "l2": 0.5, "flow": 2.0}.items()
    }
    _write(folder / records.CURVES, curves)
    targets = np.stack([actions[:10] for _, actions in demos.values()])
    low, high = targets.min(axis=0), targets.max(axis=0)
    ranks, noise = rng.random((1000, 1, 1)), rng.normal(size=(1000, 10, 7))
    quantile = np.quantile(targets, 0.5, axis=0) + (high - low) * np.tanh(6 * (ranks - 0.5)) / 2 + 0.003 * noise
    draws = {
        "quantile": quantile,
        "flow": targets[rng.integers(0, 2, 1000)] + 0.12 * noise,
        "l1": np.repeat(targets[:1], 1000, axis=0),
        "l2": np.repeat(targets.mean(axis=0)[None], 1000, axis=0),
    }
    units = np.array([2.0, 2.0, 2.0, 10.0, 10.0, 10.0, 1.0])
    law = targets.mean(axis=0)[..., None] + ((high - low)[..., None] + 0.02) * (LEVELS - 0.5)
    arrays = {f"{head}.actions": values for head, values in draws.items()}
    arrays |= {f"{head}.normalised": values * units for head, values in draws.items()}
    np.savez_compressed(
        folder / records.DRAWS, demonstrations=targets, demonstrations_normalised=targets * units, levels=LEVELS,
        quantiles=law, **arrays,
    )  # fmt: skip
    costs = [records.Cost(h, 10 if h == "flow" else 1, 11.2, 21.4 if h == "flow" else 2.3, 40) for h in records.HEADS]
    _write(folder / records.COST, [asdict(cost) for cost in costs])


def _write_episodes(folder: Path, settings: dict, obstacle: bool, video: bool) -> None:
    files = SideFiles(folder / records.SIDE, video=video)
    with Journal(folder / records.JOURNAL) as journal:
        for head, decoder in settings["decoders"] if obstacle else EVERYWHERE:
            for seed in range(settings["seeds"]):
                for episode in range(2 if decoder == "median" else 1 if fixed(head, decoder) else settings["episodes"]):
                    name = records.policy_name(head, seed)
                    key = EpisodeKey(folder.name, 0, 0, episode, name, decoder)
                    _write_episode(journal, files, key, head, obstacle)


def _write_episode(journal: Journal, files: SideFiles, key: EpisodeKey, head: str, obstacle: bool) -> None:
    rank = _rank(key, head)
    success = abs(rank - 0.5) > 0.2 if obstacle else head != "flow" or key.seed % 3 == 0
    steps = 90 if success else 57
    states, actions = walk(rank, steps, obstacle, 1.0 if success else 0.16)
    queries = np.arange(0, steps, 10)
    width = np.array([0.1, 0.14, 0.06, 0.01, 0.012, 0.008, 0.02])[:, None]
    law = [actions[q : q + 1, :, None] + width * (1.1 + np.sin(q / 9)) * (LEVELS - 0.5) for q in queries]
    trace = Trace(
        actions=list(actions),
        states=list(states),
        contacts=[0] * steps if success else [*[0] * (steps - 9), *[3] * 9],
        query_steps=queries.tolist(),
        quantiles=law if head == "quantile" else [],
        frames=[np.concatenate([picture(states[q], obstacle)] * 2, axis=1) for q in queries],
        frame_rate=Fraction(2),
    )
    files.write(key, trace)
    outcome = Outcome(
        key=key,
        status="success" if success else "failure",
        steps=steps,
        first_action=tuple(actions[0].tolist()),
        contacts=sum(trace.contacts),
        final_state=tuple(states[-1].tolist()),
    )
    journal.record(outcome)


def fixed(head: str, decoder: str) -> bool:
    """Whether a decoder is deterministic."""
    return head in ("l1", "l2") or decoder in ("median", "densest")


def _rank(key: EpisodeKey, head: str) -> float:
    if fixed(head, key.decoder):
        return 0.5
    low = float(key.decoder.partition("l=")[2].partition(",")[0] or 0) if "l=" in key.decoder else 0.0
    return float(low + (1 - 2 * low) * np.random.default_rng([key.seed, len(head)]).random())


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
