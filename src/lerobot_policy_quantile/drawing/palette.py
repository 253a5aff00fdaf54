"""Colours: one per head, route and outcome, on light and on dark ground.

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
