"""Success of one decoder in one arm: counts per training seed, the rate and how surely it is known."""

from dataclasses import dataclass

from lerobot_policy_quantile.contract import OWN_DECODER
from lerobot_policy_quantile.core.decoders import PRESETS
from lerobot_policy_quantile.evaluation.tables.intervals import over_seeds


def is_deterministic(head: str, decoder: str) -> bool:
    """Whether repeats of an episode cannot differ: regression heads, the median, the densest interval."""
    if decoder == OWN_DECODER:
        return head in ("l1", "l2")
    preset = PRESETS.get(decoder.partition("(")[0])
    return preset is not None and preset.deterministic


@dataclass(frozen=True)
class Result:
    """Episodes of one head and decoder, errors left out."""

    head: str
    decoder: str
    by_seed: tuple[tuple[int, int], ...]  # successes and episodes of every training seed that has some
    errors: int
    left: int  # successes that first passed on the left, and on the right
    right: int
    paper: float | None  # per cent, None where the paper has no number

    @property
    def success(self) -> int:
        """Successes of all training seeds."""
        return sum(won for won, _ in self.by_seed)

    @property
    def episodes(self) -> int:
        """Episodes of all training seeds."""
        return sum(episodes for _, episodes in self.by_seed)

    @property
    def rate(self) -> float:
        """Success in per cent; nan without episodes."""
        return 100 * self.success / self.episodes if self.episodes else float("nan")

    @property
    def seed_rates(self) -> tuple[float, ...]:
        """Success of every training seed in per cent."""
        return tuple(100 * won / episodes for won, episodes in self.by_seed)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval over training seeds and episodes in per cent; (0, 100) without episodes."""
        if not self.episodes:
            return 0.0, 100.0
        rates, trials = zip(*((won / episodes, episodes) for won, episodes in self.by_seed), strict=True)
        found = over_seeds(rates, trials)
        return 100 * found.low, 100 * found.high

    @property
    def interval_words(self) -> str:
        """The interval, and the lowest and the highest seed where there are several: `54 to 91, seeds 56 to 88`."""
        low, high = self.interval
        rates = self.seed_rates
        seeds = f", seeds {min(rates):.0f} to {max(rates):.0f}" if len(rates) > 1 else ""
        return f"{low:.0f} to {high:.0f}{seeds}"
