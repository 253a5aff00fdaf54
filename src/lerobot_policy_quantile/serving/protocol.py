"""What client and server say to each other beyond openpi's protocol, and the errors they name.

A request is openpi's flat map of observations. Our own wishes ride in one more entry, `qhead`, which plain openpi
clients leave out; our answers carry the same entry beside openpi's `actions`. An error is a text frame, as in openpi,
and the text is JSON: which error, which field, what to do. After an error the server closes the connection (1011) as
openpi's does, unless one of the connection's requests had a `qhead` entry: who speaks our part can go on.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

BLOCK = "qhead"
"""The entry of requests and answers that is ours."""

SERVER_NAME = "lerobot_policy_quantile"
"""`server` in the metadata of our own server."""

PROTOCOL_VERSION = 1

WISHES = ("quantiles", "spread", "ranks")
"""What an answer can hold beside the actions, each with the chunk's steps as its first axis."""


class ErrorKind(StrEnum):
    """Every error a client can be told."""

    MALFORMED = "malformed"  # the frame is not the wire format
    INVALID = "invalid"  # a field has a value that is not allowed
    BUSY = "busy"  # the queue is full, or the session's last request is still under way
    DEADLINE = "deadline"  # no answer in time
    STALE = "stale"  # the observation is too old
    OUT_OF_ORDER = "out_of_order"  # a sequence number that does not increase
    UNKNOWN_SESSION = "unknown_session"  # never begun here, expired, or lost with a restart
    INFERENCE = "inference"  # the policy failed; the server's log says how
    STOPPING = "stopping"  # the server drains


RETRY = frozenset({ErrorKind.BUSY, ErrorKind.DEADLINE, ErrorKind.STALE, ErrorKind.STOPPING})
"""Errors that another try, with a fresh observation, may not meet."""


@dataclass
class RequestError(Exception):
    """A request that is refused, as the client is told of it."""

    kind: ErrorKind
    message: str
    field: str = ""

    @property
    def retry(self) -> bool:
        """Whether the same wish may succeed a moment later."""
        return self.kind in RETRY

    def text(self) -> str:
        """The text frame."""
        parts = {"error": self.kind, "field": self.field, "message": self.message, "retry": self.retry}
        return json.dumps(parts, ensure_ascii=False)

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


def parse_error(text: str) -> RequestError | None:
    """The error in a text frame of our server; None for any other server's words."""
    try:
        parts: Any = json.loads(text)
        return RequestError(ErrorKind(parts["error"]), str(parts["message"]), str(parts["field"]))
    except (ValueError, TypeError, KeyError):
        return None
