"""A page that needs no other file: headings, words, tables and figures; for phone and print, light and dark."""

from collections.abc import Iterable, Sequence
from html import escape

from lerobot_policy_quantile.drawing.figure import Figure
from lerobot_policy_quantile.drawing.palette import style_sheet
from lerobot_policy_quantile.util.tables import Cells

_STYLE = """
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);overflow-wrap:break-word;
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1180px;margin:0 auto;padding:24px 18px 56px}
h1{font-size:clamp(1.5rem,4vw,2.2rem);line-height:1.2;margin:.4em 0}
h2{font-size:1.4rem;margin:2.2rem 0 .5rem;padding-top:.9rem;border-top:1px solid var(--grid)}
h3{font-size:1.1rem;margin:0 0 4px}
p,ul{max-width:76ch}
figure{margin:14px 0 26px}
figcaption{color:var(--muted);font-size:.92rem;line-height:1.45;max-width:90ch;margin-top:8px}
.legend{display:flex;flex-wrap:wrap;gap:2px 18px;font-size:.92rem;margin:2px 0 8px}
.legend span{display:inline-flex;align-items:center;gap:5px}
.key{width:24px;height:17px;flex:none}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,280px),1fr));gap:18px 20px}
.panels>svg{display:block;width:100%;height:auto}
.scroll{overflow-x:auto;border:1px solid var(--grid);border-radius:10px;margin:12px 0}
table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}
th,td{padding:7px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid)}
th:first-child,td:first-child{text-align:left}
thead th{background:var(--card)}
tr:last-child td{border-bottom:0}
@media print{.scroll{overflow:visible;border:0}th,td{white-space:normal;padding:3px 6px}
figure,tr,.panels>svg{break-inside:avoid}}
"""


def page(title: str, lead: str, parts: Iterable[str]) -> str:
    """The whole page; no script, and a policy that forbids to load anything."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:;'
        " style-src 'unsafe-inline'\">\n"
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n<style>{style_sheet()}{_STYLE}</style>\n'
        f"</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n<p>{escape(lead)}</p>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def heading(words: str) -> str:
    """Of a section."""
    return f"<h2>{escape(words)}</h2>"


def paragraph(words: str) -> str:
    """Plain words."""
    return f"<p>{escape(words)}</p>"


def bullets(lines: Iterable[str]) -> str:
    """A list; nothing where there is no line."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def table(label: str, lines: Sequence[Cells]) -> str:
    """A table whose first line is its header; it scrolls where the window is narrow."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in lines[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines[1:])
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}"><table><thead><tr>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table></div>"
    )


def drawn(figure: Figure) -> str:
    """A figure with title, legend and caption."""
    legend = "".join(f"<span>{entry.svg}{escape(entry.label)}</span>" for entry in figure.legend)
    panels = "\n".join(panel.svg() for panel in figure.panels)
    return (
        f'<figure id="{escape(figure.name)}"><h3>{escape(figure.title)}</h3><div class="legend">{legend}</div>'
        f'<div class="panels">{panels}</div><figcaption>{escape(figure.caption)}</figcaption></figure>'
    )
