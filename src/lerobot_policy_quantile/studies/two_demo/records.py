"""What a two-demonstration study leaves behind, as plain records, and where it lies.

    OUT/study.json                            what was asked: the settings that were fixed beforehand
    OUT/<arm>/                                one folder per arm: `embedded`, `embedded+obstacle`, `libero_object`, ...
        arm.json                              scene, instruction, places, demonstrations' facts
        demonstrations.npz                    frames, states, actions of both demonstrations; the control's path
        checks.json                           every verification: what, figure, passed
        seed<n>/curves.json                   loss per update of every head
        seed<n>/first_draws.npz               1,000 draws per head at the shared start (App. B.3)
        seed<n>/cost.json                     expert passes and milliseconds per replan
        seed<n>/policies/<head>/              LeRobot policy folders
        journal.sqlite, side/                 the closed loop: outcomes, step by step records, film strips

`load_study(out)` reads all of it; whatever a study has not reached yet is empty. Only numpy and the journal's
reader are needed: no torch, no simulator.

Axes: h chunk step or demonstration step, d action dim, s state dim, k level, n draw, q query (replan), y x pixels.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from lerobot_policy_quantile.contract import CAMERA_KEYS, Array
from lerobot_policy_quantile.evaluation.journal import read_rows
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.studies.two_demo.paper import paper_rate
from lerobot_policy_quantile.studies.two_demo.result import Result

HEADS = ("quantile", "l1", "l2", "flow")
MOTION = 6
"""Coordinates that move the hand; the seventh is the gripper."""

STUDY, ARM, DEMONSTRATIONS, CHECKS = "study.json", "arm.json", "demonstrations.npz", "checks.json"
CURVES, DRAWS, COST, POLICIES = "curves.json", "first_draws.npz", "cost.json", "policies"
JOURNAL, SIDE = "journal.sqlite", "side"


def policy_name(head: str, training_seed: int) -> str:
    """How the journal names a trained policy: `quantile-0`."""
    return f"{head}-{training_seed}"


def seed_folder(arm: Path, training_seed: int) -> Path:
    """Where one training run's files are."""
    return arm / f"seed{training_seed}"


def training_seeds(settings: Mapping[str, Any]) -> range:
    """Those that study.json asks for."""
    first = int(settings.get("first_seed", 0))
    return range(first, first + int(settings.get("seeds", 0)))


@dataclass(frozen=True)
class Check:
    """One verification: what was compared, the figure that came out, whether it holds."""

    stage: str  # demonstrations | cache | training | closed loop
    name: str
    figure: str
    passed: bool


@dataclass(frozen=True)
class DemonstrationRecord:
    """One demonstration, as it was trained on."""

    route: str  # left | right
    success: bool
    contacts: int  # control steps in which anything touched the obstacle
    states: Float[Array, "h s"]
    actions: Float[Array, "h d"]
    frames: Mapping[str, UInt8[Array, "h y x 3"]]  # external, wrist

    @property
    def path(self) -> Float[Array, "h 3"]:
        """End effector positions in metres."""
        return self.states[:, :3]


@dataclass(frozen=True)
class Control:
    """The straight approach in the obstacle scene, which must fail; not trained on."""

    success: bool
    contacts: int
    path: Float[Array, "h 3"]


@dataclass(frozen=True)
class Places:
    """Where things are at the start, world coordinates in metres."""

    start: Float[Array, "3"]  # end effector
    object: Float[Array, "3"]
    goal: Float[Array, "3"]
    plane: Float[Array, "3"]  # centre of the obstacle, or where it would stand: sides are told apart here
    obstacle_size: Float[Array, "3"] | None  # across the approach, along it, height; None in a free scene

    @property
    def ahead(self) -> Float[Array, "2"]:
        """Unit vector from the start towards the object, on the table."""
        way = (self.object - self.start)[:2]
        return np.asarray(way / np.linalg.norm(way))

    @property
    def left(self) -> Float[Array, "2"]:
        """Unit vector to the left of that way."""
        return np.array([-self.ahead[1], self.ahead[0]])

    def side_passed(self, path: Float[Array, "h 3"]) -> str | None:
        """Side on which a path first crosses the plane of the obstacle's centre, None if never (App. B.3)."""
        relative = path[:, :2] - self.plane[:2]
        crossed = np.flatnonzero(relative @ self.ahead >= 0)
        if not len(crossed):
            return None
        return "left" if relative[crossed[0]] @ self.left > 0 else "right"


@dataclass(frozen=True)
class Curve:
    """A head's loss in training, every few updates (mean since the entry before)."""

    head: str
    updates: Int[Array, " n"]
    losses: Float[Array, " n"]
    seconds: float  # of the whole training


@dataclass(frozen=True)
class FirstDraws:
    """Draws at the shared start: `normalised` in the model's units, `actions` in the robot's."""

    normalised: Mapping[str, Float[Array, "n h d"]]  # head -> draws
    actions: Mapping[str, Float[Array, "n h d"]]
    demonstrations: Float[Array, "m h d"]  # the demonstrations' first chunks, in the robot's units
    demonstrations_normalised: Float[Array, "m h d"]
    levels: Float[Array, " k"]
    quantiles: Float[Array, "h d k"]  # of the quantile head, in the robot's units


