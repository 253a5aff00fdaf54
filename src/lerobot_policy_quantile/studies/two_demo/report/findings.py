"""What the numbers say, in words: the headline, where the study differs from the paper, and what is missing.

Every sentence is computed from the records. None is written before the numbers are there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from lerobot_policy_quantile.studies.two_demo.records import Arm, Study, training_seeds
from lerobot_policy_quantile.studies.two_demo.report.closed_loop import results_of, setting_name
from lerobot_policy_quantile.studies.two_demo.report.names import HEADS, decoder_name
from lerobot_policy_quantile.studies.two_demo.report.training import mean_costs
from lerobot_policy_quantile.studies.two_demo.result import Result, is_deterministic

PAPER_EPISODES = 100
PAPER_UPDATES = 6000
PAPER_ACTIONS = {False: 315, True: 430}
"""Length of the paper's demonstrations, without and with the obstacle."""
ENOUGH_POLICIES = 3
"""Trained policies from which on deterministic episodes are judged. Each trained policy decides its one episode, and a
close one is decided by rounding: the same command can end differently on another processor."""
UNJUDGED = "too few to judge"
HALF = 50.0  # per cent


@dataclass(frozen=True)
class Card:
    """One headline figure."""

    figure: str
    words: str


def cards(study: Study) -> list[Card]:
    """The figures a reader should see first."""
    found = []
    for arm in study.arms:
        best = best_samplers(arm)
        if best:
            which = f"best sampling, {_named(best)}" if best[0].success else "no sampling decoder succeeds"
            found.append(Card(f"{best[0].success}/{best[0].episodes}", f"{setting_name(arm)}: {which}"))
    costs = {cost.head: cost for cost in mean_costs(study.arms)}
    if {"quantile", "flow"} <= costs.keys() and costs["quantile"].expert_ms > 0:
        ratio = costs["flow"].expert_ms / costs["quantile"].expert_ms
        found.append(Card(f"{ratio:.1f}x", "flow matching's expert time per replan over the quantile head's"))
    checks = [check for arm in study.arms for check in arm.checks]
    if checks:
        passed = sum(check.passed for check in checks)
        found.append(Card(f"{passed}/{len(checks)}", "verifications hold"))
    return found


def best_samplers(arm: Arm) -> list[Result]:
    """The quantile head's stochastic decoders with the highest rate: one, or several that are equal."""
    sampled = [r for r in arm.results() if r.head == "quantile" and not is_deterministic(r.head, r.decoder)]
    top = max((r.rate for r in sampled if r.episodes), default=None)
    return [r for r in sampled if r.episodes and r.rate == top]


def _named(best: Sequence[Result]) -> str:
    """What the best are called."""
    name = decoder_name(best[0].head, best[0].decoder)
    others = {1: "", 2: " and another"}.get(len(best), f" and {len(best) - 1} others")
    return f"{name}{others}"


def summary(study: Study) -> list[tuple[str, str]]:
    """What happened: each arm's name and a few sentences."""
    found = [(setting_name(arm).capitalize(), _summary_of(arm)) for arm in study.arms]
    return [(name, words) for name, words in found if words]


def _summary_of(arm: Arm) -> str:
    results = [result for result in results_of(arm) if result.episodes]
    single = [r for r in results if is_deterministic(r.head, r.decoder) and r.decoder != "densest"]
    sentences = []
    if single:
        told = ", ".join(f"{decoder_name(r.head, r.decoder)} {r.success}/{r.episodes}" for r in single)
        sentences.append(f"One answer per observation: {told}.")
    if nearby := arm.nearby_results():
        told = ", ".join(f"{decoder_name(r.head, r.decoder)} {r.success}/{r.episodes}" for r in nearby)
        sentences.append(f"From nearby starts: {told}.")
    best = best_samplers(arm)
    tried = sum(r.head == "quantile" and not is_deterministic(r.head, r.decoder) for r in results)
    if best and not best[0].success:
        sentences.append(f"None of {tried} sampling decoders of the quantile head succeeds in any episode.")
    elif best:
        sentences.append(
            f"Best of {tried} sampling decoders of the quantile head: {_named(best)}, {best[0].success}/"
            f"{best[0].episodes} ({best[0].rate:.0f} %, 95 % interval {best[0].interval_words} %, picked afterwards);"
            f" {best[0].left} of these successes pass on the left, {best[0].right} on the right."
        )
    flow = [r for r in results if r.head == "flow"]
    sentences += [f"Flow matching: {r.success}/{r.episodes} ({r.rate:.0f} %)." for r in flow]
    return " ".join(sentences)


