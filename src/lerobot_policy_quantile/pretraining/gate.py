"""Errors on held-out scenes before closed-loop evaluation: predicted targets against the expert's.

An unsaturated command determines a target of the hand: target = hand + command * GAIN. On held-out static scenes the
distance between the policy's and the expert's target is measured in millimetres; one simulated episode costs as much
as hundreds of these.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Int

from lerobot_policy_quantile.pretraining.batches import Batches
from lerobot_policy_quantile.pretraining.samples import EMBEDDED_THINGS, THINGS, Samples
from lerobot_policy_quantile.pretraining.suite_samples import SUITES, SuiteSamples
from lerobot_policy_quantile.scenes.contract import Array
from lerobot_policy_quantile.scenes.experts.reflex import SPEED
from lerobot_policy_quantile.scenes.experts.waypoints import GAIN

if TYPE_CHECKING:
    from lerobot_policy_quantile.pretraining.joint_batches import SuiteBatches
    from lerobot_policy_quantile.pretraining.student import Student

ROWS = 64


def target_error(student: "Student", batches: Batches, samples: Samples, after: Any) -> dict[str, float]:
    """Median and 90 % quantile of the sideways and vertical error (mm), and the share of right gripper commands.

    LIBERO's scenes, if any, have separate figures.
    """
    rows, named = np.nonzero(samples.valid[:, :, 0])
    embedded = named < EMBEDDED_THINGS
    answer = _errors(student, batches, samples, after, rows[embedded], named[embedded])
    if not embedded.all():
        libero = _errors(student, batches, samples, after, rows[~embedded], named[~embedded])
        answer |= {f"libero_{name}": value for name, value in libero.items()}
    return answer


def _errors(
    student: "Student",
    batches: Batches,
    samples: Samples,
    after: Any,
    rows: Int[Array, " n"],
    named: Int[Array, " n"],
) -> dict[str, float]:
    predicted = []
    for begin in range(0, len(rows), ROWS):
        part = slice(begin, begin + ROWS)
        batch = batches.of(rows[part], named[part])
        predicted.append(after(student.medians(batch))[:, 0].numpy())
    guess, label = np.concatenate(predicted), samples.actions[rows, named, 0]
    fine = np.abs(label[:, :3]) < SPEED - 1e-3
    off = 1000 * GAIN * np.abs(guess - label)[:, :3]
    near = np.linalg.norm((samples.things[rows, named] - samples.state[rows, :3])[:, :2], axis=1) < 0.03
    figures = {"sideways": off[:, :2][fine[:, :2]], "height": off[:, 2][fine[:, 2]]}
    figures["near"] = off[:, :2][near[:, None] & fine[:, :2]]
    answer = {}
    for name, values in figures.items():
        answer[f"{name}_median_mm"] = float(np.median(values)) if len(values) else float("nan")
        answer[f"{name}_90_mm"] = float(np.quantile(values, 0.9)) if len(values) else float("nan")
    answer["gripper_right"] = float(((guess[:, 6] > 0) == (label[:, 6] > 0)).mean())
    closing = label[:, 6] > 0
    answer["closings_found"] = float((guess[closing, 6] > 0).mean()) if closing.any() else float("nan")
    answer["labels"] = len(rows)
    return answer


def suite_errors(student: "Student", batches: "SuiteBatches", samples: SuiteSamples, after: Any) -> dict[str, float]:
    """In held-out episodes of LIBERO's suites, of the median and of flow samples: the mean absolute error of position
    commands over the labelled chunk, and the share of right gripper commands.
    """
    answers: dict[str, list[Array]] = {"median": [], "flow": []}
    for begin in range(0, len(samples), ROWS):
        rows = np.arange(begin, min(begin + ROWS, len(samples)))
        batch = batches.of(rows)
        answers["median"].append(after(student.medians(batch)).numpy())
        if student.recipe.flow:
            answers["flow"].append(after(student.flow_samples(batch, rows.tolist())).numpy())
    figures = {}
    for head, parts in answers.items():
        for number, suite in enumerate(SUITES if parts else ()):
            valid = samples.valid & (samples.suite == number)[:, None]
            if valid.any():
                guess, label = np.concatenate(parts)[valid], samples.actions[valid]
                figures[f"{suite}_{head}_position_error"] = float(np.abs(guess - label)[:, :3].mean())
                figures[f"{suite}_{head}_gripper_right"] = float(((guess[:, 6] > 0) == (label[:, 6] > 0)).mean())
    return figures


def in_libero(samples: Samples) -> Bool[Array, " n"]:
    """Which samples show a LIBERO scene: one without the embedded scene's objects."""
    return np.asarray(np.isnan(samples.things[:, 0]).any(-1))


def things_in(samples: Samples) -> dict[str, int]:
    """Number of labels per object."""
    return {thing: int(samples.valid[:, number, 0].sum()) for number, thing in enumerate(THINGS)}
