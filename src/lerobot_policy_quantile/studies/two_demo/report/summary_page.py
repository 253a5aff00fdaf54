"""Summaries of a two-demonstration study as one Markdown page and one figure: targets, rates, cost."""

from collections.abc import Sequence
from statistics import median

from lerobot_policy_quantile.drawing.figure import Figure
from lerobot_policy_quantile.studies.two_demo.paper import paper_rate
from lerobot_policy_quantile.studies.two_demo.report.names import HEADS, decoder_name
from lerobot_policy_quantile.studies.two_demo.report.rates import Rates, rates_figure
from lerobot_policy_quantile.studies.two_demo.result import Result, is_deterministic
from lerobot_policy_quantile.studies.two_demo.summary import ArmSummary, Outcomes, pooled
from lerobot_policy_quantile.util.tables import markdown

LEAST_FREE, LEAST_BEST = 85.0, 90.0
"""Rates aimed at: every quantile decoder without the obstacle, the best one with it."""
TRAINING_SEEDS = 3
"""As many as the study wants; before they are whole, a target is only met or missed so far."""
LEAST_SAVING = 8.0
"""Times less expert time per replan than flow matching."""


PAGE, FIGURE = "README.md", "rates.svg"
PURPOSE = (
    "After this page you can compare heads and decoders on two demonstrations with opposite detours: success rates with"
    " intervals, sides passed, and the cost of a replan."
)


def summary_page(found: Sequence[ArmSummary]) -> str:
    """The page over all summaries of one study."""
    arms = _by_arm(found)
    lines = ["# The two-demonstration study", "", PURPOSE, "", *_circumstances(found), "", "## Targets", ""]
    targets = [row for arm, parts in arms.items() for row in _targets(arm, parts)]
    lines += _table(("target", "measured", "result"), targets)
    lines += ["", "## At a glance", "", *_glance(arms), "", f"![Success rates; the tables below list them]({FIGURE})"]
    for arm, parts in arms.items():
        lines += ["", f"## {arm}", "", *_arm(parts)]
    lines += ["", "## Cost of a replan", "", *_costs(found)]
    lines += ["", "## How to read it", "", *_legend()]
    return "\n".join(lines) + "\n"


def summary_figure(found: Sequence[ArmSummary]) -> Figure:
    """Success rates of all arms, with those of single training seeds."""
    arms = [Rates(arm, _results(parts)) for arm, parts in _by_arm(found).items()]
    return rates_figure("two-demo", "Success per decoder", arms)


def _by_arm(found: Sequence[ArmSummary]) -> dict[str, list[ArmSummary]]:
    arms: dict[str, list[ArmSummary]] = {}
    for summary in found:
        arms.setdefault(summary.arm, []).append(summary)
    return arms


def _results(parts: Sequence[ArmSummary]) -> list[Result]:
    """Pooled over training seeds, the quantile head's decoders first."""
    return sorted(pooled(parts), key=lambda result: result.head != "quantile")


def _glance(arms: dict[str, list[ArmSummary]]) -> list[str]:
    """Rates of all arms side by side, and the paper's."""
    columns = {arm: {(r.head, r.decoder): r for r in _results(parts)} for arm, parts in arms.items()}
    longest_first = sorted(columns.values(), key=len, reverse=True)
    pairs = sorted(dict.fromkeys(pair for column in longest_first for pair in column), key=lambda p: p[0] != "quantile")
    rows = [
        (
            decoder_name(*pair),
            *(_brief(column.get(pair)) for column in columns.values()),
            *("" if (rate := paper_rate(obstacle, *pair)) is None else f"{rate:g} %" for obstacle in (False, True)),
        )
        for pair in pairs
    ]
    return _table(("decoder or head", *columns, "paper, free", "paper, obstacle"), rows)


def _brief(result: Result | None) -> str:
    """A rate, or the counts of a deterministic decoder, which has no rate to speak of."""
    if result is None or not result.episodes:
        return ""
    fixed = is_deterministic(result.head, result.decoder)
    return f"{result.success}/{result.episodes}" if fixed else f"{result.rate:.0f} %"


def _circumstances(found: Sequence[ArmSummary]) -> list[str]:
    settings = found[0].settings
    rates = ", ".join(
        f"{word} {settings[name]:g}"
        for word, name in (
            ("expert", "learning_rate"),
            ("head", "head_learning_rate"),
            ("prompts", "prompt_learning_rate"),
        )
    )
    spoken = sorted({summary.versions["wording"] for summary in found if "wording" in summary.versions})
    return [
        f"{settings['updates']:,} updates for every head; learning rates: {rates}; episodes numbered from"
        f" {settings['first_episode']} on; base `{settings['base']}`."
        + (f" Wording of LIBERO's instructions: `{'`, `'.join(spoken)}`." if spoken else "")
    ]


