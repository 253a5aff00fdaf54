"""Extensions of openpi's protocol, and its errors.

A request is openpi's flat map of observations. An additional entry, `qhead`, carries options; openpi clients leave it
out. Answers have the same entry beside openpi's `actions`. An error is a text frame, as in openpi; its text is JSON
with the kind of error, the field and what is allowed. After an error the server closes the connection (code 1011), as
openpi's does, unless one of the connection's requests had a `qhead` entry: such clients can continue.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

BLOCK = "qhead"
"""Name of the additional entry in requests and answers."""

SERVER_NAME = "lerobot_policy_quantile"
"""Value of `server` in the metadata of `qhead serve`."""

PROTOCOL_VERSION = 1

ANSWER_EXTRAS = ("quantiles", "spread", "ranks")
"""What an answer can contain besides actions; the first axis is the chunk's steps."""


class ErrorKind(StrEnum):
    """Kinds of errors that a client can receive."""

    MALFORMED = "malformed"  # the frame is not the wire format
    INVALID = "invalid"  # a field has a value that is not allowed
    BUSY = "busy"  # the queue is full, or the session's last request is still in progress
    DEADLINE = "deadline"  # no answer in time
    STALE = "stale"  # the observation is too old
    OUT_OF_ORDER = "out_of_order"  # a sequence number that does not increase
    UNKNOWN_SESSION = "unknown_session"  # never begun, expired, or lost with a restart of the server
    INFERENCE = "inference"  # the policy failed; see the server's log
    STOPPING = "stopping"  # the server is stopping


RETRY = frozenset({ErrorKind.BUSY, ErrorKind.DEADLINE, ErrorKind.STALE, ErrorKind.STOPPING})
"""Errors that a retry with a new observation may avoid."""


@dataclass
class RequestError(Exception):
    """A request that was refused; the message is sent to the client."""

    kind: ErrorKind
    message: str
    field: str = ""

    @property
    def retry(self) -> bool:
        """Whether a retry may succeed."""
        return self.kind in RETRY

    def text(self) -> str:
        """The error as a text frame."""
        parts = {"error": self.kind, "field": self.field, "message": self.message, "retry": self.retry}
        return json.dumps(parts, ensure_ascii=False)

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


def parse_error(text: str) -> RequestError | None:
    """The error in a text frame of `qhead serve`; None for text of other servers."""
    try:
        parts: Any = json.loads(text)
        return RequestError(ErrorKind(parts["error"]), str(parts["message"]), str(parts["field"]))
    except (ValueError, TypeError, KeyError):
        return None
