"""The paper's own cells through our aggregation give the paper's own totals; rows that differ never mix."""

from dataclasses import replace

import pytest

from lerobot_policy_quantile.evaluation.tables.aggregate import columns_of, lines_of
from lerobot_policy_quantile.evaluation.tables.benchmarks import (
    CATEGORIES,
    PERTURBATIONS,
    SUITES,
    limit_of,
    plus_scene,
    pro_scene,
)
from lerobot_policy_quantile.evaluation.tables.facts import Facts, read_facts
from lerobot_policy_quantile.evaluation.tables.published import plus_counts, published_tables
from tests.support.rows import row, rows

HEADINGS = {heading: suite for suite, heading in SUITES.items()}


def by_suite(benchmark, title):
    return {HEADINGS[r.method]: r.rates for r in published_tables(benchmark)[title] if r.method in HEADINGS}


def plus_line(title, columns):
    """LIBERO-Plus with as many successes per suite and column as the paper prints, through our aggregation."""
    table, counts = by_suite("libero_plus_by_suite", title), plus_counts()
    facts, data = Facts({}, {plus_scene(s): {} for s in SUITES}), []
    for suite in SUITES:
        groups = {c: [c] for c in CATEGORIES} if columns == "categories" else {"Total": [*CATEGORIES]}
        for name, members in groups.items():
            first, count = len(facts.categories[plus_scene(suite)]), sum(counts[suite, c] for c in members)
            wins = round(count * table[suite][CATEGORIES.get(name, name)] / 100)
            for i in range(count):
                facts.categories[plus_scene(suite)][first + i] = members[0]
                data.append(row(plus_scene(suite), first + i, status="success" if i < wins else "failure"))
    return lines_of("libero_plus", data, facts)[-1]


@pytest.mark.parametrize(("title", "total"), [("zero-shot, by suite", 87.1), ("fine-tuned, by suite", 89.1)])
def test_plus_cells_weighted_by_instances_give_the_papers_totals(title, total):
    """From the four suite totals to the last digit; from the 28 cells, each rounded itself, within rounding."""
    assert round(100 * plus_line(title, "totals").cells["Total"].value, 1) == total
    found = {column: 100 * figure.value for column, figure in plus_line(title, "categories").cells.items()}
    assert found["Total"] == pytest.approx(total, abs=0.1)
    printed = published_tables("libero_plus_by_suite")[title][-1].rates
    for heading in CATEGORIES.values():
        assert found[heading] == pytest.approx(printed[heading], abs=0.1)


def test_plus_counts_are_the_benchmarks():
    counts = plus_counts()
    assert [sum(n for (s, _), n in counts.items() if s == suite) for suite in SUITES] == [2402, 2518, 2591, 2519]
    assert sum(counts.values()) == 10_030


def test_pro_table_gives_60_2_without_its_controls():
    table = by_suite("libero_pro_by_suite", "by suite and perturbation")
    data = [
        r for s in SUITES for p, heading in PERTURBATIONS.items() for r in printed(pro_scene(s, p), table[s][heading])
    ]
    assert round(100 * lines_of("libero_pro", data, Facts())[-1].cells["Avg."].value, 1) == 60.2
    without = [r for r in data if not r.key.scene.endswith("_task")]
    assert lines_of("libero_pro", without, Facts())[-1].cells["Avg."] is None


def printed(scene, per_cent):
    """A thousand episodes with a rate that the paper prints to one digit."""
    return rows(scene, 0, round(10 * per_cent), 1000)


def test_libero_row_gives_99_3():
    ours = published_tables("libero")["Table 1a"][-1]
    assert ours.method == "Quantile Head"
    data = [r for scene, heading in SUITES.items() for r in printed(scene, ours.rates[heading])]
    (line,) = lines_of("libero", data, Facts())
    assert round(100 * line.cells["Avg."].value, 1) == ours.rates["Avg."] == 99.3


def test_suite_rate_is_a_mean_of_tasks_not_of_episodes():
    (line,) = lines_of("libero", rows("libero_object", 0, 1, 1) + rows("libero_object", 1, 0, 3), Facts())
    assert line.cells["Object"].value == 0.5


def test_libero_line_averages_tasks_suites_and_seeds():
    """Suite rates 1, 0.5, 0.5, 0 -> 0.5 for one seed; the second seed fails everywhere -> 0.25 over both."""
    wins = dict(zip(SUITES, (4, 2, 2, 0), strict=True))
    first = [r for s in SUITES for task in range(2) for r in rows(s, task, wins[s], 4, policy="ours#0")]
    second = [r for s in SUITES for task in range(2) for r in rows(s, task, 0, 4, policy="ours#1")]
    (line,) = lines_of("libero", first, Facts())
    assert [line.cells[c].value for c in columns_of("libero")] == [1.0, 0.5, 0.5, 0.0, 0.5]
    assert (line.method, line.models, line.judged, line.errors) == ("ours", 1, 32, 0)
    (both,) = lines_of("libero", first + second, Facts(dict.fromkeys(SUITES, 20)))
    assert both.cells["Avg."].value == 0.25
    assert both.cells["Avg."].seeds == (0.0, 0.5)
    assert (both.cells["Avg."].low, both.cells["Avg."].high) == pytest.approx((0.0, 1.0), abs=0.05)
    assert (both.models, both.judged, both.population) == (2, 64, 160)


