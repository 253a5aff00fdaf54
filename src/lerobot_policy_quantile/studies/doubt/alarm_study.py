"""`make alarm-study`: failures announced by quantile signals, by three training seeds, by flow samples and by time."""

from collections.abc import Mapping, Sequence
from typing import Any

from lerobot_policy_quantile.calibration.alarm_scores import alarm_record, groups_of, scores_of, still_running
from lerobot_policy_quantile.calibration.auroc import auroc_difference
from lerobot_policy_quantile.calibration.signal_band import WatchedEpisode
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.whole_run import run_whole
from lerobot_policy_quantile.studies.doubt.figures import alarm_figure
from lerobot_policy_quantile.studies.doubt.page import MISSING, figure, rate, write_page
from lerobot_policy_quantile.studies.doubt.policies import DoubtPolicies, policies_of
from lerobot_policy_quantile.studies.doubt.settings import (
    CAMERA_SIZE,
    FLOW_SAMPLES,
    PATIENCE,
    SUCCESS_RANGE,
    SUITES,
    WATCHED_REPLAN,
    DoubtStudy,
)
from lerobot_policy_quantile.studies.doubt.shadows import shadow_factory
from lerobot_policy_quantile.studies.doubt.watching import (
    ALL,
    OF_SAMPLES,
    OF_SEEDS,
    OF_TIME,
    WATCHERS,
    ShadowedEpisode,
    read_shadowed,
    watch_by_scene,
)
from lerobot_policy_quantile.util.tables import markdown

HALF = 0.5
TARGET = 0.8
"""AUROC that the quantile signals should reach."""
DRAWN = {ALL.name: "quantile", OF_SEEDS.name: "l1", OF_SAMPLES.name: "flow", OF_TIME.name: "muted"}
"""In the figure: name -> colour."""


def run_alarms(study: DoubtStudy) -> None:
    """Run what is missing and write the page."""
    policies = policies_of(study)
    known = episodes(study, policies, "known", study.size.fitting)
    if not study.size.any_success_rate:
        require_mixed([episode.row for episode in known])
    new = episodes(study, policies, "new", study.size.judging)
    alpha = study.size.alphas[0]
    watched = {watcher.name: watch_by_scene(watcher, known, new, alpha) for watcher in WATCHERS}
    false = {each: alarm_record(watch_by_scene(ALL, known, new, each))["false_alarms"] for each in study.size.alphas}
    records = {name: alarm_record(own) for name, own in watched.items()}
    figure = alarm_figure((name, shade, records[name]["horizons"]) for name, shade in DRAWN.items())
    write_page(
        study, "alarm", "Failure prediction", opening(known, new, alpha), figure, sections(watched, records, false)
    )


def episodes(study: DoubtStudy, policies: DoubtPolicies, name: str, states: tuple[int, ...]) -> list[ShadowedEpisode]:
    """Episodes of the driver with the others asked beside it, from these initial states."""
    factory = shadow_factory(
        policies.quantile, policies.flow, samples=FLOW_SAMPLES, replan=WATCHED_REPLAN, camera_size=CAMERA_SIZE
    )
    folder = study.out / "alarm" / name
    plan = study.plan(SUITES, states)
    rows = run_whole(plan, folder, factory, workers=study.workers, console=study.notes, timeout=PATIENCE)
    return read_shadowed(folder, rows)


def require_mixed(rows: Sequence[Row]) -> None:
    """Refuse to go on where nearly all episodes end alike: settings can still be changed on these states."""
    won = sum(row.status == "success" for row in rows) / len(rows)
    low, high = SUCCESS_RANGE
    if not low <= won <= high:
        raise ValueError(
            f"between {low:.0%} and {high:.0%} of the fitting episodes must succeed; got {won:.0%}: change"
            " demonstrations or updates in studies/doubt/settings.py and use another --out"
        )


