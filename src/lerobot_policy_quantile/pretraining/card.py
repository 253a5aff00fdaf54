"""The data card: what the checkpoint has seen, written from the data itself."""

from importlib.metadata import version

from lerobot_policy_quantile.pretraining.gate import things_in
from lerobot_policy_quantile.pretraining.samples import STATIC, Samples
from lerobot_policy_quantile.pretraining.student import CAMERA_SIZE, N_ACTION_STEPS, WEIGHTS
from lerobot_policy_quantile.pretraining.train import TrainingBudget

_CARD = """\
---
library_name: lerobot
tags: [robotics, lerobot, quantile, vla]
license: apache-2.0
---

# Base checkpoint of the tiny variant

A miniature of a pretrained pi0.5 for experiments on a CPU: SigLIP, Gemma and action expert at {parameters:.1f} M
parameters, trained together with a quantile head on scripted data. Made by `qhead pretrain --seed {seed}`.

## What it has seen

Simulated scenes only: the embedded pick-and-place (robosuite {robosuite}, mujoco {mujoco}). A Panda arm, an open
basket, a can, a milk carton, a loaf of bread and a cereal box; things, basket and arm in varied places, every thing a
distractor of the others. The instruction names one: "pick up the ... and place it in the basket". Pictures are
{camera} x {camera} pixels (external and wrist), rendered at that size; evaluate with `--camera-size {camera}`. It plans
ten actions and executes {steps} before it looks again.

| data | samples |
|---|---|
| moments of play: a memoryless scripted expert with noise and kicks | {play} |
| static scenes: arm, things and basket put anywhere, one action known | {static} |

Labels per named thing: {things}.

Never seen: an obstacle, a detour, another scene (LIBERO included), another camera size, a real picture, a rotation of
the hand (rotation labels are zero), and the stored initial states of the scene, whose random keys are others.

## How it was trained

{updates} updates of {batch} samples, AdamW at {rate}, averaged weights, colours jittered. Besides the head's pinball
loss (weight {action}) there were auxiliary losses on **privileged positions** that only a simulator knows: which patch
holds each thing and the basket ({spot}), which holds the named thing ({named}), and how far the named thing and the
basket are from the hand ({distance}). Their heads are not in the file.

## On held-out static scenes

| figure | value |
|---|---|
{figures}

Lengths: distance between the position the predicted command leads to and the expert's (unsaturated commands only).
Closed loop figures and known failures: docs/base.md of the project.
"""


def data_card(samples: Samples, budget: TrainingBudget, seed: int, figures: dict[str, float], parameters: int) -> str:
    """Markdown with LeRobot's header."""
    return _CARD.format(
        parameters=parameters / 1e6,
        seed=seed,
        robosuite=version("robosuite"),
        mujoco=version("mujoco"),
        camera=CAMERA_SIZE,
        steps=N_ACTION_STEPS,
        play=int((samples.driven != STATIC).sum()),
        static=int((samples.driven == STATIC).sum()),
        things=", ".join(f"{name} {count}" for name, count in things_in(samples).items()),
        updates=budget.updates,
        batch=budget.batch,
        rate=budget.rate,
        figures="\n".join(f"| {name.replace('_', ' ')} | {value:.4g} |" for name, value in figures.items()),
        **WEIGHTS,
    )