@dataclass(frozen=True)
class Difference:
    """One decoder beside the paper."""

    setting: str
    name: str
    ours: str
    interval: str
    paper: str
    points: str
    verdict: str


def differences(study: Study) -> list[Difference]:
    """Every decoder for which the paper has a number, the largest differences first."""
    found = [
        (abs(result.rate - result.paper), _difference(arm, result, result.paper))
        for arm in study.arms
        for result in results_of(arm)
        if result.paper is not None and result.episodes
    ]
    return [difference for _, difference in sorted(found, key=lambda pair: -pair[0])]


def _difference(arm: Arm, result: Result, paper: float) -> Difference:
    low, high = result.interval
    gap = result.rate - paper
    fixed = is_deterministic(result.head, result.decoder)
    agrees = gap == 0 if fixed else low <= paper <= high
    verdict = "agrees" if agrees else ("higher here" if gap > 0 else "lower here")
    return Difference(
        setting=setting_name(arm),
        name=decoder_name(result.head, result.decoder),
        ours=f"{result.rate:.0f} % ({result.success}/{result.episodes})",
        interval="deterministic" if fixed else f"{result.interval_words} %",
        paper=f"{paper:g} %",
        points=f"{gap:+.0f} points".replace("-", "\N{MINUS SIGN}") if round(gap) else "none",
        verdict=UNJUDGED if fixed and not _enough_policies(arm) else verdict,
    )


def claims(study: Study) -> list[tuple[str, str, str]]:
    """The paper's statements that this study can test: statement, what was seen, holds or does not hold."""
    return [claim for arm in study.arms for claim in _claims_of(arm)]


def _claims_of(arm: Arm) -> list[tuple[str, str, str]]:
    results = [result for result in arm.results() if result.episodes]
    judge_single = _holds if _enough_policies(arm) else lambda _: UNJUDGED
    found = []
    single = [r for r in results if r.decoder == "median" or r.head in ("l1", "l2")]
    if single:
        wanted = 0 if arm.obstacle else 100
        seen = ", ".join(f"{decoder_name(r.head, r.decoder)} {r.rate:.0f} %" for r in single)
        statement = f"{setting_name(arm)}: median, L1 and L2 {'fail' if arm.obstacle else 'succeed'} always"
        found.append((statement, seen, judge_single(all(r.rate == wanted for r in single))))
    if nearby := arm.nearby_results():
        seen = ", ".join(
            f"{decoder_name(r.head, r.decoder)} {r.success}/{r.episodes} ({r.interval_words} %)" for r in nearby
        )
        verb = "fail" if arm.obstacle else "succeed"
        statement = f"{setting_name(arm)}: from nearby starts median, L1 and L2 {verb} more often than not"
        found.append((statement, seen, _mostly(nearby, success=not arm.obstacle)))
    best, median = next(iter(best_samplers(arm)), None), next((r for r in results if r.decoder == "median"), None)
    if arm.obstacle and best is not None and median is not None:
        seen = f"best {best.rate:.0f} %, median {median.rate:.0f} %"
        found.append((f"{setting_name(arm)}: sampling beats the median", seen, judge_single(best.rate > median.rate)))
    if arm.obstacle and best is not None:
        seen = f"{best.left} successes on the left, {best.right} on the right"
        statement = f"{setting_name(arm)}: sampling keeps both routes"
        found.append((statement, seen, _holds(min(best.left, best.right) > 0)))
    flow = next((r for r in results if r.head == "flow"), None)
    if flow is not None and best is not None:
        seen = f"flow matching {flow.rate:.0f} %, best quantile decoder {best.rate:.0f} %"
        statement = f"{setting_name(arm)}: flow matching stays below quantile sampling"
        found.append((statement, seen, _holds(flow.rate < best.rate)))
    return found


def _mostly(results: Sequence[Result], *, success: bool) -> str:
    """Whether every rate is on one side of a half; told by the 95 % intervals."""
    sides = [r.interval if success else (100 - r.interval[1], 100 - r.interval[0]) for r in results]
    if all(low > HALF for low, _ in sides):
        return "holds"
    return "does not hold" if any(high < HALF for _, high in sides) else "cannot be told"


def _enough_policies(arm: Arm) -> bool:
    return len({rollout.training_seed for rollout in arm.rollouts}) >= ENOUGH_POLICIES


def _holds(true: bool) -> str:
    return "holds" if true else "does not hold"


