"""How often the interval over training seeds holds the true rate: simulated models, simulated episodes.

Seeds differ by a normal law on the logit scale; its centre is set so that the mean over seeds is the true rate. Counts
are few, so coverage jumps with the exact rate: rates are drawn from a quarter of the failure rate around the one named.

    python benchmarks/interval_coverage.py    # three seeds: the table of docs/explanation/intervals.md, 3 minutes
    python benchmarks/interval_coverage.py --seeds 2 --seeds 6 --models 5000
"""

import argparse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Bool, Float, Int

from lerobot_policy_quantile.contract import Array
from lerobot_policy_quantile.evaluation.tables.intervals import over_seeds

RATES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99)
EPISODES = (50, 100, 200, 500, 1000)
VARIATIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Standard deviation of the seeds' logits. 0.5 at a rate of 0.5 is 12 points from seed to seed, at 0.9 it is 5."""
MODELS = 20_000
NEIGHBOURS = 20

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()

Ends = Callable[[tuple[int, ...], int], tuple[float, float]]


@dataclass(frozen=True)
class Cell:
    """One setting and the shares of intervals that held the true rate."""

    rate: float
    episodes: int
    variation: float
    ours: float
    extremes: float
    """The lowest to the highest seed: what a percentile bootstrap of three seeds gives."""


def simulate(
    seeds: int,
    *,
    rates: Iterable[float] = RATES,
    episodes: Iterable[int] = EPISODES,
    variations: Iterable[float] = VARIATIONS,
    models: int = MODELS,
) -> Iterator[Cell]:
    """Coverage in every setting; `models` methods of so many training seeds each."""
    generator, per_seed = np.random.default_rng(0), tuple(episodes)
    for rate in rates:
        for count in per_seed:
            for variation in variations:
                wins, truth = _draw(generator, rate, count, variation, seeds, models)
                yield Cell(
                    rate,
                    count,
                    variation,
                    float(_covered(wins, truth, count, _ours).mean()),
                    float(_covered(wins, truth, count, _extremes).mean()),
                )


def _draw(
    generator: np.random.Generator, rate: float, episodes: int, variation: float, seeds: int, models: int
) -> tuple[Int[Array, "models seeds"], Float[Array, " models"]]:
    """Successes of every seed, and the true mean rates."""
    nearby = rate + (1 - rate) / 4 * np.linspace(-1, 1, NEIGHBOURS)
    truth = np.repeat(nearby, models // NEIGHBOURS)
    centres = np.repeat([_centre(float(near), variation) for near in nearby], models // NEIGHBOURS)
    logits = centres[:, None] + variation * generator.standard_normal((len(truth), seeds))
    return generator.binomial(episodes, _logistic(logits)), truth


def _centre(rate: float, variation: float) -> float:
    """The mean logit at which seeds have this mean rate, by bisection."""
    low, high = -20.0, 20.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        below = float(_WEIGHTS @ _logistic(middle + variation * _NODES)) < rate
        low, high = (middle, high) if below else (low, middle)
    return low


def _logistic(logits: Float[Array, "*n"]) -> Float[Array, "*n"]:
    return np.asarray(1 / (1 + np.exp(-logits)))


def _covered(
    wins: Int[Array, "models seeds"], truth: Float[Array, " models"], episodes: int, ends: Ends
) -> Bool[Array, " models"]:
    found = np.array([ends(tuple(sorted(row)), episodes) for row in wins.tolist()])
    return np.asarray((found[:, 0] <= truth) & (truth <= found[:, 1]))


@cache
def _ours(wins: tuple[int, ...], episodes: int) -> tuple[float, float]:
    found = over_seeds([count / episodes for count in wins], [episodes] * len(wins))
    return found.low, found.high


def _extremes(wins: tuple[int, ...], episodes: int) -> tuple[float, float]:
    return wins[0] / episodes, wins[-1] / episodes


def _print(seeds: int, cells: list[Cell]) -> None:
    rates = sorted({cell.rate for cell in cells})
    by_place = {(cell.episodes, cell.variation, cell.rate): cell for cell in cells}
    print(f"\n{seeds} seeds\n\n| episodes per seed | variation | {' | '.join(f'{rate:g}' for rate in rates)} |")
    print("|---" * (2 + len(rates)) + "|")
    for episodes, variation in sorted({(cell.episodes, cell.variation) for cell in cells}):
        figures = (f"{100 * by_place[episodes, variation, rate].ours:.1f}" for rate in rates)
        print(f"| {episodes} | {variation:g} | {' | '.join(figures)} |")
    for name, values in (("ours", [c.ours for c in cells]), ("lowest to highest seed", [c.extremes for c in cells])):
        shares = 100 * np.array(values)
        inside = int(((shares.round(1) >= 93) & (shares.round(1) <= 97)).sum())
        print(
            f"{name}: {shares.min():.1f} to {shares.max():.1f} %, mean {shares.mean():.1f};"
            f" {inside} of {len(cells)} settings in 93 to 97"
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, action="append", help="training seeds; repeatable, 3 if left out")
    parser.add_argument("--models", type=int, default=MODELS, help="methods per setting")
    options = parser.parse_args()
    for seeds in options.seeds or [3]:
        _print(seeds, list(simulate(seeds, models=options.models)))


if __name__ == "__main__":
    main()
