"""Play data of LIBERO's suites: the scripted expert drives whole tasks from freshly drawn layouts.

Every episode has a style of its own, begins with some steps in a random direction, and is disturbed by noise, kicks and
missed grasps. Labels are the expert's undisturbed actions. Where an apprentice drives, what follows is not what the
expert would have led to: there it acts its chunk out, and the simulator is taken back. So it does where the hand is
placed around a thing that is about to be taken: episodes alone have too few moments that decide a grasp.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Bool, Float

from lerobot_policy_quantile.pretraining.apprentice import Apprentice, Learner, foresee
from lerobot_policy_quantile.pretraining.samples import CHUNK
from lerobot_policy_quantile.pretraining.scenes_play import EVERY, Played, chunk_of
from lerobot_policy_quantile.pretraining.suite_samples import SUITE_KINDS, SUITES, SuiteSamples
from lerobot_policy_quantile.scenes.arm_pose import ArmPose, rotation_of
from lerobot_policy_quantile.scenes.contract import Array
from lerobot_policy_quantile.scenes.experts.aims import aims
from lerobot_policy_quantile.scenes.experts.disturbance import Executed, Kicks, Misses, Noise
from lerobot_policy_quantile.scenes.experts.handling import TAKING
from lerobot_policy_quantile.scenes.experts.style import Style
from lerobot_policy_quantile.scenes.experts.tasks import TaskExpert
from lerobot_policy_quantile.scenes.experts.view import View
from lerobot_policy_quantile.scenes.fast.kept_start import SavedMoment
from lerobot_policy_quantile.scenes.fast.physics import EXTERNAL_CAMERA, WRIST_CAMERA
from lerobot_policy_quantile.scenes.libero.suites import LiberoScene

WANDER_STEPS = 16
"""Fewer steps than this lead away from where episodes begin, before the expert takes over."""
WANDER = np.array([(-0.8, -0.8, -0.4), (0.8, 0.8, 0.4)])
"""Range of the command during them."""
ASIDE = (0.04, 0.012)
"""Metres beside the grasp: standard deviations, one of which is drawn."""
ABOVE = (-0.005, 0.12)
"""Range of metres above it."""
LEAN, TURN = 0.04, 0.2
"""Radians by which a placed hand leans, and turns about the vertical: standard deviations."""
DEEPEST = 0.004
"""Metres by which a placed hand may be inside something."""
_CAMERAS = {"external": EXTERNAL_CAMERA, "wrist": WRIST_CAMERA}


class _Cameras:
    """Poses of both cameras at the instant of each snapshot: the wrist's moves within a control step."""

    def __init__(self, world: Any) -> None:
        self._world, self.poses = world, dict[str, Array]()
        model = world.sim.model._model
        self._numbers = {
            name: mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, camera) for name, camera in _CAMERAS.items()
        }
        self.note()
        world.noting = self.note

    def note(self) -> None:
        """Copy them."""
        data = self._world.sim.data._data
        for name, number in self._numbers.items():
            self.poses[f"{name}_place"] = np.array(data.cam_xpos[number])
            self.poses[f"{name}_turn"] = np.array(data.cam_xmat[number]).reshape(3, 3)


