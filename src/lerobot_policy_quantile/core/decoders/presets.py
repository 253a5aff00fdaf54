"""Named decoders: every decoder of the paper, and ours, as settings of the one composition.

`parse_decoder("shared(l=0.2, rho=0.9)")` gives a decoder; `PRESETS` lists the names.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from lerobot_policy_quantile.core.decoders.choice import Tracked, WhereChoice
from lerobot_policy_quantile.core.decoders.composition import Decoder, PerChunk, PerStep
from lerobot_policy_quantile.core.decoders.copula import CopulaLatents
from lerobot_policy_quantile.core.decoders.rank_laws import DensestInterval, DensityWeighted, Fixed, Window
from lerobot_policy_quantile.util.names import nearest

WINDOW_TEMPERATURE = 0.35
STUDY_RHO = 0.9
OURS = "ours"
CHOICE_WIDTH = 0.2
"""A tenth of the normalised range [-1, 1]: wider than a trained model's doubt, narrower than two routes."""


def median() -> Decoder:
    """Every coordinate at its median; deterministic, the default policy."""
    return Decoder(Fixed(0.5))


def window(l: float = 0.2, rho: float = 0.0, T: float = WINDOW_TEMPERATURE) -> Decoder:
    """Ranks in [l, 1 - l], held over the chunk, AR(rho) between chunks (LIBERO-Long sampling)."""
    return Decoder(Window(l, T), PerChunk(rho))


def per_step(l: float = 0.2, T: float = WINDOW_TEMPERATURE) -> Decoder:
    """As window, with fresh ranks at every step."""
    return Decoder(Window(l, T), PerStep())


def gaussian(l: float = 0.2, rho: float = 0.0, T: float = WINDOW_TEMPERATURE) -> Decoder:
    """As window, read from the Gaussian surrogate with the same median and 10-90 % width."""
    return Decoder(Window(l, T), PerChunk(rho), marginal="gaussian")


def native(l: float = 0.1, rho: float = STUDY_RHO, T: float = WINDOW_TEMPERATURE) -> Decoder:
    """The two-demonstration study's native ranks 0.1 + 0.8 Phi(0.35 z_d)."""
    return Decoder(Window(l, T), PerChunk(rho))


def independent(l: float = 0.0, rho: float = STUDY_RHO) -> Decoder:
    """Uniform ranks Phi(z_d), one per coordinate."""
    return Decoder(Window(l), PerChunk(rho))


def shared(l: float = 0.0, rho: float = STUDY_RHO) -> Decoder:
    """One uniform rank l + (1 - 2 l) Phi(z_1) for all motion coordinates."""
    return Decoder(Window(l), PerChunk(rho), coupling="shared")


def density(rho: float = STUDY_RHO, n: float = 2.0) -> Decoder:
    """One shared rank, drawn in proportion to the mean motion density to the power n."""
    return Decoder(DensityWeighted(n, "motion"), PerChunk(rho), coupling="shared")


def density_all(rho: float = STUDY_RHO, n: float = 1.0) -> Decoder:
    """As density, linear, scored on all coordinates; the rank also drives the gripper."""
    return Decoder(DensityWeighted(n, "all"), PerChunk(rho), coupling="shared", gripper="rank")


def densest() -> Decoder:
    """The midpoint of the densest learned interval for all coordinates; deterministic diagnostic."""
    return Decoder(DensestInterval("all"), coupling="shared", gripper="rank")


def choice(w: float = CHOICE_WIDTH, n: float = 2.0) -> Decoder:
    """One latent per episode; its rank where the prediction is wider than w at some step, the median elsewhere."""
    return Decoder(WhereChoice(w, n), PerChunk(1.0), coupling="shared")


def tracking(w: float = CHOICE_WIDTH, n: float = 2.0) -> Decoder:
    """As choice, but at each replan the rank that best goes on as the executed actions went."""
    return Decoder(Tracked(w, n), PerChunk(1.0), coupling="shared")


