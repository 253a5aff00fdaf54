"""Draws docs/explanation/architecture.svg: packages in layers, from the import contract and package docstrings."""

import ast
import textwrap
import tomllib
from html import escape
from pathlib import Path

from lerobot_policy_quantile.drawing.palette import PALETTE

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "lerobot_policy_quantile"
PICTURE = ROOT / "docs" / "explanation" / "architecture.svg"
WIDTH, MARGIN, GAP, LINE = 920, 14, 12, 15
CHARACTER = 6.0
"""Mean width of a letter of the small text, in pixels."""


def layers() -> list[list[str]]:
    """Names of the top-level modules, layer by layer, as pyproject.toml has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rows = [row.replace(":", "|").split("|") for row in contracts[0]["layers"]]
    return [[name.strip().removeprefix("lerobot_policy_quantile.") for name in row] for row in rows]


def purpose(name: str) -> str:
    """The first line of a module's docstring."""
    folder = PACKAGE / name
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0].replace("`", "")


def picture() -> str:
    """The whole SVG."""
    ink, muted, grid, ground, card = (PALETTE[name][0] for name in ("ink", "muted", "grid", "ground", "card"))
    parts, y = [], MARGIN
    for row in layers():
        width = (WIDTH - 2 * MARGIN - GAP * (len(row) - 1)) / len(row)
        texts = [textwrap.wrap(purpose(name), int((width - 20) / CHARACTER)) for name in row]
        height = 34 + LINE * max(map(len, texts))
        for place, (name, lines) in enumerate(zip(row, texts, strict=True)):
            x = MARGIN + place * (width + GAP)
            title = f"{name}/" if (PACKAGE / name).is_dir() else f"{name}.py"
            box = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" rx="6"'
            parts.append(f'<rect {box} fill="{card}" stroke="{grid}"/>')
            parts.append(f'<text x="{x + 10:.1f}" y="{y + 20}" font-weight="600" fill="{ink}">{escape(title)}</text>')
            parts += [
                f'<text x="{x + 10:.1f}" y="{y + 38 + LINE * n}" font-size="11" fill="{muted}">{escape(line)}</text>'
                for n, line in enumerate(lines)
            ]
        y += height + GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="13"'
        ' role="img" aria-label="Packages in layers; each imports only from layers below it">'
    )
    return "\n".join([head, f'<rect width="{WIDTH}" height="{y}" fill="{ground}"/>', *parts, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture())
