"""Settings of the policy server: address, access, limits."""

import ipaddress
import math
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from lerobot_policy_quantile.serving.alarm import Alarm
from lerobot_policy_quantile.serving.guard import Guard
from lerobot_policy_quantile.serving.session import SEEDS
from lerobot_policy_quantile.serving.wire import MEBIBYTE, Limits

POSITIVE = ("max_batch", "max_queue", "max_connections", "unread_bytes", "decoded_bytes")


@dataclass(frozen=True)
class ServerSettings:
    """Address, access and limits. The defaults suit one machine and a few robots. Times are in seconds."""

    host: str = "127.0.0.1"
    port: int = 8000
    tokens: tuple[str, ...] = ()
    """Access tokens; a session belongs to the token it was begun with."""
    certificate: str | None = None
    key: str | None = None
    limits: Limits = field(default_factory=Limits)
    guard: Guard = field(default_factory=Guard)
    alarm: Alarm | None = None
    """Watches every episode; its reading comes with every answer."""
    max_batch: int = 16
    max_queue: int = 64
    window: float = 0.003
    deadline: float = 10.0
    """Longest wait for an answer; a request may set a shorter one."""
    max_age: float = 1.0
    """Largest age of an observation, if the client reports it."""
    max_connections: int = 256
    message_timeout: float = 6.0
    """Longest time from a message's first byte to its last, and for reading an answer."""
    unread_bytes: int = 64 * MEBIBYTE
    """Messages over 1 MiB that are being received or wait to be decoded, all connections together."""
    decoded_bytes: int = 128 * MEBIBYTE
    """Pictures of observations that wait or are computed; more are refused as busy."""
    drain: float = 10.0
    """Time to finish requests in progress when stopping."""
    first_seed: int = 0
    decoder: str | None = None
    sessions_per_connection: int = 16
    idle: float = 600.0
    """Time after which an unused session is dropped."""

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.tokens:
            raise ValueError(
                f"host {self.host} can be reached from other machines: a token is needed; set QHEAD_TOKEN,"
                " or serve on 127.0.0.1"
            )
        for token in self.tokens:
            if len(token) < 16:
                raise ValueError(f"token must have at least 16 characters; got {len(token)}")
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key must be given together")
        for name in (*POSITIVE, "deadline", "max_age", "message_timeout", "idle"):
            if not 0 < getattr(self, name) < math.inf:  # NaN is neither
                raise ValueError(f"{name} must be positive and finite; got {getattr(self, name)}")
        for name in ("window", "drain"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be finite and not negative; got {getattr(self, name)}")
        if not 0 <= self.first_seed < SEEDS:
            raise ValueError(f"seed must lie in 0..2**63-1; got {self.first_seed}")

    def tls(self) -> ssl.SSLContext | None:
        """TLS context with the certificate; None without one."""
        if self.certificate is None:
            return None
        for name in ("certificate", "key"):
            file = getattr(self, name)
            if not Path(file).is_file():
                raise ValueError(f"{name} must be a PEM file; there is none at {file}")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError as error:
            raise ValueError(f"certificate {self.certificate} and key {self.key} do not go together: {error}") from None
        return context


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only; of names, only localhost counts."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
