"""Judges policies on held-out episodes: one policy in memory at a time, one episode's arrays at a time.

dataset -> recordings -> policy's laws per episode (`EpisodeLaw`) -> tallies -> scores with intervals -> record
"""

import gc
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

import lerobot_policy_quantile
from lerobot_policy_quantile.adapters.lerobot_folder import load_parts, read_config
from lerobot_policy_quantile.calibration.baselines import BASELINES, fit_baselines
from lerobot_policy_quantile.calibration.conformal import (
    BoundsCheck,
    BoundsFit,
    calibrated_on,
    describe_bounds,
    require_current,
    require_enough,
)
from lerobot_policy_quantile.calibration.held_out import (
    DatasetFacts,
    Recording,
    data_digest,
    open_dataset,
    read_recordings,
    require_fitting,
)
from lerobot_policy_quantile.calibration.policy_facts import PolicyFacts
from lerobot_policy_quantile.calibration.predictions import (
    POINT,
    QUANTILES,
    FrameReading,
    LawSource,
    Predictor,
    episode_laws,
)
from lerobot_policy_quantile.calibration.scores import LEVEL, RESAMPLES, Bootstrap, rounded, score_record
from lerobot_policy_quantile.calibration.tallies import Tally, tally
from lerobot_policy_quantile.policy.action_units import ActionUnits, units_of
from lerobot_policy_quantile.policy.bounds_file import ConformalBounds, folder_digest, read_bounds, write_bounds
from lerobot_policy_quantile.policy.grippers import action_names
from lerobot_policy_quantile.util.quantiles import Array

FORMAT = 1
SAMPLES = (1, 10, 50)
"""How many samples a flow policy is judged by."""
TRAINING = "train_config.json"
"""What LeRobot's trainer saves beside the weights."""

Told = Callable[[str, int, int], None]


@dataclass(frozen=True)
class CalibrationSettings:
    """How policies are judged."""

    reading: FrameReading = field(default_factory=FrameReading)
    device: str = "cpu"
    samples: tuple[int, ...] = SAMPLES
    resamples: int = RESAMPLES
    seed: int = 0
    """Of the bootstrap."""
    conformal: tuple[float, ...] = ()
    """Masses to fit bounds for, into the policies' folders; none: bounds that are there are judged."""

    def __post_init__(self) -> None:
        if not self.samples or min(self.samples) < 1:
            raise ValueError(f"--samples must be positive numbers, such as 1,10,50; got {self.samples}")


def frames_to_judge(recordings: Sequence[Recording], policies: int, every: int) -> int:
    """How many predictions a run makes, draws not counted."""
    return policies * sum(len(recording.judged(every)) for recording in recordings)


