"""What a page is made of besides words: figures of small panels, and pictures."""

from base64 import b64encode
from dataclasses import dataclass, field

from lerobot_policy_quantile.drawing.marks import mark, text
from lerobot_policy_quantile.drawing.palette import with_light_colours
from lerobot_policy_quantile.drawing.svg import Panel, sheet


@dataclass(frozen=True)
class LegendEntry:
    """One line of a legend."""

    shape: str
    colour: str
    label: str

    @property
    def svg(self) -> str:
        """Its mark, for a page."""
        return (
            f'<svg viewBox="0 0 20 14" class="key" aria-hidden="true">{mark(10, 7, self.colour, self.shape, 4)}</svg>'
        )


@dataclass(frozen=True)
class Figure:
    """Panels with one caption and one legend."""

    name: str
    """In file names and addresses."""
    title: str
    caption: str
    panels: list[Panel]
    columns: int = 3
    """How many panels stand side by side in a file of its own; a page decides by its width."""
    legend: list[LegendEntry] = field(default_factory=list)

    def svg_file(self) -> str:
        """All of it as one SVG file."""
        return with_light_colours(sheet(self.panels, min(self.columns, len(self.panels)), self._legend()))

    def _legend(self) -> str:
        parts, x = [], 10.0
        for entry in self.legend:
            parts.append(mark(x, 6, entry.colour, entry.shape, 4))
            parts.append(text(x + 13, 10, entry.label, "ink", "label"))
            x += 40 + 6.2 * len(entry.label)
        return "".join(parts)


@dataclass(frozen=True)
class Picture:
    """A photograph or a film, with its bytes."""

    name: str
    kind: str  # image/jpeg, video/mp4
    content: bytes
    alt: str

    @property
    def address(self) -> str:
        """Its bytes as an address, so that a page needs no other file."""
        return f"data:{self.kind};base64,{b64encode(self.content).decode()}"

    @property
    def file_name(self) -> str:
        """Its name beside a page."""
        return f"{self.name}.{ {'image/jpeg': 'jpg', 'video/mp4': 'mp4'}[self.kind] }"
