"""How long an instruction may be: a policy's prompt holds the instruction and the robot's state, in tokens."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from lerobot_policy_quantile.contract import PromptLimit
from lerobot_policy_quantile.processor_quantile import STATE_BINS, PromptTokenizerStep, prompt_text


def prompt_limit(steps: Iterable[Any], state_dim: int) -> PromptLimit | None:
    """Of a policy whose pipeline tokenizes as ours; None for any other.

    The state is counted at the bin that takes most tokens, so that an instruction that fits once fits at every state.
    """
    step = next((step for step in steps if isinstance(step, PromptTokenizerStep)), None)
    if step is None:
        return None
    worst = max(range(STATE_BINS), key=lambda bin_: step.count(prompt_text("x", [bin_] * state_dim)))
    state = [worst] * state_dim
    around = step.count(prompt_text("", state))

    @lru_cache(maxsize=256)
    def tokens(instruction: str) -> int:
        return step.count(prompt_text(instruction, state)) - around

    return PromptLimit(step.max_length - around, tokens)
