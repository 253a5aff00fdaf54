"""Pages of results: figures as text, and the file."""

from collections.abc import Mapping, Sequence
from typing import Any

from lerobot_policy_quantile.drawing.figure import Figure
from lerobot_policy_quantile.studies.doubt.settings import DoubtStudy
from lerobot_policy_quantile.util.files import write_text

MISSING = "-"


def write_page(study: DoubtStudy, name: str, title: str, opening: str, figure: Figure, parts: Sequence[str]) -> None:
    """`NAME.md`: title, what it shows, the command that made it, the figure, then the parts."""
    study.pages.mkdir(parents=True, exist_ok=True)
    drawn = study.pages / f"{figure.name}.svg"
    write_text(drawn, figure.svg_file())
    command, picture = f"```sh\nmake {name}-study\n```", f"![{figure.caption}]({drawn.name})\n\n*{figure.caption}*"
    text = "\n\n".join([f"# {title}", opening, command, picture, *(part.strip() for part in parts)])
    path = study.pages / f"{name}.md"
    write_text(path, text + "\n")
    study.notes.print(f"wrote {path}", markup=False)


def share(estimate: Mapping[str, Any]) -> str:
    """A share in per cent with its interval."""
    if estimate["value"] is None:
        return MISSING
    ends = "" if estimate["low"] is None else f" ({100 * estimate['low']:.1f} to {100 * estimate['high']:.1f})"
    return f"{100 * estimate['value']:.1f} %{ends}"


def rate(counted: Mapping[str, Any]) -> str:
    """Hits of so many, and their share."""
    return MISSING if counted["value"] is None else f"{counted['hits']} of {counted['of']}, {share(counted)}"


def figure(estimate: Mapping[str, Any], digits: int = 2, sign: str = "") -> str:
    """A number with its interval."""
    if estimate["value"] is None:
        return MISSING
    value, low, high = (estimate[name] for name in ("value", "low", "high"))
    shape = f"{{:{sign}.{digits}f}}"
    ends = "" if low is None else f" ({shape.format(low)} to {shape.format(high)})"
    return shape.format(value) + ends