def calibrate(
    policies: Sequence[PolicyFacts],
    data: DatasetFacts,
    episodes: Sequence[int],
    settings: CalibrationSettings,
    told: Told | None = None,
) -> dict[str, Any]:
    """The record of a run. `told` hears the policy's name, how many frames are done and how many there are."""
    for policy in policies:
        require_fitting(policy, data)
    require_enough(settings.conformal, len(episodes))
    known = [None if settings.conformal else read_bounds(policy.folder) for policy in policies]
    for policy in policies if settings.conformal else ():
        if seen := seen_in_training(policy, data, episodes):
            raise ValueError(f"--conformal needs episodes that were not trained on. {seen}")
    bootstrap = Bootstrap(len(episodes), settings.resamples, settings.seed)
    fitted_on = {number for bounds in known if bounds and bounds.dataset == data.label for number in bounds.episodes}
    dataset = open_dataset(data, sorted({*episodes, *(n for n in fitted_on if n < data.episodes)}))
    for policy, bounds in zip(policies, known, strict=True):
        if bounds is not None:
            require_current(bounds, policy, data, dataset)
    recordings = read_recordings(dataset, episodes)
    total, done = frames_to_judge(recordings, len(policies), settings.reading.every), 0

    def heard(policy: str, frames: int) -> None:
        nonlocal done
        done += frames
        if told is not None:
            told(policy, done, total)

    judged = [
        _judge(policy, dataset, recordings, settings, bootstrap, heard, bounds)
        for policy, bounds in zip(policies, known, strict=True)
    ]
    for policy, each in zip(policies, judged, strict=True) if settings.conformal else ():
        margins = _fitted(policy, each)
        digests = {"weights": folder_digest(policy.folder), "data": data_digest(dataset, episodes)}
        fitted = ConformalBounds(settings.conformal, margins, **digests, dataset=data.label, episodes=tuple(episodes))
        write_bounds(policy.folder, fitted)
        each.facts["bounds"] = describe_bounds(fitted)
    laws: list[dict[str, Any]] = []
    for each in judged:
        there = {_yardstick(law): law for law in laws if law["baseline"]}
        laws += [law for law in each.laws if not law["baseline"] or _yardstick(law) not in there]
    return {
        "format": FORMAT,
        "dataset": data.name,
        "episodes": list(episodes),
        "frames": frames_to_judge(recordings, 1, settings.reading.every),
        "every": settings.reading.every,
        "interval": {"level": LEVEL, "resamples": settings.resamples, "seed": settings.seed, "over": "episodes"},
        "units": "scores and widths in each policy's normalised action units, if not said otherwise",
        "dimensions": _dimension_names(data),
        "policies": [each.facts for each in judged],
        "notes": [
            *_notes(policies, data, episodes, judged),
            *(
                note
                for policy, bounds in zip(policies, known, strict=True)
                if bounds and (note := calibrated_on(bounds, policy, data, episodes))
            ),
        ],
        "laws": [{key: value for key, value in law.items() if key != "of"} for law in laws],
    }


@dataclass(frozen=True)
class _Judged:
    """One policy's part of the record."""

    facts: dict[str, Any]
    laws: list[dict[str, Any]]
    units: ActionUnits
    margins: Float[Tensor, "m h d"] | None
    """Of the bounds that were asked for."""


def _fitted(policy: PolicyFacts, judged: _Judged) -> Float[Tensor, "m h d"]:
    if judged.margins is None:
        raise ValueError(
            f"--conformal needs policies that predict quantiles at all levels; {policy.name} has the head {policy.head}"
            " and predicts none: leave it out"
        )
    return judged.margins


def _judge(
    policy: PolicyFacts,
    dataset: Any,
    recordings: Sequence[Recording],
    settings: CalibrationSettings,
    bootstrap: Bootstrap,
    heard: Callable[[str, int], None],
    bounds: ConformalBounds | None,
) -> _Judged:
    _ = lerobot_policy_quantile.QuantileConfig  # LeRobot's discovery skips a package that is already imported
    config = read_config(policy.folder, settings.device)
    model, before, after, context = load_parts(policy.folder, config, renamed=policy.renamed)
    units = units_of(after, policy.action_dim)
    predictor = Predictor(model, before, policy, settings.samples)
    actions = {r.episode: units.normalised(r.actions) for r in recordings}
    baselines = fit_baselines(list(actions.values()), policy.chunk_size, predictor.levels)
    told = predictor.sources[0].kind == QUANTILES
    fit = BoundsFit(settings.conformal, predictor.levels) if settings.conformal and told else None
    check = BoundsCheck(bounds, predictor.levels) if bounds is not None and told else None
    ours: list[list[Tally]] = [[] for _ in predictor.sources]
    theirs: dict[str, list[Tally]] = {name: [] for name in BASELINES}
    for laws in episode_laws(
        predictor, dataset, recordings, units, settings.reading, lambda frames: heard(policy.name, frames)
    ):
        for own, law in zip(ours, laws, strict=True):
            own.append(tally(law, predictor.levels))
        for keeper in (fit, check):
            if keeper is not None:
                keeper.add(laws[0])
        for name, law in baselines.laws(laws[0], actions[laws[0].episode]).items():
            theirs[name].append(tally(law, predictor.levels))
    sources = predictor.sources
    levels = [float(level) for level in predictor.levels]
    del model, before, predictor
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    references = {name: Tally.stacked(parts) for name, parts in theirs.items()}
    facts = {
        "name": policy.name,
        "head": policy.head,
        "fingerprint": context["policy"],
        "device": context["device"],
        "chunk_size": policy.chunk_size,
        "grippers": list(config.gripper_dims),
        "levels": [rounded(level) for level in levels],
        "robot_units_per_normalised": rounded(units.scale),
    }
    found = [
        {**_named(policy, source), **_scored(Tally.stacked(parts), references, units.scale, bootstrap, source)}
        for source, parts in zip(sources, ours, strict=True)
    ]
    if check is not None and bounds is not None:
        found[0]["conformal"] = check.record(bootstrap)
        facts["bounds"] = describe_bounds(bounds)
    yard = [policy.chunk_size, len(levels), *units.key]
    for name, reference in references.items():
        head = {"policy": policy.name, "head": policy.head, "law": name, "baseline": True, "expert_passes": 0}
        found.append({**head, "samples": None, "of": yard, **_scored(reference, references, units.scale, bootstrap)})
    return _Judged(facts, found, units, None if fit is None else fit.margins())


