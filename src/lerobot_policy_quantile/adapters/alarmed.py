"""What the closed loop does when an alarm is on: look again at once, decode otherwise, or stop.

`replan` executes one step of the chunk and asks again; `stop` ends the episode there, as a failure before its limit;
any other text is a decoder, with which the episode's next chunks are decoded, the first one a step later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.adapters.scripted_expert import is_expert
from lerobot_policy_quantile.adapters.server_address import is_server
from lerobot_policy_quantile.contract import Chunk, Observation, Policy, UnusablePolicyError, World
from lerobot_policy_quantile.core.decoders import canonical_text
from lerobot_policy_quantile.serving.alarm import Alarm, AlarmMonitor
from lerobot_policy_quantile.util.digests import digest

REPLAN, STOP = "replan", "stop"


@dataclass(frozen=True)
class AlarmRule:
    """A fitted alarm and what to do when it is on; plain values, sent to worker processes."""

    file: str
    reaction: str = REPLAN

    @classmethod
    def parse(cls, file: Path | None, reaction: str, sources: Mapping[str, str]) -> "AlarmRule | None":
        """The rule of `--alarm` and `--on-alarm`; None without an alarm. Refuses what no alarm applies to."""
        if file is None:
            return None
        Alarm.read(file)
        for name, source in sources.items():
            if is_expert(source) or is_server(source):
                raise ValueError(f"--alarm is for policy folders; got {name!r}; a server takes qhead serve --alarm")
        if reaction not in (REPLAN, STOP):
            try:
                reaction = canonical_text(reaction)
            except ValueError as error:
                raise ValueError(f"--on-alarm must be {REPLAN}, {STOP} or a decoder; {error}") from None
        return cls(str(file), reaction)

    @property
    def context(self) -> str:
        """As rows of the journal say it."""
        return f"{self.reaction} by {digest(Path(self.file).read_bytes())}"


@dataclass
class _WatchedMemory:
    """A policy's own memory and the alarm's."""

    inner: Any
    monitor: AlarmMonitor
    step: int = 0
    switched: bool = False


class AlarmedPolicy:
    """A policy whose episodes an alarm watches. The rule is part of the context of every row."""

    def __init__(self, policy: Policy, rule: AlarmRule) -> None:
        self._policy, self._rule, self._alarm = policy, rule, Alarm.read(Path(rule.file))
        try:
            self._alarm.require_policy(policy.context.get("policy"))
        except ValueError as error:
            raise UnusablePolicyError(str(error)) from None
        self.needs_images, self.n_action_steps = policy.needs_images, policy.n_action_steps
        self.context = {**policy.context, "alarm": rule.context}

    def begin(self, seed: int, world: World, decoder: str) -> _WatchedMemory:
        """The policy's memory, and an alarm that has seen nothing."""
        return _WatchedMemory(self._policy.begin(seed, world, decoder), AlarmMonitor(self._alarm))

    def act(self, observations: Sequence[Observation], memories: Sequence[_WatchedMemory]) -> list[Chunk]:
        """The policy's chunks; those of episodes whose alarm is on as the rule says."""
        chunks = self._policy.act(observations, [memory.inner for memory in memories])
        return [self._watched(chunk, memory) for chunk, memory in zip(chunks, memories, strict=True)]

    def _watched(self, chunk: Chunk, memory: _WatchedMemory) -> Chunk:
        if chunk.quantiles is None:
            raise UnusablePolicyError("an alarm needs a policy that predicts quantiles; this one has none")
        chunk = replace(chunk, alarm=memory.monitor.observe(memory.step, chunk.quantiles).on)
        if chunk.alarm:
            if self._rule.reaction == STOP:
                return replace(chunk, stop=True)
            chunk = self._react(chunk, memory)
        memory.step += min(len(chunk.actions), self.n_action_steps)
        return chunk

    def _react(self, chunk: Chunk, memory: _WatchedMemory) -> Chunk:
        if self._rule.reaction == REPLAN:
            return replace(chunk, actions=chunk.actions[:1])
        if memory.switched:
            return chunk
        other: Any = self._policy.begin(0, None, self._rule.reaction)  # type: ignore[arg-type]  # folders see no world
        memory.inner, memory.switched = replace(memory.inner, decoder=other.decoder), True
        return replace(chunk, actions=chunk.actions[:1])

    def close(self) -> None:
        """Free the policy."""
        self._policy.close()
