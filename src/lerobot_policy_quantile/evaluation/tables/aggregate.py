"""Journal rows -> the tables of LIBERO, LIBERO-Plus, LIBERO-Pro and a robot's trials, with intervals and contexts.

As in the paper's App. B. LIBERO: task -> suite -> equal-weight average. LIBERO-Plus: categories pool over suites, the
total is instance-weighted. LIBERO-Pro: a perturbation is the mean of four suites, the average is over four of them. A
robot: the plain mean over its tasks.

A line of a table is a method: the models trained with different seeds (policies named `NAME#SEED`) are aggregated one
by one and then averaged, with an interval over seeds and episodes. Rows made with different simulators, assets,
protocols or weights never meet in a line; they are lines of their own.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.tables.benchmarks import (
    CATEGORIES,
    CONTROLS,
    PERTURBATIONS,
    PLUS,
    PRO,
    ROBOT,
    SUITES,
    mean,
    plus_scene,
    pro_scene,
    robot_task,
    suite_of,
)
from lerobot_policy_quantile.evaluation.tables.facts import Facts
from lerobot_policy_quantile.evaluation.tables.intervals import Interval, effective_trials, over_seeds

SEED_MARK = "#"
_OF_THE_POLICY = ("policy", "device", "torch", "n_action_steps")


@dataclass(frozen=True)
class Share:
    """A group of episodes whose rate enters a mean with a weight."""

    weight: float
    wins: int
    judged: int


@dataclass(frozen=True)
class Line:
    """One method in one benchmark under one protocol on one simulator."""

    method: str
    suite: str
    """Spatial, ..., or what the line over all suites is called."""
    decoder: str
    cells: dict[str, Interval | None]
    models: int
    judged: int
    errors: int
    population: int | None
    """Episodes of the whole benchmark for these models, if known."""
    seconds: float | None
    """Mean simulated seconds per episode, failures included."""
    wall_seconds: float | None
    """The same by the clock: policy, simulator and pictures."""
    context: tuple[tuple[str, str], ...]


Cells = Callable[[Sequence[Row]], dict[str, Sequence[Share] | None]]
"""Rows of one model -> column -> the shares its figure is the weighted mean of; None where it is not defined."""


def benchmarks_in(rows: Iterable[Row]) -> list[str]:
    """Which of `libero`, `libero_plus`, `libero_pro` and `piper` the rows belong to."""
    found = {benchmark_of(row.key.scene) for row in rows}
    return [name for name in ("libero", PLUS, PRO, ROBOT) if name in found]


def benchmark_of(scene: str) -> str | None:
    """The benchmark a scene belongs to."""
    if suite_of(scene) is None:
        return None if robot_task(scene) is None else ROBOT
    return next((name for name in (PLUS, PRO) if scene.startswith(name)), "libero")


def lines_of(benchmark: str, rows: Iterable[Row], facts: Facts) -> list[Line]:
    """The table of a benchmark: a line per method, and for Plus and Pro a line per suite before it."""
    mine = [row for row in rows if benchmark_of(row.key.scene) == benchmark]
    lines = []
    for (method, decoder, context), members in sorted(_methods(mine).items()):
        make = partial(_line, method, decoder, context, facts=facts)
        if benchmark == "libero":
            lines.append(make(members, "", _libero_cells))
            continue
        if benchmark == ROBOT:
            lines.append(make(members, "", partial(_robot_cells, robot_tasks(mine))))
            continue
        for scene_suite, heading in SUITES.items():
            part = [row for row in members if suite_of(row.key.scene) == scene_suite]
            if part:
                lines.append(make(part, heading, _suite_cells(benchmark, scene_suite, facts)))
        if benchmark == PLUS:
            lines.append(make(members, "Overall", partial(_plus_cells, facts)))
        else:
            lines.append(make(members, "Mean", _pro_cells))
    return lines


def robot_tasks(rows: Iterable[Row]) -> list[str]:
    """What robots were told to do, in alphabetical order."""
    return sorted({task for row in rows if (task := robot_task(row.key.scene)) is not None})


MEAN_OF_RUN = "Mean"
"""Heading, for studies that leave suites out, of the equal-weight mean of LIBERO's suites that were run."""


def columns_of(benchmark: str, rows: Iterable[Row] = ()) -> list[str]:
    """The headings of a benchmark's rates; a robot's are its tasks."""
    if benchmark == ROBOT:
        return [*robot_tasks(rows), "Avg."]
    if benchmark == "libero":
        return [*SUITES.values(), "Avg."]
    if benchmark == PLUS:
        return [*CATEGORIES.values(), "Total"]
    return [*CONTROLS.values(), *PERTURBATIONS.values(), "Avg."]


def context_of(row: Row) -> tuple[tuple[str, str], ...]:
    """What must be equal for two rows to be averaged: simulator, assets, protocol, pictures; not the weights.

    A protocol fixes the limit of every scene; where no protocol is named the limit itself counts.
    """
    hidden = {*_OF_THE_POLICY, *(("limit",) if "protocol" in row.versions else ())}
    return tuple(sorted((name, value) for name, value in row.versions.items() if name not in hidden))


def _methods(rows: Sequence[Row]) -> dict[tuple[str, str, tuple[tuple[str, str], ...]], list[Row]]:
    """Rows by method, decoder and context. A policy name with two sets of weights is two methods."""
    weights: dict[str, set[str]] = {}
    for row in rows:
        if "policy" in row.versions:
            weights.setdefault(row.key.policy, set()).add(row.versions["policy"])
    contexts = {(row.key.scene, row.key.policy): context_of(row) for row in rows if row.versions}
    groups: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[Row]] = {}
    for row in rows:
        name = row.key.policy.partition(SEED_MARK)[0]
        if len(weights.get(row.key.policy, ())) > 1:
            name += f" ({row.versions.get('policy', 'weights unknown')})"
        # An episode that failed before its world stood has no versions of its own.
        context = context_of(row) if row.versions else contexts.get((row.key.scene, row.key.policy), ())
        groups.setdefault((name, row.key.decoder, context), []).append(row)
    return groups