def opening(known: Sequence[ShadowedEpisode], new: Sequence[ShadowedEpisode], alpha: float) -> str:
    """What the page is about."""
    good = sum(episode.row.status == "success" for episode in known)
    lost = sum(episode.row.status != "success" for episode in new)
    return (
        "After this page you can tell how well predicted quantiles announce failures, beside three policies that"
        " disagree, flow samples that differ, and time. A miniature policy acts in LIBERO-Spatial and LIBERO-Goal; the"
        f" others are asked on the same observations. {len(new)} episodes, {lost} of them failures"
        f" ({100 * (1 - lost / len(new)):.0f} % succeed); alarms were fitted, one per suite, on {good} successful"
        f" episodes from other initial states. Detection and lead are at alpha = {alpha:g}. The three seeds share"
        " their pretraining and differ in fine-tuning."
    )


def sections(
    watched: Mapping[str, Sequence[WatchedEpisode]],
    records: Mapping[str, Mapping[str, Any]],
    false: Mapping[float, Mapping[str, Any]],
) -> list[str]:
    """All tables, and what they say about the target."""
    return [
        "## Signals",
        signal_table(records),
        "AUROC compares episodes of one suite, `within tasks` those of one task. Failures run to the limit, so that at"
        " the end time alone separates them; among episodes still running at half of the limit it says nothing. Lead"
        " is the median number of steps from alarm to limit over the detected failures.",
        "## Against the others",
        difference_table(watched),
        verdict(watched, records),
        "## False alarms in new successful episodes, all quantile signals",
        markdown(("alpha", "false alarms"), [[f"{alpha:g}", rate(found)] for alpha, found in false.items()]),
    ]


def signal_table(records: Mapping[str, Mapping[str, Any]]) -> str:
    """One line per way to announce failures."""
    header = ("signal", "expert passes per replan", "AUROC", "within tasks", "at half of the limit, still running")
    lines = []
    for watcher in WATCHERS:
        record = records[watcher.name]
        half = next(at for at in record["horizons"] if at["share"] == HALF)
        lead = record["lead_steps"]
        lines.append(
            [watcher.name, str(watcher.expert_passes)]
            + [figure(each) for each in (record["auroc"], record["auroc_within_tasks"], half["auroc"])]
            + [rate(record["detection"]), rate(record["false_alarms"]), MISSING if lead is None else f"{lead:g}"]
        )
    return markdown((*header, "failures detected", "false alarms", "lead, steps"), lines)


def difference_table(watched: Mapping[str, Sequence[WatchedEpisode]]) -> str:
    """AUROC of all quantile signals minus that of three seeds and of flow samples, on the same episodes."""
    lines = [
        [f"minus {other.name}", *(figure(difference(watched, other.name, at), 3, "+") for at in (1.0, HALF))]
        for other in (OF_SEEDS, OF_SAMPLES)
    ]
    return markdown(("all quantile signals", "difference in AUROC", "at half of the limit, still running"), lines)


def difference(watched: Mapping[str, Sequence[WatchedEpisode]], other: str, at: float) -> dict[str, Any]:
    """Paired over episodes; before the limit, over those that are still running."""
    ours, theirs = (still_running(watched[name], at) if at < 1 else watched[name] for name in (ALL.name, other))
    (mine, failed), (rival, _) = scores_of(ours, at), scores_of(theirs, at)
    return auroc_difference(mine, rival, failed, groups_of(ours))


def verdict(watched: Mapping[str, Sequence[WatchedEpisode]], records: Mapping[str, Mapping[str, Any]]) -> str:
    """Whether the target is reached: the AUROC, and no worse than the two dearer ones as far as intervals tell."""
    reached = records[ALL.name]["auroc"]["value"]
    if reached is None:
        return "Without failures and successes there is no AUROC."
    lines = [f"- AUROC of at least {TARGET}: {'reached' if reached >= TARGET else 'not reached'} ({reached:.2f})."]
    for other in (OF_SEEDS, OF_SAMPLES):
        found = difference(watched, other.name, 1.0)
        told = "worse" if found["high"] < 0 else "better" if found["low"] > 0 else "no difference can be told"
        passes = f"{ALL.expert_passes} expert pass against {other.expert_passes}"
        lines.append(f"- Against {other.name}: {told} ({figure(found, 3, '+')}), {passes}.")
    return "\n".join(lines)
