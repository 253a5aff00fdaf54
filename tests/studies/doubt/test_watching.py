"""Alarms of every kind on the same episodes: what finds failures, what does not, and the page they become."""

import numpy as np
import pytest

from lerobot_policy_quantile.calibration.alarm_fit import RecordedEpisode
from lerobot_policy_quantile.calibration.alarm_scores import alarm_record
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.studies.doubt import alarm_study
from lerobot_policy_quantile.studies.doubt.figures import alarm_figure
from lerobot_policy_quantile.studies.doubt.shadows import SAMPLES, SEEDS
from lerobot_policy_quantile.studies.doubt.watching import (
    ALL,
    OF_SAMPLES,
    OF_SEEDS,
    WATCHERS,
    ShadowedEpisode,
    watch_by_scene,
)
from tests.support.rows import row

LEVELS = quantile_levels().double().numpy()
CHUNK, DIM, STEP, LIMIT = 6, 3, 3, 60
TIME = WATCHERS[-1]


def episode(number, *, failed=False, scene="left", telling=(SEEDS,)):
    """Failures run to the limit; from a third of it on, what is telling is four times as large."""
    rng = np.random.default_rng([number, failed])
    replans = LIMIT // STEP if failed else int(rng.integers(11, 15))
    factor = np.where(np.arange(replans) >= 7, 4.0, 1.0) if failed else np.ones(replans)

    def sizes(name):
        noise = rng.uniform(0.8, 1.2, replans)
        return noise * factor if name in telling else noise

    quantiles = sizes("quantiles")[:, None, None, None] * np.ones((1, CHUNK, DIM, 1)) * (LEVELS - 0.5)
    notes = {name: sizes(name)[:, None, None] * np.ones((1, CHUNK, DIM)) for name in (SEEDS, SAMPLES)}
    facts = row(
        scene,
        number % 2,
        number,
        status="failure" if failed else "success",
        steps=STEP * replans,
        limit=str(LIMIT),
    )
    return ShadowedEpisode(RecordedEpisode(facts, STEP * np.arange(replans), quantiles), notes)


def both(telling):
    known = [episode(i, scene=scene, telling=telling) for scene in ("left", "right") for i in range(60)]
    new = [
        episode(1000 + i, failed=i % 2 == 0, scene=scene, telling=telling)
        for scene in ("left", "right")
        for i in range(24)
    ]
    return known, new


@pytest.mark.parametrize(
    ("telling", "finder"), [(SEEDS, OF_SEEDS), (SAMPLES, OF_SAMPLES), ("quantiles", ALL)], ids=lambda v: str(v)[:9]
)
def test_the_one_that_knows_finds_the_failures_and_the_others_do_not(telling, finder):
    known, new = both((telling,))
    records = {w.name: alarm_record(watch_by_scene(w, known, new, 0.1)) for w in (ALL, OF_SEEDS, OF_SAMPLES)}
    for name, record in records.items():
        half = record["horizons"][1]["auroc"]["value"]
        hits, misfires = record["detection"]["hits"], record["false_alarms"]["hits"]
        assert misfires <= 8
        if name == finder.name:
            assert (hits, half) == (24, 1.0)
            assert record["lead_steps"] == LIMIT - 7 * STEP
        else:
            assert hits < 24
            assert half < 0.9


def test_time_finds_failures_late_and_says_nothing_among_those_still_running():
    known, new = both(())
    record = alarm_record(watch_by_scene(TIME, known, new, 0.1))
    assert record["auroc"]["value"] == 1
    assert record["horizons"][1]["auroc"]["value"] == 0.5
    assert record["lead_steps"] < LIMIT - 12 * STEP


def test_scenes_have_alarms_of_their_own():
    """Deviations are ten times as large in one scene: one alarm for both would ring there all the time."""
    known, new = both(())
    large = [
        ShadowedEpisode(e.recorded, {name: 10 * own for name, own in e.deviations.items()})
        if e.row.key.scene == "right"
        else e
        for e in new
    ]
    more = [
        ShadowedEpisode(e.recorded, {name: 10 * own for name, own in e.deviations.items()})
        if e.row.key.scene == "right"
        else e
        for e in known
    ]
    plain, scaled = (watch_by_scene(OF_SEEDS, *pair, 0.1) for pair in ((known, new), (more, large)))
    assert [w.first for w in plain] == [w.first for w in scaled]


def test_the_page_has_every_signal_with_its_passes_and_says_what_was_found():
    known, new = both(("quantiles",))
    watched = {w.name: watch_by_scene(w, known, new, 0.1) for w in WATCHERS}
    records = {name: alarm_record(own) for name, own in watched.items()}
    false = {0.1: records[ALL.name]["false_alarms"]}
    text = "\n".join([alarm_study.opening(known, new, 0.1), *alarm_study.sections(watched, records, false)])
    assert "48 episodes, 24 of them failures (50 % succeed)" in text
    assert "| spread of 8 flow samples | 80 |" in text
    assert "| disagreement of three seeds | 3 |" in text
    assert "AUROC of at least 0.8: reached" in text
    assert "Against disagreement of three seeds: better" in text
    lines = [(name, shade, records[name]["horizons"]) for name, shade in alarm_study.DRAWN.items()]
    (panel,) = alarm_figure(lines).panels
    half = records[ALL.name]["horizons"][1]["auroc"]["value"]
    assert f"{half:.2f} at 0.5" in panel.alt
    assert all(f"{name}</text>" in panel.svg() for name in alarm_study.DRAWN)


def test_nearly_sure_outcomes_are_refused_before_judged_states_are_touched():
    rows = [row("left", index=i, status="success" if i < 9 else "failure") for i in range(10)]
    with pytest.raises(ValueError, match="between 20% and 80% of the fitting episodes must succeed; got 90%"):
        alarm_study.require_mixed(rows)
    alarm_study.require_mixed(rows[4:] + rows[9:])