def copula(rho: float = STUDY_RHO) -> Decoder:
    """Ranks drawn together over steps and coordinates, as a Gaussian copula fitted to training data has them."""
    return Decoder(Window(0.0), CopulaLatents(rho))


@dataclass(frozen=True)
class Preset:
    """A named, parametrised decoder and what of the method it is."""

    name: str
    build: Callable[..., Decoder]
    source: str
    """The section of the paper that it comes from, or `ours` for one beyond the paper."""

    @property
    def defaults(self) -> dict[str, float]:
        """Parameters that text may set, with their defaults."""
        return {name: p.default for name, p in inspect.signature(self.build).parameters.items()}

    @property
    def deterministic(self) -> bool:
        """Whether the same observation always gives the same actions."""
        return isinstance(self.build().law, Fixed | DensestInterval)

    @property
    def summary(self) -> str:
        """One line for listings."""
        return (inspect.getdoc(self.build) or "").splitlines()[0]

    def text(self, **parameters: float) -> str:
        """The canonical text of this preset with these parameters, as `parse_decoder` reads it."""
        values = self.defaults | parameters
        inside = ", ".join(f"{name}={repr(float(value)).removesuffix('.0')}" for name, value in values.items())
        return f"{self.name}({inside})" if inside else self.name


PRESETS: dict[str, Preset] = {
    build.__name__: Preset(build.__name__, build, source)
    for build, source in [
        (median, "App. B.3"),
        (window, "Sec. 4.4"),
        (per_step, "Sec. 4.4"),
        (gaussian, "Sec. 4.4"),
        (native, "App. B.3"),
        (independent, "App. B.3"),
        (shared, "App. B.3"),
        (density, "App. B.4"),
        (density_all, "App. B.4"),
        (densest, "App. B.4"),
        (choice, OURS),
        (tracking, OURS),
        (copula, OURS),
    ]
}

_TEXT = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*(?:\((?P<parameters>[^()]*)\))?(?:\s+inside\s+(?P<inside>\S+))?\s*")


def parse_decoder(text: str) -> Decoder:
    """The decoder named by text such as `median`, `shared(l=0.2, rho=0.9)` or `window(l=0.3) inside 0.9`."""
    preset, parameters, inside = _parse(text)
    return replace(preset.build(**parameters), inside=inside)


def canonical_text(text: str) -> str:
    """The same decoder's text with every parameter written out: one spelling per decoder."""
    preset, parameters, inside = _parse(text)
    return preset.text(**parameters) + ("" if inside is None else f" inside {inside:g}")


def _parse(text: str) -> tuple[Preset, dict[str, float], float | None]:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"decoder must read like 'median' or 'shared(l=0.2, rho=0.9)'; got {text!r}")
    name = match["name"]
    if name not in PRESETS:
        raise ValueError(f"decoder must be one of {', '.join(PRESETS)}; got {name!r}{nearest(name, PRESETS)}")
    preset = PRESETS[name]
    parameters: dict[str, float] = {}
    for part in filter(None, (p.strip() for p in (match["parameters"] or "").split(","))):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in preset.defaults:
            allowed = ", ".join(preset.defaults) or "none"
            raise ValueError(
                f"decoder {name} takes the parameters {allowed}; got {key!r}{nearest(key, preset.defaults)}"
            )
        if key in parameters:
            raise ValueError(f"decoder {name} takes each parameter once; got {key!r} twice in {text!r}")
        try:
            parameters[key] = float(value)
        except ValueError:
            raise ValueError(f"decoder {name}: {key} must be a number, as in {key}=0.2; got {part!r}") from None
    return preset, parameters, None if match["inside"] is None else _mass(match["inside"])


def _mass(text: str) -> float:
    try:
        mass = float(text)
    except ValueError:
        mass = -1.0
    if not 0 < mass < 1:
        raise ValueError(f"inside must be followed by the mass of bounds, as in median inside 0.9; got {text!r}")
    return mass