class _Disturbed:
    """The executed action, and whether a kick or a missed grasp was part of it."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._noise: Executed = Noise().begin(rng)
        self._pushes = [part.begin(rng) for part in (Kicks(), Misses())]

    def __call__(self, action: Float[Array, "7"]) -> tuple[Float[Array, "7"], bool]:
        noisy = done = self._noise(action)
        for push in self._pushes:
            done = push(done)
        return np.clip(done, -1.0, 1.0), not np.array_equal(noisy, done)


def suite_play(
    scene: LiberoScene,
    task: int,
    rng: np.random.Generator,
    steps: int | None = None,
    learner: Learner | None = None,
    placed: int = 0,
) -> tuple[SuiteSamples, bool]:
    """One episode of at most `steps` steps (the benchmark's limit): its samples, and whether the task was solved.

    A `learner` drives now and then. With every sample of an open hand on its way to a thing come `placed` others, whose
    hand is elsewhere around that thing.
    """
    scene.reset_fresh(task, int(rng.integers(2**31)))
    cameras = _Cameras(scene.world)
    push, count = np.array([*rng.uniform(*WANDER), 0.0, 0.0, 0.0, -1.0]), int(rng.integers(WANDER_STEPS))
    for step in range(count):
        scene.step(push, observe=step == count - 1)
    apprentice = None if learner is None else Apprentice(learner, scene, rng)
    rows: list[dict[str, Any]] = []
    placing = _Placing(scene, cameras, rng, rows, placed) if placed else None
    record = _drive(scene, cameras, rng, scene.limit if steps is None else steps, apprentice, placing)
    for step, row in record.seen:
        rows.append(row | _label(*record.chunk(step)))
    columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return SuiteSamples(**columns), scene.success()


def _label(actions: Float[Array, "h d"], valid: Bool[Array, " h"]) -> dict[str, Any]:
    return {"actions": actions.astype(np.float32), "valid": valid}


def _drive(
    scene: LiberoScene,
    cameras: _Cameras,
    rng: np.random.Generator,
    steps: int,
    apprentice: Apprentice | None,
    placing: "_Placing | None",
) -> Played[dict[str, Any]]:
    # Waiting with open fingers has two labels for one moment, and a policy without memory learns to wait for ever.
    style = replace(Style.draw(int(rng.integers(2**31))), pause=0)
    expert, executed = TaskExpert(scene, style), _Disturbed(rng)
    record, after = Played[dict[str, Any]](), 0
    phase = int(rng.integers(EVERY)) if steps > EVERY else 0
    for step in range(steps):
        answer = expert.act(scene.state())
        if step % EVERY == phase and scene.world.snapshot_frames is not None:
            record.seen.append((step, _row(scene, expert, cameras)))
            if apprentice is not None:
                apprentice.look(step)
        own = None if apprentice is None else apprentice.action(step)
        if own is not None and record.kept(step):
            record.foreseen[step] = foresee(scene, answer, answers_of(expert.twin(), scene))
        if placing is not None and record.kept(step) and expert.phase.startswith(TAKING):
            placing.around(expert)
        action, pushed = executed(answer) if own is None else (own, True)
        record.answers.append(answer)
        record.pushed.append(pushed)
        scene.step(action, observe=(step + 1) % EVERY == phase)
        after += expert.finished
        if after > CHUNK:
            break
    return record


class _Placing:
    """Adds samples of a hand somewhere around the thing; the episode sees nothing of it."""

    def __init__(
        self, scene: LiberoScene, cameras: _Cameras, rng: np.random.Generator, rows: list[dict[str, Any]], count: int
    ) -> None:
        self._scene, self._cameras, self._rows, self._count = scene, cameras, rows, count
        self._rng = np.random.default_rng(int(rng.integers(2**31)))
        self._arm = ArmPose(scene.world)

    def around(self, expert: TaskExpert) -> None:
        """As many as are asked for, less those places where the hand cannot be."""
        present, world, arm, grasp = SavedMoment.of(self._scene.world), self._scene.world, self._arm, expert.grasp
        if grasp is None:
            return
        rotations = arm.rotation, grasp.rotation
        for _ in range(self._count):
            aside = self._rng.normal(0, self._rng.choice(ASIDE), 2)
            place = grasp.position + np.array([*aside, self._rng.uniform(*ABOVE)])
            turned = rotation_of(self._rng.normal(0, [LEAN, LEAN, TURN])) @ rotations[self._rng.integers(2)]
            if arm.reach(place, turned):
                arm.stop()
                arm.forward()
                if arm.deepest_contact() < DEEPEST:
                    world.announced = True
                    world._look()
                    self._rows.append(self._sample(expert.twin()))
            present.restore(world)

    def _sample(self, expert: TaskExpert) -> dict[str, Any]:
        answer = expert.act(self._scene.state())
        row = _row(self._scene, expert, self._cameras)
        chunk = foresee(self._scene, answer, answers_of(expert, self._scene))
        return row | _label(*chunk_of(chunk, [False] * CHUNK, 0))


def answers_of(expert: TaskExpert, scene: LiberoScene) -> Callable[[], Float[Array, "7"]]:
    """The expert's answer to the present moment, whenever it is called."""
    return lambda: expert.act(scene.state())


def _kinds(view: View) -> Float[Array, "k 3"]:
    places = np.full((len(SUITE_KINDS), 3), np.nan)
    kinds = [view.kind(name) for name in view.names]
    for name, kind in zip(view.names, kinds, strict=True):
        if kind in SUITE_KINDS and kinds.count(kind) == 1:
            places[SUITE_KINDS.index(kind)] = view.position(name)
    return places


def _row(scene: LiberoScene, expert: TaskExpert, cameras: _Cameras) -> dict[str, Any]:
    target, destination = aims(expert)
    numbers = {"state": scene.state(), "target": target, "destination": destination, **cameras.poses}
    numbers["kinds"] = _kinds(expert.view)
    row: dict[str, Any] = {name: value.astype(np.float32) for name, value in numbers.items()}
    row |= {"instruction": np.array(scene.instruction), "suite": np.array(SUITES.index(scene.suite), dtype=np.int8)}
    return row | scene.frames()
