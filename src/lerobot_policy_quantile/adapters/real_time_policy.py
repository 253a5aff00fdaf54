"""Policies whose answers take time: every policy of a command once per rule and delay, each under a name of its own.

`ours/rank-4` is policy `ours` with an inference delay of four steps and rank handover. The noise of an episode does not
depend on the policy's name, so all of them are paired.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from lerobot_policy_quantile.adapters.policy_folder import CONFIG
from lerobot_policy_quantile.adapters.scripted_expert import is_expert
from lerobot_policy_quantile.adapters.server_address import is_server
from lerobot_policy_quantile.contract import HANDINGS, Chunk, Handing, Observation, Policy, RealTime, World
from lerobot_policy_quantile.evaluation.plan import parse_numbers
from lerobot_policy_quantile.util.names import require_choice

_NEEDS = {"rank": "quantile", "rtc": "flow"}
"""Rules that hand the old chunk to the policy, and the head of ours that takes it."""


def real_time_arms(
    sources: Mapping[str, str], delays: str, handovers: str, replan: str | None
) -> dict[str, tuple[str, RealTime]]:
    """Name -> source and rule of every policy, delay and handover. `rank` and `rtc` go to the heads that have them."""
    if replan is not None and not replan.startswith("fixed:"):
        raise ValueError(f"--replan must be fixed:N with --delay: answers are asked for ahead of time; got {replan!r}")
    rules = [part.strip() for part in handovers.split(",")]
    for rule in rules:
        require_choice("--handover", rule, HANDINGS)
    arms = {}
    for name, source in sources.items():
        if is_expert(source) or is_server(source):
            raise ValueError(f"--delay is for policy folders; got {name!r}")
        head = head_of(Path(source))
        possible = [rule for rule in rules if _NEEDS.get(rule, head) == head]
        if not possible:
            raise ValueError(
                f"--handover must name one that policy {name!r} can do: pause, swap, ensemble; rank needs the quantile"
                f" head, rtc the flow head, and its head is {head or 'not ours'}; got {handovers}"
            )
        for rule in possible:
            for delay in parse_numbers("--delay", delays):
                _require_inside_chunk(name, Path(source), delay)
                arms[f"{name}/{rule}-{delay}"] = (source, RealTime(delay, cast(Handing, rule)))
    return arms


def head_of(folder: Path) -> str | None:
    """The head of a policy of ours; None for any other type."""
    config = _config(folder)
    return str(config.get("head", "quantile")) if config["type"] == "quantile" else None


def _require_inside_chunk(name: str, folder: Path, delay: int) -> None:
    chunk_size = int(_config(folder)["chunk_size"])
    if delay >= chunk_size:
        raise ValueError(f"--delay must lie in 0..{chunk_size - 1}, inside the chunk of policy {name!r}; got {delay}")


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / CONFIG).read_bytes())
    return config


def with_rule(context: Mapping[str, str], rule: RealTime) -> dict[str, str]:
    """A policy's context where its answers take time; journals keep rows of other rules apart."""
    own = {"handover": rule.handover, "delay": str(rule.delay)}
    if rule.handover == "rank":
        from lerobot_policy_quantile.core.decoders.handover import FADE_TEXT

        own["fade"] = FADE_TEXT
    return {**context, **own}


class RealTimePolicy:
    """A policy whose answers arrive some steps later."""

    def __init__(self, policy: Policy, rule: RealTime, grippers: Sequence[int]) -> None:
        self._policy, self.real_time, self.grippers = policy, rule, tuple(grippers)
        self.needs_images, self.n_action_steps = policy.needs_images, policy.n_action_steps
        self.context = with_rule(policy.context, rule)

    def begin(self, seed: int, world: World, decoder: str) -> Any:
        """The policy's own memory."""
        return self._policy.begin(seed, world, decoder)

    def act(self, observations: Sequence[Observation], memories: Sequence[Any]) -> Sequence[Chunk]:
        """The policy's chunks."""
        return self._policy.act(observations, memories)

    def close(self) -> None:
        """Free the policy."""
        self._policy.close()