def _line(
    method: str,
    decoder: str,
    context: tuple[tuple[str, str], ...],
    rows: Sequence[Row],
    suite: str,
    cells: Cells,
    *,
    facts: Facts,
) -> Line:
    models: dict[str, list[Row]] = {}
    for row in rows:
        models.setdefault(row.key.policy, []).append(row)
    shares = [cells(members) for members in models.values()]
    judged = [row for row in rows if row.status != "error"]
    sizes = [facts.population.get(scene) for scene in {row.key.scene for row in rows}]
    known = [size for size in sizes if size is not None]
    return Line(
        method=method,
        suite=suite,
        decoder=decoder,
        cells={column: combine([model[column] for model in shares]) for column in shares[0]},
        models=len(models),
        judged=len(judged),
        errors=len(rows) - len(judged),
        population=len(models) * sum(known) if len(known) == len(sizes) else None,
        seconds=mean([row.simulated_seconds for row in judged]),
        wall_seconds=mean([row.wall_seconds for row in judged]),
        context=context,
    )


def combine(models: Sequence[Sequence[Share] | None]) -> Interval | None:
    """One figure from the shares of each model."""
    estimates = [estimate(shares) for shares in models if shares]
    if not estimates or len(estimates) < len(models):
        return None
    return over_seeds([rate for rate, _ in estimates], [trials for _, trials in estimates])


def estimate(shares: Sequence[Share]) -> tuple[float, float]:
    """The weighted mean of the shares' rates, and how many trials it is worth."""
    weights = [share.weight for share in shares]
    rate = sum(share.weight * share.wins / share.judged for share in shares) / sum(weights)
    return min(1.0, rate), effective_trials(weights, [share.judged for share in shares])


def _tasks(rows: Iterable[Row], weight: float = 1.0) -> list[Share]:
    """One share per task, together weighing `weight`."""
    counts: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        if row.status != "error":
            entry = counts.setdefault((row.key.scene, row.key.task), [0, 0])
            entry[0] += row.status == "success"
            entry[1] += 1
    return [Share(weight / len(counts), wins, judged) for wins, judged in counts.values()]


def _pool(rows: Iterable[Row]) -> list[Share]:
    judged = [row for row in rows if row.status != "error"]
    return [Share(1.0, sum(row.status == "success" for row in judged), len(judged))] if judged else []


def _joined(parts: Sequence[Sequence[Share]]) -> list[Share] | None:
    """All shares, if every part has some: an average over half a benchmark is another number."""
    return [share for part in parts for share in part] if all(parts) else None


def _of_scene(rows: Iterable[Row], scene: str) -> list[Row]:
    return [row for row in rows if row.key.scene == scene]


def _libero_cells(rows: Sequence[Row]) -> dict[str, Sequence[Share] | None]:
    """Task -> suite -> equal-weight average (App. B), and the mean of the suites that were run, which is ours."""
    suites = {heading: _tasks(_of_scene(rows, scene)) for scene, heading in SUITES.items()}
    run = [share for shares in suites.values() for share in shares]
    return {**suites, MEAN_OF_RUN: run, "Avg.": _joined(list(suites.values()))}


def _plus_cells(facts: Facts, rows: Sequence[Row]) -> dict[str, Sequence[Share] | None]:
    """Categories pooled over the rows, total over all (App. B)."""

    def category(row: Row) -> str | None:
        return facts.categories.get(row.key.scene, {}).get(row.key.task)

    cells: dict[str, Sequence[Share] | None] = {
        heading: _pool(row for row in rows if category(row) == name) for name, heading in CATEGORIES.items()
    }
    return {**cells, "Total": _pool(rows)}


def _pro_cells(rows: Sequence[Row]) -> dict[str, Sequence[Share] | None]:
    """A perturbation is the mean of four suites, the average that of four perturbations (App. B)."""
    cells = {
        heading: _joined([_tasks(_of_scene(rows, pro_scene(suite, name))) for suite in SUITES])
        for name, heading in (CONTROLS | PERTURBATIONS).items()
    }
    return {**cells, "Avg.": _joined([cells[heading] or [] for heading in PERTURBATIONS.values()])}


def _robot_cells(tasks: Sequence[str], rows: Sequence[Row]) -> dict[str, Sequence[Share] | None]:
    """Every task by itself, and their unweighted mean (App. B.2)."""
    cells = {task: _tasks(row for row in rows if robot_task(row.key.scene) == task) for task in tasks}
    return {**cells, "Avg.": _joined(list(cells.values()))}


def _suite_cells(benchmark: str, suite: str, facts: Facts) -> Cells:
    """The same within one suite."""
    if benchmark == PLUS:
        return lambda rows: _plus_cells(facts, _of_scene(rows, plus_scene(suite)))

    def cells(rows: Sequence[Row]) -> dict[str, Sequence[Share] | None]:
        found: dict[str, Sequence[Share]] = {
            heading: _tasks(_of_scene(rows, pro_scene(suite, name)))
            for name, heading in (CONTROLS | PERTURBATIONS).items()
        }
        return {**found, "Avg.": _joined([found[heading] for heading in PERTURBATIONS.values()])}

    return cells