def circumstances(study: Study) -> list[str]:
    """What is not the same as in the paper, as far as the records know."""
    sentences = []
    updates = sorted(
        {int(c.updates[-1]) for a in study.arms for s in a.curves.values() for c in s.values() if len(c.updates)}
    )
    if updates:
        same = "as the paper" if updates == [PAPER_UPDATES] else f"the paper {PAPER_UPDATES:,}"
        sentences.append(f"Updates per head: {', '.join(f'{n:,}' for n in updates)}; {same}.")
    for arm in study.arms:
        lengths = [len(demo.actions) for demo in arm.demonstrations]
        if lengths:
            sentences.append(
                f"{setting_name(arm).capitalize()}: demonstrations of {' and '.join(map(str, lengths))} actions, the"
                f" paper {PAPER_ACTIONS[arm.obstacle]}; pictures of {_pixels(arm)} px, the paper 224 px."
            )
        counts = sorted({r.episodes for r in arm.results() if not is_deterministic(r.head, r.decoder)})
        if counts:
            sentences.append(
                f"{setting_name(arm).capitalize()}: {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}"
                f" episodes per stochastic decoder, all training seeds together; the paper {PAPER_EPISODES}."
            )
    if any(not arm.name.startswith("libero") for arm in study.arms):
        sentences.append(
            "The embedded scene is a pick-and-place of our own, the paper's is task 0 of LIBERO-Object: the same"
            " experiment in another scene."
        )
    base = study.settings.get("base")
    sentences.append(
        f"Base model: {base or 'not recorded'}; the paper's is pi0.5. How much of a difference comes from the model's"
        " size, the scene or the length of training is not separated here."
    )
    return sentences


def _pixels(arm: Arm) -> str:
    sizes = {frames.shape[1] for demo in arm.demonstrations for frames in demo.frames.values()}
    return ", ".join(map(str, sorted(sizes)))


def missing(study: Study) -> list[str]:
    """What a reader might look for and will not find, and why."""
    present = {arm.name for arm in study.arms}
    found = [f"{name}: not begun." for name in study.settings.get("arms", []) if name not in present]
    for arm in study.arms:
        found += [f"{setting_name(arm).capitalize()}: {gap}." for gap in _missing_in(arm, study)]
    return found


def _missing_in(arm: Arm, study: Study) -> list[str]:
    seeds = training_seeds(study.settings)
    gaps = []
    if not arm.demonstrations:
        gaps.append("no demonstrations")
    if not arm.checks:
        gaps.append("no verification has been written down")
    for parts, what in ((arm.draws, "draws at the shared start"), (arm.costs, "cost per replan")):
        absent = [str(seed) for seed in seeds if seed not in parts]
        if absent:
            gaps.append(f"{what} of training seed {_listed(absent)}")
    untrained = [f"{HEADS[h]} (seed {s})" for s, h in product(seeds, HEADS) if h not in arm.curves.get(s, {})]
    if untrained:
        gaps.append(f"not trained to the end: {_listed(untrained)}")
    return gaps + _missing_episodes(arm, study)


def asked_for(arm: Arm, study: Study) -> list[tuple[str, str]]:
    """Heads and decoders that the settings want in an arm: some only where the obstacle stands."""
    only_there = study.settings.get("obstacle_decoders", ())
    pairs = [(head, decoder) for head, decoder in study.settings.get("decoders", ())]
    return [pair for pair in pairs if arm.obstacle or pair[1] not in only_there]


def _missing_episodes(arm: Arm, study: Study) -> list[str]:
    groups = {(result.head, result.decoder): result for result in arm.results()}
    none = [decoder_name(*pair) for pair in asked_for(arm, study) if pair not in groups]
    gaps = [f"no episode yet: {_listed(none)}"] if none else []
    most = max((r.episodes + r.errors for p, r in groups.items() if not is_deterministic(*p)), default=0)
    fewer = [
        f"{decoder_name(*pair)} {result.episodes + result.errors}"
        for pair, result in groups.items()
        if not is_deterministic(*pair) and result.episodes + result.errors < most
    ]
    if fewer:
        gaps.append(f"fewer episodes than the {most} of the others: {_listed(fewer)}")
    errors = sum(result.errors for result in groups.values())
    if errors:
        gaps.append(f"{errors} episodes ended in an error and are counted neither as success nor as failure")
    lost = sum(rollout.status != "error" and not rollout.files.path(rollout.key).is_file() for rollout in arm.rollouts)
    if lost:
        gaps.append(f"{lost} episodes have no side file: no path, no side and no spread of theirs is shown")
    return gaps


def _listed(words: Sequence[str], most: int = 8) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more
