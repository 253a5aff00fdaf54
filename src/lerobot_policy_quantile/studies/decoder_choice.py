"""Which decoder of a policy succeeds most often? Successive rejects on keyed episodes, from a journal that resumes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from lerobot_policy_quantile.contract import Factory
from lerobot_policy_quantile.evaluation.plan import EpisodeKey, Plan
from lerobot_policy_quantile.evaluation.tables.intervals import compare, wilson
from lerobot_policy_quantile.evaluation.tables.successive_rejects import phase_lengths, probability_best, worst
from lerobot_policy_quantile.evaluation.whole_run import run_whole
from lerobot_policy_quantile.util.files import write_json
from lerobot_policy_quantile.util.tables import aligned

RECORD = "choice.json"


@dataclass(frozen=True)
class DecoderChoice:
    """What is compared, where, and with how many episodes."""

    policy: str
    decoders: tuple[str, ...]
    scene: str
    tasks: tuple[int, ...]
    indices: tuple[int, ...]
    seeds: tuple[int, ...]
    budget: int

    def __post_init__(self) -> None:
        longest = self.phases[-1]
        if longest > (there := len(self.tasks) * len(self.indices) * len(self.seeds)):
            raise ValueError(
                f"--budget {self.budget} runs the last two decoders on {longest} episodes; tasks, indices and seeds"
                f" give {there}: name more of them, or lower --budget"
            )

    @property
    def phases(self) -> list[int]:
        """Episodes per surviving decoder at the end of each phase."""
        return phase_lengths(len(self.decoders), self.budget)

    def keys(self, decoder: str, count: int) -> list[EpisodeKey]:
        """A decoder's first episodes: every task before the next index, every index before the next seed."""
        every = [(task, index, seed) for seed in self.seeds for index in self.indices for task in self.tasks]
        return [EpisodeKey(self.scene, *place, self.policy, decoder) for place in every[:count]]


def choose_decoder(
    choice: DecoderChoice, factory: Factory, out: Path, *, workers: int, console: Console
) -> dict[str, Any]:
    """Run what the journal lacks, phase by phase, and write the record. `UnfinishedError` after Ctrl-C."""
    left = list(choice.decoders)
    dropped: dict[str, int] = {}
    won: dict[str, list[bool]] = {}
    for number, count in enumerate(choice.phases, 1):
        plan = Plan(tuple(key for keys in zip(*(choice.keys(d, count) for d in left), strict=True) for key in keys))
        rows = run_whole(plan, out, factory, workers=workers, console=console)
        success = {row.key: row.status == "success" for row in rows}
        won |= {decoder: [success[key] for key in choice.keys(decoder, count)] for decoder in left}
        out_now = worst({decoder: sum(won[decoder]) for decoder in left})
        dropped[out_now] = number
        left.remove(out_now)
        console.print(f"phase {number}: {count} episodes each; {out_now} is dropped", markup=False, highlight=False)
    record = _record(choice, won, dropped, left[0])
    write_json(out / RECORD, record)
    return record


def _record(
    choice: DecoderChoice, won: Mapping[str, Sequence[bool]], dropped: Mapping[str, int], best: str
) -> dict[str, Any]:
    order = [best, *sorted(dropped, key=lambda decoder: -dropped[decoder])]
    chances = probability_best([sum(won[d]) for d in order], [len(won[d]) for d in order])
    arms = []
    for decoder, chance in zip(order, chances, strict=True):
        rate = wilson(sum(won[decoder]) / len(won[decoder]), len(won[decoder]))
        paired = compare(list(zip(won[best], won[decoder], strict=False)))
        arms.append(
            {
                "decoder": decoder,
                "successes": sum(won[decoder]),
                "episodes": len(won[decoder]),
                "low": rate.low,
                "high": rate.high,
                "dropped_in_phase": dropped.get(decoder),
                "probability_best": chance,
                "p_against_best": None if decoder == best else paired.p_value,
            }
        )
    return {
        "policy": choice.policy,
        "scene": choice.scene,
        "budget": choice.budget,
        "phases": choice.phases,
        "best": best,
        "decoders": arms,
        "statement": _statement(arms),
    }


def _statement(arms: Sequence[Mapping[str, Any]]) -> str:
    best, rival = arms[0], arms[1]
    told = [arm["decoder"] for arm in arms[1:] if arm["p_against_best"] <= 0.05]
    rest = len(arms) - 1 - len(told)
    return (
        f"{best['decoder']} is chosen: {best['successes']} of {best['episodes']} episodes. The probability that it is"
        f" the best of these is {best['probability_best']:.2f} (uniform priors, episodes taken as independent). Paired"
        f" with it, {len(told)} of {len(arms) - 1} others are worse at the 5 % level (McNemar, not corrected for"
        f" choosing), {rest} cannot be told apart; the last rival is {rival['decoder']}"
        f" (p = {rival['p_against_best']:.2g})."
    )


def choice_table(record: Mapping[str, Any]) -> str:
    """For a terminal."""
    return f"{aligned(choice_lines(record), left=1)}{record['statement']}\n"


def choice_lines(record: Mapping[str, Any]) -> list[list[str]]:
    """A header, then one line per decoder."""
    lines = [["decoder", "success", "95 % interval", "dropped in phase", "probability to be best", "p against chosen"]]
    for arm in record["decoders"]:
        p = arm["p_against_best"]
        lines.append(
            [
                arm["decoder"],
                f"{arm['successes']} of {arm['episodes']}",
                f"{arm['low']:.0%} to {arm['high']:.0%}",
                "-" if arm["dropped_in_phase"] is None else str(arm["dropped_in_phase"]),
                f"{arm['probability_best']:.2f}",
                "-" if p is None else f"{p:.2g}",
            ]
        )
    return lines
