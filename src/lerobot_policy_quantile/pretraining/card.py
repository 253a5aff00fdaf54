"""The data card: what the checkpoint was trained on, computed from the data."""

from importlib.metadata import version

from lerobot_policy_quantile.pretraining.gate import in_libero, things_in
from lerobot_policy_quantile.pretraining.samples import STATIC, Samples
from lerobot_policy_quantile.pretraining.student import CAMERA_SIZE, N_ACTION_STEPS
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

Simulated scenes only (robosuite {robosuite}, mujoco {mujoco}): the embedded pick-and-place{libero}. A Panda arm, an
open basket, several things; things, basket and arm in varied places, every thing a distractor of the others. The
instruction names one: "pick up the ... and place it in the basket". Pictures are {camera} x {camera} pixels (external
and wrist), rendered at that size; evaluate with `--camera-size {camera}`. It plans ten actions and executes {steps}
before it looks again. Heights are reckoned from the embedded scene's ground (0.8 m); elsewhere the range of the height
in the processors must be moved to the scene's own ground.

| data | embedded | LIBERO-Object |
|---|---|---|
| moments of play: a memoryless scripted expert with noise and kicks | {play} | {libero_play} |
| static scenes: arm, things and basket put anywhere, one action known | {static} | {libero_static} |

Labels per named thing: {things}.

Never seen: an obstacle, a detour, another scene, another camera size, a real picture, a rotation of the hand (rotation
labels are zero), and the stored initial states of the scenes: layouts are drawn with random keys of their own.

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
Closed loop figures and known failures: docs/explanation/base.md of the project.
"""


def data_card(samples: Samples, budget: TrainingBudget, seed: int, figures: dict[str, float], parameters: int) -> str:
    """Markdown with LeRobot's header."""
    elsewhere, played = in_libero(samples), samples.driven != STATIC
    return _CARD.format(
        parameters=parameters / 1e6,
        seed=seed,
        robosuite=version("robosuite"),
        mujoco=version("mujoco"),
        libero=" and the ten tasks of LIBERO-Object" if elsewhere.any() else "",
        camera=CAMERA_SIZE,
        steps=N_ACTION_STEPS,
        play=int((played & ~elsewhere).sum()),
        static=int((~played & ~elsewhere).sum()),
        libero_play=int((played & elsewhere).sum()),
        libero_static=int((~played & elsewhere).sum()),
        things=", ".join(f"{name.replace('_', ' ')} {count}" for name, count in things_in(samples).items()),
        updates=budget.updates,
        batch=budget.batch,
        rate=budget.rate,
        figures="\n".join(f"| {name.replace('_', ' ')} | {value:.4g} |" for name, value in figures.items()),
        **budget.recipe.weights,
    )
