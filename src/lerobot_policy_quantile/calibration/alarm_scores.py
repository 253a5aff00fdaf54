"""How well an alarm tells failures from successes: AUROC, detection, false alarms, lead time.

Axes: e episode, r resample.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from lerobot_policy_quantile.calibration.alarm_fit import WatchedEpisode
from lerobot_policy_quantile.calibration.scores import LEVEL, rounded
from lerobot_policy_quantile.evaluation.tables.intervals import wilson
from lerobot_policy_quantile.util.quantiles import Array
from lerobot_policy_quantile.util.tables import aligned

RESAMPLES = 2000
HORIZONS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the limit at which the scores so far are compared."""


def auroc(scores: Float[Array, " e"], failed: Bool[Array, " e"]) -> float:
    """Probability that a failure scores above a success, ties counted half; NaN without both."""
    bad, good = np.sort(scores[failed]), scores[~failed]
    if not len(bad) or not len(good):
        return float("nan")
    above = len(bad) - np.searchsorted(bad, good, side="right")
    ties = np.searchsorted(bad, good, side="right") - np.searchsorted(bad, good, side="left")
    return float((above + ties / 2).sum() / (len(bad) * len(good)))


def auroc_interval(scores: Float[Array, " e"], failed: Bool[Array, " e"], seed: int = 0) -> dict[str, Any]:
    """With its 95 % interval by bootstrap over failures and over successes."""
    value, draw = auroc(scores, failed), np.random.default_rng(seed)
    if np.isnan(value):
        return {"value": None, "low": None, "high": None}
    bad, good = np.flatnonzero(failed), np.flatnonzero(~failed)
    again = []
    for _ in range(RESAMPLES):
        chosen = np.concatenate([draw.choice(bad, len(bad)), draw.choice(good, len(good))])
        again.append(auroc(scores[chosen], failed[chosen]))
    low, high = np.quantile(again, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"value": rounded(value), "low": rounded(low), "high": rounded(high)}


def alarm_record(episodes: Sequence[WatchedEpisode]) -> dict[str, Any]:
    """All figures in JSON form. Episodes that have ended by a horizon no longer count there."""
    failed = np.array([episode.failed for episode in episodes], dtype=bool)
    scores = np.array([episode.score for episode in episodes])
    rang = np.array([episode.first is not None for episode in episodes], dtype=bool)
    leads = [episode.lead for episode in episodes if episode.failed and episode.lead is not None]
    return {
        "episodes": len(episodes),
        "failures": int(failed.sum()),
        "auroc": auroc_interval(scores, failed),
        "auroc_of_length": auroc_interval(np.array([float(e.row.steps) for e in episodes]), failed),
        "horizons": [_at(episodes, share) for share in HORIZONS],
        "detection": _share(rang[failed]),
        "false_alarms": _share(rang[~failed]),
        "lead_steps": rounded(np.median(leads)) if leads else None,
        "lead_steps_range": [int(min(leads)), int(max(leads))] if leads else None,
    }


def _at(episodes: Sequence[WatchedEpisode], share: float) -> dict[str, Any]:
    """Scores up to a share of the limit, among the episodes that are still running then."""
    scores, failed = [], []
    for episode in episodes:
        step = share * int(episode.row.versions.get("limit", episode.row.steps))
        if episode.row.steps >= step:
            scores.append(max((r.score for r in episode.readings if r.step <= step), default=-np.inf))
            failed.append(episode.failed)
    bad = np.array(failed, dtype=bool)
    return {"share": share, "running": len(scores), "failures": int(bad.sum())} | {
        "auroc": auroc_interval(np.array(scores), bad)
    }


def _share(hits: Bool[Array, " e"]) -> dict[str, Any]:
    """A share of episodes with Wilson's interval."""
    if not len(hits):
        return {"value": None, "low": None, "high": None, "hits": 0, "of": 0}
    found = wilson(float(hits.mean()), len(hits))
    return {
        "value": rounded(found.value),
        "low": rounded(found.low),
        "high": rounded(found.high),
        "hits": int(hits.sum()),
        "of": len(hits),
    }


def alarm_table(record: dict[str, Any]) -> str:
    """For a terminal."""
    lines = [["", "value", "95 % interval", "episodes"]]
    for name, key in (("AUROC", "auroc"), ("AUROC of episode length alone", "auroc_of_length")):
        lines.append([name, *_figure(record[key], "{:.3f}"), str(record["episodes"])])
    for at in record["horizons"]:
        name = f"AUROC at {100 * at['share']:g} % of the limit, still running"
        lines.append([name, *_figure(at["auroc"], "{:.3f}"), f"{at['running']} ({at['failures']} fail)"])
    for name, key in (("failures with an alarm", "detection"), ("false alarms in successes", "false_alarms")):
        each = record[key]
        lines.append([name, *_figure(each, "{:.1%}"), f"{each['hits']} of {each['of']}"])
    lead = record["lead_steps"]
    ends = "" if lead is None else "{} to {}".format(*record["lead_steps_range"])
    lines.append(["steps from alarm to limit, median", "-" if lead is None else f"{lead:g}", ends, ""])
    return aligned(lines, left=1)


def _figure(estimate: dict[str, Any], shape: str) -> list[str]:
    if estimate["value"] is None:
        return ["-", ""]
    return [shape.format(estimate["value"]), f"{shape.format(estimate['low'])} to {shape.format(estimate['high'])}"]
