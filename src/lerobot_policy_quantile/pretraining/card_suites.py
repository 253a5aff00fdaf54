"""The data card of a base that was pretrained on all four LIBERO suites, computed from the data."""

from importlib.metadata import version

import numpy as np

from lerobot_policy_quantile.policy.base_checkpoint import FLOW_FILE
from lerobot_policy_quantile.pretraining.samples import STATIC, Samples
from lerobot_policy_quantile.pretraining.student import CAMERA_SIZE
from lerobot_policy_quantile.pretraining.suite_samples import SUITES, SuiteSamples
from lerobot_policy_quantile.pretraining.train import TrainingBudget

_CARD = """\
---
library_name: lerobot
tags: [robotics, lerobot, quantile, vla]
license: apache-2.0
---

# Base checkpoint of the tiny variant, all four LIBERO suites

A miniature of a pretrained pi0.5 for experiments on a CPU: SigLIP, Gemma and action expert at {parameters:.1f} M
parameters, trained together on scripted data, by direct answers and by flow matching. Made by `qhead pretrain` from
seed {seed}.

## What it has seen

Simulated scenes only (robosuite {robosuite}, mujoco {mujoco}), {camera} x {camera} pixels (external and wrist);
evaluate with `--camera-size {camera}`. It plans ten actions and executes {steps} before it looks again. States are the
simulator's own, without a shift of heights. Instructions in LIBERO are `task.language`.

| data | samples |
|---|---|
| embedded scene, static | {static} |
| embedded scene, play | {play} |
{suites}

Play in the suites: a scripted expert in random styles, with noise, kicks and missed grasps, from layouts drawn by
LIBERO's placement sampler. No stored initial state was used, no demonstration by people.

## How it was trained

{updates} updates of {batch} samples ({share:.0%} from the suites), {start}, AdamW at {rate}, averaged weights, colours
jittered, {prompts} prompts. Two action losses over one prefix pass: pinball loss of a direct pass (weight {action}) and
flow matching (weight {flow}), each with its own output projection. The policy in this folder has the direct one;
`{flow_file}` holds that of flow matching, which `load_base_weights` gives to flow heads. Auxiliary losses on
**privileged positions** that only a simulator knows: patches of all things ({spot}), patches of what
is to be taken now and of where it goes ({named}), and how far both are from the hand ({distance}). Their heads are not
in the file.

## On held-out scenes

| figure | value |
|---|---|
{figures}

Embedded scene: distance between the position the predicted command leads to and the expert's (unsaturated commands
only). Suites: mean absolute error of position commands (fractions of full scale) over the labelled chunk.
"""


def suites_card(
    samples: Samples,
    suites: SuiteSamples,
    budget: TrainingBudget,
    seed: int,
    figures: dict[str, float],
    parameters: int,
) -> str:
    """Markdown with LeRobot's header."""
    counts = np.bincount(suites.suite, minlength=len(SUITES))
    return _CARD.format(
        parameters=parameters / 1e6,
        seed=seed,
        robosuite=version("robosuite"),
        mujoco=version("mujoco"),
        camera=CAMERA_SIZE,
        steps=budget.recipe.n_action_steps,
        static=int((samples.driven == STATIC).sum()),
        play=int((samples.driven != STATIC).sum()),
        suites="\n".join(f"| {suite}, play | {count} |" for suite, count in zip(SUITES, counts, strict=True)),
        updates=budget.updates,
        batch=budget.batch,
        share=budget.suite_share,
        start="from random weights" if budget.start is None else "going on from an earlier checkpoint",
        rate=budget.rate,
        prompts=budget.recipe.n_prompts or "no",
        flow_file=FLOW_FILE,
        figures="\n".join(f"| {name.replace('_', ' ')} | {value:.4g} |" for name, value in figures.items()),
        **budget.recipe.weights,
    )