def test_an_average_over_half_a_benchmark_is_not_printed():
    (line,) = lines_of("libero", rows("libero_object", 0, 1, 2), Facts())
    assert line.cells["Object"].value == 0.5
    assert line.cells["Goal"] is None
    assert line.cells["Avg."] is None


def test_errors_are_no_failures():
    data = [*rows("libero_object", 0, 3, 4), row("libero_object", 0, 9, status="error")]
    (line,) = lines_of("libero", data, Facts())
    assert line.cells["Object"].value == 0.75
    assert (line.judged, line.errors) == (4, 1)


def test_plus_pools_categories_over_suites():
    spatial, long = plus_scene("libero_spatial"), plus_scene("libero_10")
    facts = Facts(
        {spatial: 2402, long: 2519},
        {spatial: {0: "Sensor Noise", 1: "Sensor Noise", 2: "Objects Layout"}, long: {5: "Sensor Noise"}},
    )
    data = [row(spatial, 0), row(spatial, 1), row(spatial, 2, status="failure"), row(long, 5, status="failure")]
    lines = lines_of("libero_plus", data, facts)
    assert [line.suite for line in lines] == ["Spatial", "Long", "Overall"]
    overall = lines[-1]
    assert overall.cells["Noise"].value == pytest.approx(2 / 3)
    assert overall.cells["Layout"].value == 0
    assert overall.cells["Camera"] is None
    assert overall.cells["Total"].value == 0.5
    assert overall.population == 4921


def test_pro_leaves_original_and_environment_out_of_the_average():
    data = [r for s in SUITES for p in PERTURBATIONS for r in rows(pro_scene(s, p), 0, 1, 2)]
    data += [r for s in SUITES for r in rows(pro_scene(s, "original"), 0, 2, 2)]
    mean = lines_of("libero_pro", data, Facts())[-1]
    assert mean.cells["Original"].value == 1.0
    assert mean.cells["Env."] is None
    assert mean.cells["Avg."].value == 0.5


@pytest.mark.parametrize(
    "moved", [{"mujoco": "3.8.1"}, {"assets": "def"}, {"protocol": "openpi"}, {"policy": "other weights"}]
)
def test_rows_made_differently_are_lines_of_their_own(moved):
    data = rows("libero_object", 0, 4, 4) + [
        replace(r, versions={**r.versions, **moved}) for r in rows("libero_object", 1, 0, 4)
    ]
    first, second = lines_of("libero", data, Facts())
    assert sorted([first.cells["Object"].value, second.cells["Object"].value]) == [0.0, 1.0]


def test_another_limit_separates_rows_only_where_no_protocol_fixes_it():
    data = rows("libero_object", 0, 4, 4, limit="280") + rows("libero_object", 1, 4, 4, limit="600")
    assert len(lines_of("libero", data, Facts())) == 1
    bare = [replace(r, versions={k: v for k, v in r.versions.items() if k != "protocol"}) for r in data]
    assert len(lines_of("libero", bare, Facts())) == 2


def test_limits_of_the_protocols():
    assert [limit_of(s, "paper") for s in SUITES] == [280, 280, 300, 520]
    assert [limit_of(s, "openpi") for s in SUITES] == [220, 280, 300, 520]
    assert [limit_of(plus_scene(s), "paper") for s in SUITES] == [280, 280, 300, 520]
    assert [limit_of(pro_scene(s, "task"), "paper") for s in SUITES] == [280, 280, 300, 800]
    assert limit_of("embedded", "paper") is None
    with pytest.raises(ValueError, match="protocol must be one of paper, openpi; got 'mine'"):
        limit_of("libero_10", "mine")


def test_facts_survive_the_disk_and_add_up(tmp_path):
    Facts({"a": 3}, {"a": {0: "x", 2: "y"}}, {"a": {1: "no mesh"}}).write(tmp_path)
    Facts({"b": 2}, {}, {"b": {0: "no mesh", 1: "torn file"}}).write(tmp_path)
    found = read_facts(tmp_path)
    assert found == Facts(
        {"a": 3, "b": 2}, {"a": {0: "x", 2: "y"}}, {"a": {1: "no mesh"}, "b": {0: "no mesh", 1: "torn file"}}
    )
    assert found.reasons(["a", "b"]) == {"no mesh": 2, "torn file": 1}
    (tmp_path / "benchmark.json").write_text('{"format": 7}')
    with pytest.raises(ValueError, match=r"format of .* must be 1; got 7"):
        read_facts(tmp_path)


def test_a_robots_average_is_the_plain_mean_over_its_tasks_whatever_the_number_of_trials():
    """App. B.2: 1 of 2 and 9 of 10 give 0.7, not 10 of 12; with a task missing there is no average."""
    mine = [*rows("piper apple", 0, 1, 2), *rows("piper cuboid", 0, 9, 10)]
    (line,) = lines_of("piper", mine, Facts())
    assert [line.cells[column].value for column in columns_of("piper", mine)] == pytest.approx([0.5, 0.9, 0.7])
    other = rows("piper apple", 0, 1, 2, policy="other")
    without = next(line for line in lines_of("piper", [*mine, *other], Facts()) if line.method == "other")
    assert without.cells["Avg."] is None
    printed = published_tables("piper")["real robot"]
    assert [row.rates["Avg."] for row in printed] == [
        pytest.approx(sum(list(row.rates.values())[:2]) / 2) for row in printed
    ]
