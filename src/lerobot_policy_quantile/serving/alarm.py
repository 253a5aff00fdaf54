"""An alarm: replans whose signals leave the band of successful episodes.

A band has a centre and a scale per signal and control time. The score of a replan is the largest standardised excess of
its signals; the alarm is on while it is above the threshold, which holds a share alpha of successful episodes at most.
`calibration.alarm_fit` makes alarms; here they are read and followed.

Axes: t bin of control steps, s signal.
"""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.serving.signals import SIGNALS, SignalUnits
from lerobot_policy_quantile.util.files import write_json
from lerobot_policy_quantile.util.quantiles import Array

FORMAT = "qhead alarm 1"


@dataclass(frozen=True)
class AlarmBand:
    """Where the signals of successful episodes are over time; after the last bin it goes on as there."""

    stride: int
    """Control steps per bin."""
    center: Float[Array, "t s"]
    scale: Float[Array, "t s"]

    def excess(self, step: int, values: Float[Array, " s"]) -> float:
        """The largest standardised distance above the centre; -inf where there is no signal."""
        row = min(step // self.stride, len(self.center) - 1)
        distance = (values - self.center[row]) / self.scale[row]
        return float(np.nanmax(distance)) if np.isfinite(distance).any() else -math.inf


@dataclass(frozen=True)
class Alarm:
    """A fitted alarm."""

    policy: str
    """Fingerprint of the policy whose episodes it was fitted on."""
    scene: str
    decoder: str
    signals: tuple[str, ...]
    alpha: float
    threshold: float
    band: AlarmBand
    units: SignalUnits
    episodes: tuple[int, int]
    """Successful episodes behind the band, and behind the threshold."""

    def require_policy(self, fingerprint: str | None) -> None:
        """Refuse a policy that the alarm was not fitted for."""
        if fingerprint != self.policy:
            raise ValueError(
                f"alarm must be fitted for this policy, whose fingerprint is {fingerprint}; it was fitted for"
                f" {self.policy}: run qhead eval with this policy, then qhead alarm fit RUN"
            )

    def write(self, path: Path) -> None:
        """As a small JSON file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"format": FORMAT, **_plain(asdict(self))})

    @classmethod
    def read(cls, path: Path) -> "Alarm":
        """The alarm in a file."""
        try:
            facts = json.loads(path.read_bytes())
            if facts.pop("format") != FORMAT:
                raise KeyError("format")
            band, units = facts.pop("band"), facts.pop("units")
            plain: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in facts.items()}
            return cls(
                **plain,
                band=AlarmBand(band["stride"], _floats(band["center"]), _floats(band["scale"])),
                units=SignalUnits(tuple(units["levels"]), tuple(units["motion"]), _floats(units["reference"])),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"alarm must be a file that qhead alarm fit wrote; got {path} ({type(error).__name__}: {error})"
            ) from None


@dataclass(frozen=True)
class AlarmReading:
    """What an alarm says at one replan."""

    step: int
    score: float
    on: bool
    first: int | None
    """Control step at which it went on for the first time; None while it has not."""
    signals: dict[str, float]

    def record(self) -> dict[str, Any]:
        """For an answer or a file: None where a signal or a score has no number."""
        found = {"on": self.on, "step": self.step, "first": self.first, "score": _number(self.score)}
        return found | {"signals": {name: _number(value) for name, value in self.signals.items()}}


class AlarmMonitor:
    """Follows one episode."""

    def __init__(self, alarm: Alarm) -> None:
        self._alarm = alarm
        self._before: Float[Array, "h d k"] | None = None
        self._step = 0
        self.first: int | None = None

    def observe(self, step: int, quantiles: Float[Array, "h d k"]) -> AlarmReading:
        """The reading of a replan after `step` control steps of the episode."""
        if np.asarray(quantiles).shape[0] != len(self._alarm.units.reference):
            raise ValueError(
                f"quantiles must have chunks of {len(self._alarm.units.reference)} steps, as the alarm was fitted for;"
                f" got {np.asarray(quantiles).shape[0]}"
            )
        values = self._alarm.units.signals(quantiles, self._before, step - self._step)
        score = self._alarm.band.excess(step, np.array([values[name] for name in self._alarm.signals]))
        self._before, self._step = quantiles, step
        on = score > self._alarm.threshold
        if on and self.first is None:
            self.first = step
        return AlarmReading(step, score, on, self.first, values)


def parse_signals(text: str | None) -> tuple[str, ...]:
    """Names separated by commas; all without any."""
    if text is None:
        return SIGNALS
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if unknown := [name for name in names if name not in SIGNALS]:
        raise ValueError(f"--signals must be among {', '.join(SIGNALS)}; got {unknown[0]!r}")
    return names


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _floats(rows: Any) -> Float[Array, "..."]:
    return np.array(rows, dtype=float)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value