def _targets(arm: str, parts: Sequence[ArmSummary]) -> list[tuple[str, ...]]:
    results = [result for result in pooled(parts) if result.head == "quantile" and result.episodes]
    sampled = [result for result in results if not is_deterministic(result.head, result.decoder)]
    rows = []
    if not sampled:
        return []
    if parts[0].obstacle:
        best = max(sampled, key=lambda result: result.rate)
        rows.append((f"{arm}: best quantile decoder at least {LEAST_BEST:g} %", _seen(best), best.rate >= LEAST_BEST))
    else:
        worst = min(sampled, key=lambda result: result.rate)
        statement = f"{arm}: every quantile decoder at least {LEAST_FREE:g} %"
        rows.append((statement, f"lowest: {_seen(worst)}", worst.rate >= LEAST_FREE))
        centre = next((result for result in results if result.decoder == "median"), None)
        if centre is not None:
            rows.append((f"{arm}: median 100 %", _seen(centre), centre.success == centre.episodes))
    so_far = "" if _is_whole(parts) else " so far"
    return [(statement, seen, ("holds" if true else "**missed**") + so_far) for statement, seen, true in rows]


def _is_whole(parts: Sequence[ArmSummary]) -> bool:
    sampled = [
        len(outcome.letters) >= summary.episodes_asked
        for summary in parts
        for outcome in summary.outcomes
        if not is_deterministic(outcome.head, outcome.decoder)
    ]
    return len(parts) >= TRAINING_SEEDS and all(sampled)


def _seen(result: Result) -> str:
    return f"{decoder_name(result.head, result.decoder)} {result.rate:.0f} % ({result.success}/{result.episodes})"


def _arm(parts: Sequence[ArmSummary]) -> list[str]:
    seeds = [summary.training_seed for summary in parts]
    lengths = " and ".join(map(str, parts[0].demonstrations))
    rows = [_row(result, parts) for result in _results(parts)]
    header = ("head", "decoder", "success", "rate", "95 % interval", "paper", "left / right", "touched", "steps")
    return [
        f"Demonstrations of {lengths} actions; training seeds {', '.join(map(str, seeds))};"
        f" {parts[0].episodes_asked} episodes planned per stochastic decoder and seed; checks passed:"
        f" {', '.join(f'{summary.checks_passed} of {summary.checks}' for summary in parts)}.",
        "",
        *_table((*header, *(f"seed {seed}" for seed in seeds)), rows),
    ]


def _row(result: Result, parts: Sequence[ArmSummary]) -> tuple[str, ...]:
    mine = [_of(summary, result) for summary in parts]
    ran = [outcome for outcome in mine if outcome is not None]
    count = sum(len(outcome.letters) for outcome in ran)
    fixed = is_deterministic(result.head, result.decoder)
    return (
        HEADS.get(result.head, result.head),
        "" if result.decoder == "own" else decoder_name(result.head, result.decoder),
        f"{result.success}/{result.episodes}" + (f" ({result.errors} errors)" if result.errors else ""),
        f"{result.rate:.0f} %" if result.episodes else "",
        "deterministic" if fixed else result.interval_words,
        "" if result.paper is None else f"{result.paper:g} %",
        f"{result.left} / {result.right}" if result.success else "",
        str(sum(outcome.contacts for outcome in ran)),
        f"{sum(outcome.steps * len(outcome.letters) for outcome in ran) / count:.0f}" if count else "",
        *("" if outcome is None else f"{outcome.success}/{outcome.episodes}" for outcome in mine),
    )


def _of(summary: ArmSummary, result: Result) -> Outcomes | None:
    pairs = {(outcome.head, outcome.decoder): outcome for outcome in summary.outcomes}
    return pairs.get((result.head, result.decoder))


def _costs(found: Sequence[ArmSummary]) -> list[str]:
    rows = []
    for summary in found:
        known = {cost.head: cost for cost in summary.costs}
        if {"quantile", "flow"} <= known.keys():
            quantile, flow = known["quantile"], known["flow"]
            ratio = flow.expert_ms / quantile.expert_ms
            rows.append((summary, quantile, flow, ratio))
    if not rows:
        return ["Not measured yet."]
    middle = median(ratio for *_, ratio in rows)
    verdict = "holds" if middle >= LEAST_SAVING else "**missed**"
    table = [
        (
            f"{summary.arm}, seed {summary.training_seed}",
            f"{quantile.expert_passes} / {flow.expert_passes}",
            f"{quantile.expert_ms:.1f} / {flow.expert_ms:.1f}",
            f"{ratio:.1f}x",
            f"{flow.total_ms / quantile.total_ms:.1f}x",
        )
        for summary, quantile, flow, ratio in rows
    ]
    return [
        *_table(("", "expert passes, quantile / flow", "expert ms", "expert time", "whole replan"), table),
        "",
        f"Target: {LEAST_SAVING:g} times less expert time; median over these runs {middle:.1f}x: {verdict}.",
    ]


def _legend() -> list[str]:
    return [
        "- Written by `qhead study summarise` from the journals of `qhead study two-demo`.",
        "- Rates leave out episodes that ended in an error. Intervals cover training seeds and episodes"
        " (`docs/explanation/intervals.md`), followed by the rates of the lowest and the highest seed.",
        "- Left / right: the side on which successes first passed the obstacle, or its place where there is none.",
        "- Touched: episodes in which anything touched the obstacle, successes included. Steps: mean actions.",
        "- Differences from the paper: `docs/guides/studies.md`. Arms and seeds without a file have not run.",
        "- The files beside this page hold one letter per episode in the order of their numbers: l left, r right, n"
        " never passed; a capital is a success, e an error.",
    ]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return markdown(header, rows).splitlines()
