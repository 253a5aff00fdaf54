"""Play data: the reflex expert runs whole episodes under noise and kicks; labels are its undisturbed actions."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float

from lerobot_policy_quantile.pretraining.samples import CHUNK, THINGS, SampleList, Samples, first_actions, moment
from lerobot_policy_quantile.scenes.contract import ACTION_DIM, Array
from lerobot_policy_quantile.scenes.experts.reflex import reflex
from lerobot_policy_quantile.scenes.fast.physics import OPEN_GRIPPER
from lerobot_policy_quantile.scenes.staging import Stage, StageView

NOISE = 0.08  # standard deviation of what is added to the commanded position change
KICK = 0.012  # chance per step
KICK_STEPS = (3, 8)
KICK_SIZE = 0.5
EVERY = 4  # steps from one kept moment to the next
START_BOX = np.array([(-0.25, -0.28, 0.93), (0.06, 0.24, 1.10)])


@dataclass
class _Record:
    """One episode: the expert's action at every step, and where kicks occurred."""

    answers: list[Float[Array, "7"]] = field(default_factory=list)
    kicked: list[bool] = field(default_factory=list)
    seen: list[tuple[int, StageView]] = field(default_factory=list)


def play_samples(stage: Stage, rng: np.random.Generator, kind: str, steps: int) -> tuple[Samples, bool]:
    """One episode of at most `steps` steps: its samples, and whether the object reached the basket."""
    _begin(stage, rng, kind)
    record, driven = _drive(stage, rng, kind, steps), THINGS.index(kind)
    samples = SampleList()
    for step, view in record.seen:
        actions, valid = first_actions(view)
        actions[driven], valid[driven] = chunk_of(record.answers, record.kicked, step)
        samples.add(view, actions, valid, driven)
    return samples.finish(), moment(stage.view(), kind).delivered


def chunk_of(
    answers: list[Float[Array, "7"]], kicked: list[bool], step: int
) -> tuple[Float[Array, "h d"], Bool[Array, " h"]]:
    """The expert's actions from `step` on, up to the next kick: later ones react to it."""
    actions, valid = np.zeros((CHUNK, ACTION_DIM)), np.zeros(CHUNK, dtype=bool)
    for ahead in range(min(CHUNK, len(answers) - step)):
        if ahead and kicked[step + ahead - 1]:
            break
        actions[ahead], valid[ahead] = answers[step + ahead], True
    return actions, valid


def _begin(stage: Stage, rng: np.random.Generator, kind: str) -> None:
    while True:
        stage.shuffle(rng, kind)
        if rng.random() < 0.4 or stage.reach(rng.uniform(*START_BOX), rng.normal(0, 0.02, 3)):
            break
    stage.forward()
    for step in range(4):
        stage.scene.step(OPEN_GRIPPER, observe=step == 3)


def _drive(stage: Stage, rng: np.random.Generator, kind: str, steps: int) -> _Record:
    record, left, after = _Record(), 0, 0
    kick: Array = np.zeros(3)
    phase = int(rng.integers(EVERY))
    for step in range(steps):
        view = stage.view()
        now = moment(view, kind)
        record.answers.append(reflex(now))
        if step % EVERY == phase and view.frames is not None:
            record.seen.append((step, view))
        if left == 0 and rng.random() < KICK:
            left, kick = int(rng.integers(*KICK_STEPS)), rng.uniform(-KICK_SIZE, KICK_SIZE, 3)
        record.kicked.append(left > 0)
        action = record.answers[-1].copy()
        action[:3] += rng.normal(0, NOISE, 3)
        if left:
            action[:3], left = kick, left - 1
        stage.scene.step(np.clip(action, -1, 1), observe=(step + 1) % EVERY == phase)
        after += now.delivered
        if after > CHUNK:
            break
    return record
