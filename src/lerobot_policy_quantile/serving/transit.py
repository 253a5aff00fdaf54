"""How long a request was in transit, without synchronised clocks.

The lag of a request is the server's clock at arrival minus the client's clock at sending: an unknown offset, plus what
the clocks have drifted apart, plus the time in transit. The smallest lag seen so far is the offset. It is allowed to
rise by `DRIFT` seconds per second, so that a slow clock is followed, and it falls with every faster request.
"""

DRIFT = 1e-3
"""Largest drift between two clocks, in seconds per second: quartz errs by up to 1e-4, a clock that is being corrected
(NTP slews) by another 5e-4. A lasting delay counts as drift after 1000 s for every second of it."""


class TransitEstimate:
    """Transit beyond the fastest request of one connection."""

    def __init__(self) -> None:
        self._fastest: float | None = None
        self._sent = self._arrived = 0.0

    def extra(self, sent: float, arrived: float) -> float:
        """Seconds this request took longer than the fastest one, by the client's and the server's clocks.

        Requests of a connection arrive in the order they were sent. If `sent` is smaller than before, the client's
        clock was set back, and the estimate begins anew; if it was set forward, the lag is smaller than ever before.
        """
        lag = arrived - sent
        if self._fastest is None or sent < self._sent:
            self._fastest = lag
        else:
            self._fastest = min(self._fastest + DRIFT * max(0.0, arrived - self._arrived), lag)
        self._sent, self._arrived = sent, arrived
        return lag - self._fastest
