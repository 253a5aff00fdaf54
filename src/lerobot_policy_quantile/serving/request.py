"""Validates a decoded frame, before anything is computed: it becomes a request or an error that names the field."""

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lerobot_policy_quantile.contract import LeftOver, Observation, PromptLimit, Spec
from lerobot_policy_quantile.serving.protocol import ANSWER_EXTRAS, BLOCK, ErrorKind, RequestError
from lerobot_policy_quantile.util.names import nearest

STATE = "observation/state"
PROMPT = "prompt"
MAX_PROMPT = 1000
"""Largest number of characters of an instruction."""
MAX_STATE = 1e6
SIDES = (8, 2048)
"""Smallest and largest height or width of an image, in pixels."""
ASPECT = 8
"""Largest ratio of an image's sides: of a thinner one nothing is left at a policy's size."""
MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class RequestOptions:
    """The `qhead` entry of a request; every field is optional."""

    session: str | None = None
    """Name of the session. Default: the connection's own."""
    new_session: bool = False
    """Begin another session on this connection."""
    reset: bool = False
    """Begin a new episode first; a request without observations does only that."""
    seed: int | None = None
    """Seed of the episode that `reset` begins."""
    decoder: str | None = None
    """Decoder of the session from its next episode on; needs `reset`."""
    want: tuple[str, ...] = ()
    """Which of quantiles, spread and ranks the answer should contain."""
    sequence: int | None = None
    """Number of the observation; increases within an episode. A repeated request gets the same answer again."""
    sent: float | None = None
    """The client's monotonic clock when it sent this, in seconds."""
    age: float = 0.0
    """Seconds between observation and sending, by the client's monotonic clock."""
    deadline: float | None = None
    """Seconds after which the answer is of no use."""
    left_over: LeftOver | None = None
    """What is left of the chunk being executed, with `delay`: the answer takes over from it."""
    delay: int | None = None
    """Steps of `left_over` that will have been executed when the answer arrives."""


@dataclass(frozen=True)
class Request:
    """A validated request."""

    observation: Observation | None
    options: RequestOptions


def parse_request(message: Any, spec: Spec) -> Request:
    """The request in a message; raises RequestError that names the field, the value and what is allowed."""
    if not isinstance(message, dict):
        raise RequestError(ErrorKind.INVALID, f"a request must be a map; got {type(message).__name__}")
    options = _options(message.get(BLOCK, {}), spec)
    given = {name: value for name, value in message.items() if name != BLOCK}
    if not given and options.reset:
        return Request(None, options)
    wanted = [*spec.cameras, STATE, PROMPT]
    if unknown := [name for name in given if name not in wanted]:
        raise _invalid(unknown[0][:80], f"is not read by this policy; it reads {', '.join(wanted)}", wanted)
    if missing := [name for name in wanted if name not in given]:
        raise _invalid(missing[0], f"is missing; this policy reads {', '.join(wanted)}")
    images = {name: _image(name, given[name]) for name in spec.cameras}
    prompt = _prompt(given[PROMPT], spec.prompt_limit)
    return Request(Observation(images, _state(given[STATE], spec.state_dim), prompt, options.left_over), options)