@dataclass(frozen=True)
class Cost:
    """What one replan costs, the median over interleaved repeats of one run."""

    head: str
    expert_passes: int
    prefix_ms: float  # processor and VLM
    expert_ms: float  # expert passes
    repeats: int
    decode_ms: float = 0.0  # head and decoder

    @property
    def total_ms(self) -> float:
        """The whole replan."""
        return self.prefix_ms + self.expert_ms + self.decode_ms


@dataclass(frozen=True)
class RolloutRecord:
    """One closed-loop episode. Arrays are read from its side file when asked for."""

    head: str
    decoder: str  # canonical text; `own` for heads without decoders
    training_seed: int
    episode: int
    status: str  # success | failure | error
    steps: int
    contacts: int  # physics substeps in which anything touched the obstacle
    first_action: tuple[float, ...] | None
    key: EpisodeKey
    files: SideFiles
    side: str | None = None  # left | right | None: the plane was never crossed, or there is no side file
    levels: Float[Array, " k"] | None = None

    @property
    def start(self) -> int:
        """0: the demonstrations'; else the number of one near it."""
        return self.key.index

    @property
    def success(self) -> bool:
        """The environment's flag became true."""
        return self.status == "success"

    def array(self, name: str) -> Array | None:
        """One of `actions` (h d), `states` (h+1 s), `contacts` (h), `query_steps` (q), `quantiles` (q h d k).

        None where the episode has none. Nothing is kept in memory: a study has thousands of episodes.
        """
        path = self.files.path(self.key)
        if not path.is_file():
            return None
        with np.load(path, allow_pickle=False) as archive:
            return archive[name] if name in archive.files else None

    @property
    def path(self) -> Float[Array, "h 3"]:
        """End effector positions in metres, the start first; empty without a side file."""
        states = self.array("states")
        return np.zeros((0, 3)) if states is None else np.asarray(states[:, :3])

    @property
    def contact_steps(self) -> int:
        """Control steps with a touch."""
        contacts = self.array("contacts")
        return 0 if contacts is None else int((contacts > 0).sum())

    @property
    def film_strip(self) -> Path | None:
        """A PNG of what the policy saw (both cameras side by side, at most twelve moments), if there is one."""
        path = self.files.path(self.key, ".png")
        return path if path.is_file() else None


@dataclass(frozen=True)
class Arm:
    """One scene, with or without the obstacle."""

    name: str  # as the journal spells the scene: embedded, embedded+obstacle, libero_object, ...
    folder: Path
    obstacle: bool
    instruction: str
    limit: int  # actions per episode
    versions: Mapping[str, str]  # simulator and assets
    places: Places | None = None
    demonstrations: tuple[DemonstrationRecord, ...] = ()
    control: Control | None = None
    checks: tuple[Check, ...] = ()
    curves: Mapping[int, Mapping[str, Curve]] = field(default_factory=dict)  # training seed -> head -> curve
    draws: Mapping[int, FirstDraws] = field(default_factory=dict)  # training seed ->
    costs: Mapping[int, tuple[Cost, ...]] = field(default_factory=dict)  # training seed ->
    rollouts: tuple[RolloutRecord, ...] = ()  # from the demonstrations' start
    nearby: tuple[RolloutRecord, ...] = ()  # deterministic decoders from starts near it

    def results(self) -> list[Result]:
        """One line per head and decoder, in the order of first appearance in the study's settings."""
        return self._grouped(self.rollouts)

    def nearby_results(self) -> list[Result]:
        """The same over nearby starts; the paper has none."""
        return [replace(result, paper=None) for result in self._grouped(self.nearby)]

    def _grouped(self, rollouts: tuple[RolloutRecord, ...]) -> list[Result]:
        groups: dict[tuple[str, str], list[RolloutRecord]] = {}
        for rollout in rollouts:
            groups.setdefault((rollout.head, rollout.decoder), []).append(rollout)
        return [self._result(head, decoder, members) for (head, decoder), members in groups.items()]

    def _result(self, head: str, decoder: str, members: list[RolloutRecord]) -> Result:
        judged = [rollout for rollout in members if rollout.status != "error"]
        sides = [rollout.side for rollout in judged if rollout.success]
        by_seed: dict[int, list[bool]] = {}
        for rollout in judged:
            by_seed.setdefault(rollout.training_seed, []).append(rollout.success)
        return Result(
            head=head,
            decoder=decoder,
            by_seed=tuple((sum(won), len(won)) for won in by_seed.values()),
            errors=len(members) - len(judged),
            left=sides.count("left"),
            right=sides.count("right"),
            paper=paper_rate(self.obstacle, head, decoder),
        )