def _named(policy: PolicyFacts, source: LawSource) -> dict[str, Any]:
    law = source.kind if source.samples is None else f"{source.samples} sample{'s' if source.samples > 1 else ''}"
    return {
        "policy": policy.name,
        "head": policy.head,
        "law": law,
        "baseline": False,
        "expert_passes": source.expert_passes,
        "samples": source.samples,
    }


def _scored(
    own: Tally, references: Mapping[str, Tally], scale: Array, bootstrap: Bootstrap, source: LawSource | None = None
) -> dict[str, Any]:
    """A single sample is a point, too."""
    point = source is not None and (source.kind == POINT or source.samples == 1)
    return score_record(own, references, scale, bootstrap, distribution=not point)


def _yardstick(law: Mapping[str, Any]) -> tuple[Any, ...]:
    """Baselines of policies with the same chunks, levels and units are the same."""
    return (law["law"], *law.get("of", ()))


def _dimension_names(data: DatasetFacts) -> list[str]:
    known = action_names(data.features, data.action_dim)
    return known or [f"action {d}" for d in range(data.action_dim)]


def _notes(
    policies: Sequence[PolicyFacts], data: DatasetFacts, episodes: Sequence[int], judged: Sequence[_Judged]
) -> list[str]:
    notes = [note for policy in policies if (note := seen_in_training(policy, data, episodes))]
    if len({each.units.key for each in judged}) > 1:
        notes.append(
            "The policies normalise actions differently: compare their skill and coverage, not their CRPS and widths."
        )
    if len(episodes) < 10:
        notes.append(
            f"{len(episodes)} episode{'s' if len(episodes) > 1 else ''}: "
            + ("there is no interval." if len(episodes) < 2 else "a bootstrap over so few gives intervals too narrow.")
        )
    return notes


def seen_in_training(policy: PolicyFacts, data: DatasetFacts, episodes: Sequence[int]) -> str:
    """A sentence if the trainer's own file says that the policy was trained on these episodes; else nothing."""
    file = policy.folder / TRAINING
    if not file.is_file():
        return ""
    trained = json.loads(file.read_bytes()).get("dataset") or {}
    root = trained.get("root")
    same = Path(root).resolve() == data.root.resolve() if root else trained.get("repo_id") == data.repo_id
    only = trained.get("episodes")
    shared = set(episodes) if only is None else set(episodes) & set(only)
    if not same or not shared:
        return ""
    return (
        f"Policy {policy.name} was trained on {len(shared)} of the {len(episodes)} episodes ({TRAINING}): these are"
        " not held out, and its scores on them are too good."
    )
