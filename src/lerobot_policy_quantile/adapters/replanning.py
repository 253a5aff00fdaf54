"""How many steps of a chunk are executed before the next query, as a setting of the closed loop.

`fixed:10` executes ten, `adaptive:0.08` as many as have a mean spread under 0.08 (`serving.spread.Replanning`),
`adaptive:0.08,least=2` at least two of them. Either takes the place of the number that a policy was saved with.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lerobot_policy_quantile.adapters.scripted_expert import is_expert
from lerobot_policy_quantile.adapters.server_address import is_server
from lerobot_policy_quantile.contract import Chunk, Observation, UnusablePolicyError, World
from lerobot_policy_quantile.serving.spread import Replanning, spread

if TYPE_CHECKING:
    from lerobot_policy_quantile.adapters.lerobot_folder import EpisodicPolicy, PlainPolicy

_ADAPTIVE = re.compile(r"adaptive:([\d.]+(?:e-?\d+)?)(?:,least=(\d+))?")


@dataclass(frozen=True)
class FixedSteps:
    """The same number of steps of every chunk."""

    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1; got {self.steps}")


def parse_replan(text: str) -> FixedSteps | Replanning:
    """The rule that a text such as `fixed:10` or `adaptive:0.08,least=2` spells."""
    if fixed := re.fullmatch(r"fixed:(\d+)", text):
        return FixedSteps(int(fixed[1]))
    if adaptive := _ADAPTIVE.fullmatch(text):
        return Replanning(float(adaptive[1]), int(adaptive[2] or 1))
    raise ValueError(f"--replan must read like fixed:10, adaptive:0.08 or adaptive:0.08,least=2; got {text!r}")


def require_replannable(text: str | None, sources: Mapping[str, str]) -> None:
    """Refuse a text that is no rule, and sources that no rule applies to."""
    if text is None:
        return
    parse_replan(text)
    for name, source in sources.items():
        if is_expert(source) or is_server(source):
            raise ValueError(
                f"--replan is for policy folders; got {name!r}; a server's address takes ?replan=0.08&least=2 instead"
            )


class ReplannedPolicy:
    """A policy whose chunks are followed as far as a rule says. The rule is part of the context of every row."""

    def __init__(self, policy: "EpisodicPolicy | PlainPolicy", rule: FixedSteps | Replanning) -> None:
        chunk_size = int(policy.config.chunk_size)
        if isinstance(rule, FixedSteps) and rule.steps > chunk_size:
            raise UnusablePolicyError(f"steps must lie in 1..{chunk_size}, the policy's chunk; got {rule.steps}")
        if isinstance(rule, Replanning) and not policy.levels:
            raise UnusablePolicyError("adaptive replanning needs a policy that predicts quantiles; this one has none")
        self._policy, self._rule = policy, rule
        self.needs_images = policy.needs_images
        self.n_action_steps = rule.steps if isinstance(rule, FixedSteps) else chunk_size
        self.context = {**policy.context, "replanning": str(rule)}

    def begin(self, seed: int, world: World, decoder: str) -> Any:
        """The policy's own memory."""
        return self._policy.begin(seed, world, decoder)

    def act(self, observations: Sequence[Observation], memories: Sequence[Any]) -> list[Chunk]:
        """The policy's chunks, cut where the rule says."""
        return [self._cut(chunk) for chunk in self._policy.act(observations, memories)]

    def _cut(self, chunk: Chunk) -> Chunk:
        if isinstance(self._rule, FixedSteps) or chunk.quantiles is None:
            return chunk
        widths = spread(np.asarray(chunk.quantiles), self._policy.levels)
        return Chunk(chunk.actions[: self._rule.steps(widths, self._policy.grippers)], chunk.quantiles)

    def close(self) -> None:
        """Free the policy."""
        self._policy.close()
