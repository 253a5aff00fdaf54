"""Colours and names: one per head, route and outcome, on light and on dark ground.

Figures carry colour names (`var(--quantile)`); the page gives them values for both schemes, a figure of its own the
light ones. Outcomes differ in shape too, heads are labelled where they stand: no colour is alone in saying something.
"""

import re

PALETTE: dict[str, tuple[str, str]] = {
    # name: on light ground, on dark ground
    "quantile": ("#6A4FA3", "#B09BF0"),
    "flow": ("#0B7980", "#4CC3C8"),
    "l1": ("#966000", "#E3AE4B"),
    "l2": ("#B23A55", "#F58A9D"),
    "left": ("#0072B2", "#5DB6F0"),
    "right": ("#BC4D00", "#FF9650"),
    "success": ("#1C8043", "#67CE86"),
    "failure": ("#C2187A", "#FF7FC4"),
    "ink": ("#1B2430", "#E8EBF0"),
    "muted": ("#5A6472", "#A3ADBB"),
    "grid": ("#E2E6EB", "#343D4A"),
    "ground": ("#FFFFFF", "#161B22"),
    "card": ("#F6F7F9", "#1E252F"),
}

HEADS = {"quantile": "Quantile head", "l1": "L1", "l2": "L2", "flow": "Flow matching"}

DIMENSIONS = ("dx", "dy", "dz", "rotation x", "rotation y", "rotation z", "gripper")

_NAMES: dict[str, tuple[str, dict[str, float]]] = {
    # preset: name, parameters that go without saying
    "median": ("median", {}),
    "native": ("native ranks", {"l": 0.1, "rho": 0.9, "T": 0.35}),
    "independent": ("independent ranks", {"l": 0, "rho": 0.9}),
    "shared": ("shared rank", {"l": 0, "rho": 0.9}),
    "density": ("density-weighted", {"rho": 0.9, "n": 2}),
    "density_all": ("density, all seven", {"rho": 0.9, "n": 1}),
    "densest": ("densest interval", {}),
    "choice": ("choice (ours)", {"w": 0.2, "n": 2}),
    "tracking": ("tracking (ours)", {"w": 0.2, "n": 2}),
    "copula": ("copula (ours)", {"rho": 0.9}),
}
DETERMINISTIC = ("median", "densest")
"""Decoders that give the same actions for the same observation."""


def colour(name: str) -> str:
    """How a figure spells a colour; the ink's for names without one of their own."""
    return f"var(--{name})" if name in PALETTE else "var(--ink)"


def with_light_colours(svg: str) -> str:
    """The same figure with values in place of names, for programs that know no style sheet."""
    return re.sub(r"var\(--([a-z0-9]+)\)", lambda match: PALETTE[match[1]][0], svg)


def style_sheet() -> str:
    """The colours of both schemes as CSS."""
    light, dark = ("".join(f"--{name}:{pair[i]};" for name, pair in PALETTE.items()) for i in (0, 1))
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
        f"@media print{{:root{{{light}}}}}"
    )


def decoder_name(head: str, decoder: str) -> str:
    """What a reader calls a decoder: `shared rank in [0.2, 0.8]`, or the head's name where it has none."""
    if decoder == "own":
        return HEADS.get(head, head)
    preset = decoder.partition("(")[0]
    name, usual = _NAMES.get(preset, (preset.replace("_", " "), {}))
    values = {key: float(value) for key, value in re.findall(r"(\w+)=([-+\d.e]+)", decoder)}
    unusual = {key: value for key, value in values.items() if usual.get(key) != value}
    if preset == "shared" and "l" in unusual:
        low = unusual.pop("l")
        name = f"{name} in [{low:g}, {1 - low:g}]"
    return ", ".join([name, *(f"{key}={value:g}" for key, value in unusual.items())])


def is_deterministic(head: str, decoder: str) -> bool:
    """Whether repeats of an episode cannot differ: regression heads, the median, the densest interval."""
    return head in ("l1", "l2") if decoder == "own" else decoder in DETERMINISTIC