@dataclass(frozen=True)
class Study:
    """Everything that a study has so far."""

    out: Path
    settings: Mapping[str, Any]  # study.json as it stands: name, updates, seeds, episodes, decoders, rates, ...
    arms: tuple[Arm, ...]


def load_study(out: Path) -> Study:
    """Read a study's folder."""
    if not (out / STUDY).is_file():
        raise ValueError(f"out must be a folder that qhead study two-demo wrote, with {STUDY}; got {out}")
    settings = json.loads((out / STUDY).read_text())
    names = [name for name in settings["arms"] if (out / name / ARM).is_file()]
    return Study(out, settings, tuple(_load_arm(out / name, settings) for name in names))


def _load_arm(folder: Path, settings: Mapping[str, Any]) -> Arm:
    facts = json.loads((folder / ARM).read_text())
    values: dict[str, Any] = {name: None if p is None else np.array(p) for name, p in facts["places"].items()}
    places = Places(**values)
    seeds = [seed for seed in training_seeds(settings) if seed_folder(folder, seed).is_dir()]
    demonstrations, control = load_demonstrations(folder, facts)
    rollouts = _load_rollouts(folder, settings, facts, places)
    return Arm(
        name=folder.name,
        folder=folder,
        obstacle=facts["obstacle"],
        instruction=facts["instruction"],
        limit=facts["limit"],
        versions=facts["versions"],
        places=places,
        demonstrations=demonstrations,
        control=control,
        checks=_load_checks(folder / CHECKS),
        curves={s: found for s in seeds if (found := _load_curves(seed_folder(folder, s) / CURVES))},
        draws={s: _load_draws(path) for s in seeds if (path := seed_folder(folder, s) / DRAWS).is_file()},
        costs={s: _load_costs(path) for s in seeds if (path := seed_folder(folder, s) / COST).is_file()},
        rollouts=tuple(rollout for rollout in rollouts if rollout.start == 0),
        nearby=tuple(rollout for rollout in rollouts if rollout.start),
    )


def load_demonstrations(
    folder: Path, facts: Mapping[str, Any]
) -> tuple[tuple[DemonstrationRecord, ...], Control | None]:
    """The demonstrations of an arm, given the facts in arm.json, and the straight control if there was one."""
    with np.load(folder / DEMONSTRATIONS, allow_pickle=False) as archive:
        demonstrations = tuple(
            DemonstrationRecord(
                route=fact["route"],
                success=fact["success"],
                contacts=fact["contacts"],
                states=archive[f"{fact['route']}.states"],
                actions=archive[f"{fact['route']}.actions"],
                frames={camera: archive[f"{fact['route']}.{camera}"] for camera in CAMERA_KEYS},
            )
            for fact in facts["demonstrations"]
        )
        control = facts["control"]
        if control is None:
            return demonstrations, None
        return demonstrations, Control(control["success"], control["contacts"], archive["control.path"])


def _load_checks(path: Path) -> tuple[Check, ...]:
    return tuple(Check(**entry) for entry in json.loads(path.read_text())) if path.is_file() else ()


def _load_curves(path: Path) -> dict[str, Curve]:
    if not path.is_file():
        return {}
    found = json.loads(path.read_text())
    return {head: Curve(head, np.array(c["updates"]), np.array(c["losses"]), c["seconds"]) for head, c in found.items()}


def _load_draws(path: Path) -> FirstDraws:
    with np.load(path, allow_pickle=False) as archive:
        heads = [name.partition(".")[0] for name in archive.files if name.endswith(".actions")]
        return FirstDraws(
            normalised={head: archive[f"{head}.normalised"] for head in heads},
            actions={head: archive[f"{head}.actions"] for head in heads},
            demonstrations=archive["demonstrations"],
            demonstrations_normalised=archive["demonstrations_normalised"],
            levels=archive["levels"],
            quantiles=archive["quantiles"],
        )


def _load_costs(path: Path) -> tuple[Cost, ...]:
    return tuple(Cost(**entry) for entry in json.loads(path.read_text()))


def _load_rollouts(
    folder: Path, settings: Mapping[str, Any], facts: Mapping[str, Any], places: Places
) -> tuple[RolloutRecord, ...]:
    if not (folder / JOURNAL).is_file():
        return ()
    files, levels = SideFiles(folder / SIDE), np.array(facts["levels"])
    order = {tuple(pair): number for number, pair in enumerate(settings["decoders"])}
    rollouts = []
    for row in read_rows(folder / JOURNAL):
        head, _, seed = row.key.policy.rpartition("-")
        rollout = RolloutRecord(
            head=head,
            decoder=row.key.decoder,
            training_seed=int(seed),
            episode=row.key.seed,
            status=row.status,
            steps=row.steps,
            contacts=row.contacts,
            first_action=row.first_action,
            key=row.key,
            files=files,
            levels=levels,
        )
        rollouts.append(replace(rollout, side=places.side_passed(rollout.path)))
    rollouts.sort(key=lambda r: (order.get((r.head, r.decoder), len(order)), r.decoder, r.training_seed, r.episode))
    return tuple(rollouts)