def _image(name: str, value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8:
        raise _invalid(name, f"must be an array of uint8; got {_kind(value)}")
    if value.ndim != 3 or value.shape[2] != 3:
        raise _invalid(name, f"must have shape (height, width, 3); got {value.shape}")
    if not all(SIDES[0] <= side <= SIDES[1] for side in value.shape[:2]):
        raise _invalid(name, f"must have {SIDES[0]} to {SIDES[1]} pixels a side; got {value.shape[:2]}")
    if max(value.shape[:2]) > ASPECT * min(value.shape[:2]):
        raise _invalid(name, f"must be at most {ASPECT} times as long as wide; got {value.shape[:2]}")
    return value


def _state(value: Any, size: int) -> Any:
    if isinstance(value, list) and all(type(number) in (int, float) for number in value):
        value = np.array(value, dtype=np.float64)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu":
        raise _invalid(STATE, f"must be an array of numbers; got {_kind(value)}")
    if value.shape != (size,):
        raise _invalid(STATE, f"must have shape ({size},); got {value.shape}")
    state = value.astype(np.float64)
    if not np.isfinite(state).all():
        raise _invalid(STATE, f"must be finite; got {state.tolist()}")
    if np.abs(state).max(initial=0.0) > MAX_STATE:
        raise _invalid(STATE, f"must lie within +-{MAX_STATE:g}; got {state.tolist()}")
    return state


def _prompt(value: Any, limit: PromptLimit | None) -> str:
    if not isinstance(value, str):
        raise _invalid(PROMPT, f"must be a text; got {_kind(value)}")
    if not value.strip() or len(value) > MAX_PROMPT:
        raise _invalid(PROMPT, f"must have 1 to {MAX_PROMPT} characters; got {len(value.strip())}")
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    if wrong := [c for c in text if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]:
        raise _invalid(PROMPT, f"must hold no control characters; got {wrong[0]!a}")
    if limit is not None and (tokens := limit.tokens(text)) > limit.most:
        raise _invalid(PROMPT, f"must take at most {limit.most} tokens of this policy's tokenizer; got {tokens}")
    return text


def _left_over(block: Mapping[str, Any], spec: Spec) -> LeftOver | None:
    value, delay = block.get("left_over"), _whole(block, "delay")
    name = f"{BLOCK}.left_over"
    if value is None:
        if delay is not None:
            raise _invalid(f"{BLOCK}.delay", "must be left out without left_over")
        return None
    if spec.left_over_bounds is None:
        raise _invalid(name, "must be left out: this policy's chunks do not take over from each other")
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu":
        raise _invalid(name, f"must be an array of numbers; got {_kind(value)}")
    if value.ndim != 2 or value.shape[1] != spec.action_dim or not 1 <= len(value) <= spec.chunk_size:
        raise _invalid(name, f"must have shape (1..{spec.chunk_size}, {spec.action_dim}); got {value.shape}")
    actions = value.astype(np.float64)
    if not np.isfinite(actions).all():
        raise _invalid(name, "must be finite; got NaN or infinity")
    low, high = np.array(spec.left_over_bounds)
    if (outside := np.argwhere((actions < low) | (actions > high))).size:
        step, d = outside[0]
        raise _invalid(
            name,
            f"must be actions of this policy, in dimension {d} within {low[d]:g} to {high[d]:g};"
            f" got {actions[step, d]:g}: were they made for another action space?",
        )
    if (delay or 0) >= spec.chunk_size:
        raise _invalid(f"{BLOCK}.delay", f"must lie in 0..{spec.chunk_size - 1}, inside the chunk; got {delay}")
    return LeftOver(actions, delay or 0)


def _options(block: Any, spec: Spec) -> RequestOptions:
    if not isinstance(block, dict):
        raise _invalid(BLOCK, f"must be a map; got {_kind(block)}")
    allowed = [*RequestOptions.__dataclass_fields__]
    if unknown := [name for name in block if name not in allowed]:
        raise _invalid(f"{BLOCK}.{unknown[0][:80]}", f"is not known; allowed are {', '.join(allowed)}", allowed)
    options = RequestOptions(
        session=_text(block, "session"),
        new_session=_flag(block, "new_session"),
        reset=_flag(block, "reset"),
        seed=_whole(block, "seed"),
        decoder=_text(block, "decoder"),
        want=_want(block),
        sequence=_whole(block, "sequence"),
        sent=_seconds(block, "sent", negative=True),
        age=_seconds(block, "age") or 0.0,
        deadline=_seconds(block, "deadline"),
        left_over=_left_over(block, spec),
        delay=_whole(block, "delay"),
    )
    if options.deadline == 0:
        raise _invalid(f"{BLOCK}.deadline", "must be positive; got 0: nothing can be answered in no time")
    if not options.reset and (options.seed is not None or options.decoder is not None or options.new_session):
        raise _invalid(f"{BLOCK}.reset", "must be true with seed, decoder or new_session: they begin an episode")
    if options.new_session and options.session is not None:
        raise _invalid(f"{BLOCK}.session", "must be left out with new_session: the server names new sessions")
    return options


def _text(block: Mapping[str, Any], name: str) -> str | None:
    value = block.get(name)
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= 200):
        raise _invalid(f"{BLOCK}.{name}", f"must be a text of 1 to 200 characters; got {_kind(value)}")
    return value


def _flag(block: Mapping[str, Any], name: str) -> bool:
    value = block.get(name, False)
    if not isinstance(value, bool):
        raise _invalid(f"{BLOCK}.{name}", f"must be true or false; got {_kind(value)}")
    return value


def _whole(block: Mapping[str, Any], name: str) -> int | None:
    value = block.get(name)
    if value is not None and (type(value) is not int or not 0 <= value <= MAX_SEED):
        raise _invalid(f"{BLOCK}.{name}", f"must be a whole number in 0..2**63-1; got {str(value)[:40]}")
    return value


def _seconds(block: Mapping[str, Any], name: str, *, negative: bool = False) -> float | None:
    value = block.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(value) or (value < 0 and not negative):
        raise _invalid(f"{BLOCK}.{name}", f"must be a finite number of seconds; got {str(value)[:40]}")
    return float(value)


def _want(block: Mapping[str, Any]) -> tuple[str, ...]:
    value = block.get("want", [])
    if not isinstance(value, list) or not all(isinstance(name, str) and name in ANSWER_EXTRAS for name in value):
        raise _invalid(f"{BLOCK}.want", f"must be a list of {', '.join(ANSWER_EXTRAS)}; got {str(value)[:80]}")
    return tuple(value)


def _kind(value: Any) -> str:
    return f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__


def _invalid(field: str, what: str, known: list[str] | None = None) -> RequestError:
    hint = nearest(field.removeprefix(f"{BLOCK}."), known or [])
    return RequestError(ErrorKind.INVALID, f"{field} {what}{hint}", field)
