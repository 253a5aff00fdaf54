"""A pilot's part of its page: scatter between seeds and between episodes, and what the planned studies can tell."""

import math

from lerobot_policy_quantile.adapters.suites import parse_suites
from lerobot_policy_quantile.evaluation.tables.sheet import MISSING
from lerobot_policy_quantile.studies.miniature.claims import is_control, outcomes_by_seed, shared_pairs
from lerobot_policy_quantile.studies.miniature.power import (
    CHANCE,
    Scatter,
    pooled_scatter,
    scatter_of,
    smallest_difference,
)
from lerobot_policy_quantile.studies.miniature.summary import Summary
from lerobot_policy_quantile.studies.plans import Evaluation, StudyPlan, load_study
from lerobot_policy_quantile.studies.plans.size import Size
from lerobot_policy_quantile.util.tables import markdown

TASKS = 10
"""Of every LIBERO and LIBERO-Pro scene."""

TRADE_SEEDS, TRADE_EPISODES = (3, 5, 8, 10), (60, 200, 400)
TRADE = "Table: more seeds or more episodes; smallest differences with the pooled scatter.\n"

NOTES = """\
- Standard deviations in percentage points. Between seeds: of the seeds' rates or differences, with the share that
  episodes alone account for taken out (0 where they account for all of it). Between episodes: of single outcomes.
- Power: the smallest true difference to the reference that the planned number of seeds and episodes tells with a
  probability of {chance:.0f} %, by the rule of the claims. "Seeds alike" assumes no scatter between seeds, "pooled"
  the mean of this pilot's differences, "widest" the largest of them.
- Two seeds tell little about the scatter between seeds, and other suites may scatter more. Decoders of one training
  (`sampling`) share its weights and scatter less.
"""


def pilot_sections(summary: Summary, study: StudyPlan, size: Size, reference: str) -> str:
    """Both tables, or a sentence where there are too few episodes."""
    differences = difference_scatters(summary, study, reference)
    if not differences:
        return "Scatter and power need two seeds with two shared episodes or more.\n"
    parts = ["## Scatter\n", _scatter_table(summary, study, reference, differences), "## Power\n"]
    parts += [_power_table(size, differences), TRADE, _trade_table(differences)]
    return "\n".join([*parts, NOTES.format(chance=100 * CHANCE)])


def difference_scatters(summary: Summary, study: StudyPlan, reference: str) -> dict[str, Scatter]:
    """Variant -> scatter of its paired differences to the reference."""
    scenes = _scenes(study)
    of_reference = outcomes_by_seed(summary.rows, scenes, (reference, "median"))
    found = {}
    for variant in study.variants:
        if variant.name != reference:
            pairs = shared_pairs(outcomes_by_seed(summary.rows, scenes, (variant.name, "median")), of_reference)
            values = [[float(a) - float(b) for a, b in seed] for seed in pairs if len(seed) > 1]
            if len(values) > 1:
                found[variant.name] = scatter_of(values)
    return found


def planned_episodes(size: Size, study: str, evaluation: Evaluation) -> int | None:
    """Episodes per policy of a study's evaluation in this size; None where the benchmark decides."""
    options, indices = size.options_of(study, evaluation), size.indices_of(study, evaluation)
    if "sample" in options:
        return int(options["sample"])
    tasks = TASKS * sum(not is_control(scene) for scene in parse_suites(evaluation.suite))
    return None if indices is None else tasks * len(indices)


def _scenes(study: StudyPlan) -> set[str]:
    return {scene for evaluation in study.evaluations for scene in parse_suites(evaluation.suite)}


def _scatter_table(summary: Summary, study: StudyPlan, reference: str, differences: dict[str, Scatter]) -> str:
    rows = []
    for variant in study.variants:
        outcomes = outcomes_by_seed(summary.rows, _scenes(study), (variant.name, "median"))
        values = [[float(won) for won in seed.values()] for _, seed in sorted(outcomes.items()) if len(seed) > 1]
        if len(values) < 2:
            continue
        rates = ", ".join(f"{100 * sum(seed) / len(seed):.0f}" for seed in values)
        mine = (rates, *_deviations(scatter_of(values)))
        rows.append((variant.name, *mine, *_deviations(differences.get(variant.name))))
    header = ("variant", "rate of each seed", "between seeds", "between episodes")
    return markdown((*header, f"difference to {reference}: between seeds", "between episodes"), rows)


def _deviations(scatter: Scatter | None) -> tuple[str, str]:
    if scatter is None:
        return MISSING, MISSING
    return f"{100 * math.sqrt(scatter.seeds):.1f}", f"{100 * math.sqrt(scatter.episodes):.1f}"


def _power_table(size: Size, differences: dict[str, Scatter]) -> str:
    pooled = pooled_scatter(differences.values())
    widest = Scatter(max(each.seeds for each in differences.values()), pooled.episodes)
    kinds = (Scatter(0.0, pooled.episodes), pooled, widest)
    rows = []
    for name, plan in size.study.items():
        study = size.applied(load_study(name))
        for evaluation in () if plan.pilot else study.evaluations:
            episodes = planned_episodes(size, name, evaluation)
            if episodes is not None:
                told = (_points(smallest_difference(study.seeds, episodes, each)) for each in kinds)
                rows.append((name, evaluation.suite, str(study.seeds), str(episodes), *told))
    header = ("study", "suite", "seeds", "episodes per seed", "seeds alike", "pooled", "widest")
    return markdown(header, rows)


def _trade_table(differences: dict[str, Scatter]) -> str:
    pooled = pooled_scatter(differences.values())
    rows = [
        (str(seeds), *(_points(smallest_difference(seeds, episodes, pooled)) for episodes in TRADE_EPISODES))
        for seeds in TRADE_SEEDS
    ]
    return markdown(("seeds", *(f"{episodes} episodes per seed" for episodes in TRADE_EPISODES)), rows)


def _points(difference: float | None) -> str:
    return "none" if difference is None else f"{100 * difference:.1f}"
