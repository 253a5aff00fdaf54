"""How well an alarm tells failures from successes: AUROC, detection, false alarms, lead time.

Episodes of several scenes are compared within their scene, whose limit they share.

Axes: e episode.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from lerobot_policy_quantile.calibration.auroc import auroc_interval
from lerobot_policy_quantile.calibration.scores import rounded
from lerobot_policy_quantile.calibration.signal_band import WatchedEpisode
from lerobot_policy_quantile.evaluation.tables.intervals import wilson
from lerobot_policy_quantile.util.quantiles import Array
from lerobot_policy_quantile.util.tables import aligned

HORIZONS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the limit at which the scores so far are compared."""


def alarm_record(episodes: Sequence[WatchedEpisode]) -> dict[str, Any]:
    """All figures in JSON form. Episodes that have ended by a horizon no longer count there."""
    scores, failed = scores_of(episodes)
    scenes, tasks = (groups_of(episodes, by_task=by_task) for by_task in (False, True))
    rang = np.array([episode.first is not None for episode in episodes], dtype=bool)
    leads = [episode.lead for episode in episodes if episode.failed and episode.lead is not None]
    return {
        "episodes": len(episodes),
        "failures": int(failed.sum()),
        "auroc": auroc_interval(scores, failed, scenes),
        "auroc_within_tasks": auroc_interval(scores, failed, tasks),
        "auroc_of_length": auroc_interval(np.array([float(e.row.steps) for e in episodes]), failed, scenes),
        "horizons": [_at(episodes, share) for share in HORIZONS],
        "detection": _share(rang[failed]),
        "false_alarms": _share(rang[~failed]),
        "lead_steps": rounded(np.median(leads)) if leads else None,
        "lead_steps_range": [int(min(leads)), int(max(leads))] if leads else None,
    }


def scores_of(episodes: Sequence[WatchedEpisode], share: float = 1.0) -> tuple[Float[Array, " e"], Bool[Array, " e"]]:
    """The largest score of every episode up to a share of its limit, and whether it failed."""
    most = [
        max((r.score for r in episode.readings if r.step <= share * _limit(episode)), default=-np.inf)
        for episode in episodes
    ]
    return np.array(most), np.array([episode.failed for episode in episodes], dtype=bool)


def groups_of(episodes: Sequence[WatchedEpisode], *, by_task: bool = False) -> Int[Array, " e"]:
    """A number for every scene, or for every task of every scene."""
    names = [(e.row.key.scene, e.row.key.task if by_task else 0) for e in episodes]
    numbers = {name: number for number, name in enumerate(sorted(set(names)))}
    return np.array([numbers[name] for name in names], dtype=np.int64)


def still_running(episodes: Sequence[WatchedEpisode], share: float) -> list[WatchedEpisode]:
    """Those that had not ended before a share of their limit."""
    return [episode for episode in episodes if episode.row.steps >= share * _limit(episode)]


def _limit(episode: WatchedEpisode) -> int:
    return int(episode.row.versions.get("limit", episode.row.steps))


def _at(episodes: Sequence[WatchedEpisode], share: float) -> dict[str, Any]:
    """Scores up to a share of the limit, among the episodes that are still running then."""
    running = still_running(episodes, share)
    scores, failed = scores_of(running, share)
    return {"share": share, "running": len(running), "failures": int(failed.sum())} | {
        "auroc": auroc_interval(scores, failed, groups_of(running))
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
    whole = ("AUROC", "AUROC within tasks", "AUROC of episode length alone")
    for name, key in zip(whole, ("auroc", "auroc_within_tasks", "auroc_of_length"), strict=True):
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
