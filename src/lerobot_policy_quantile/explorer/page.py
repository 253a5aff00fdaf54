"""The page: its parts as the server gives them out, or all of them in one file with the episodes inside.

Scripts are plain modules in `web/`. The single file holds them one after the other; a browser opens no module from a
file's address. Whatever comes out of a run is data: JSON whose `<` is escaped, or base64.
"""

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from lerobot_policy_quantile.drawing.palette import style_sheet
from lerobot_policy_quantile.explorer.packing import index_of, packed_episode, summary_of
from lerobot_policy_quantile.explorer.run_reading import ExploredRun

MODULES = (
    "numbers.js",
    "decoders.js",
    "condensed.js",
    "source.js",
    "table.js",
    "canvas.js",
    "charts.js",
    "compare.js",
    "main.js",
)
"""Each imports only from those before it."""
_WEB = files("lerobot_policy_quantile.explorer") / "web"
_IMPORT = re.compile(r"^import \{[^}]*\} from \"\./[a-z]+\.js\";\n", flags=re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class|let) )", flags=re.MULTILINE)
_STYLE_TEXT = re.compile(r"createElement\(\"style\"\);\w+\.id=\"[0-9a-f]+\",\w+\.textContent='((?:[^'\\]|\\.)*)'")
"""A style sheet that the library makes when it is loaded."""


def web_file(name: str) -> str:
    """A file of the page."""
    return (_WEB / name).read_text(encoding="utf-8")


def styles() -> str:
    """Colours of both schemes, then the page's own rules."""
    return style_sheet() + web_file("explorer.css")


@cache
def plotting_script() -> str:
    """The plotting library, as its wheel brings it along."""
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script


@cache
def _library_styles() -> str:
    """Hashes of the style sheets that the library makes: an empty one that gets rules by script, and its maps'."""
    texts = ["", *(text.replace("\\'", "'") for text in _STYLE_TEXT.findall(plotting_script()))]
    return " ".join(map(_hash, texts))


@cache
def served_policy_header() -> str:
    """The content security policy of the served page: nothing but this server, no inline script."""
    return _content_policy(scripts="'self'", styles=f"'self' {_library_styles()}", connect="'self'")


def served_page() -> str:
    """The page that loads its parts from the server."""
    head = '<link rel="stylesheet" href="/explorer.css">'
    scripts = '<script type="module" src="/main.js"></script>\n<script async src="/plotly.js"></script>'
    return _filled(head, scripts)


def flat_script() -> str:
    """All modules as one."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", web_file(name))) for name in MODULES)


def single_page(runs: Sequence[ExploredRun]) -> str:
    """Everything in one file: scripts, style, and all episodes of these runs."""
    data: dict[str, Any] = {"index": index_of(runs), "summaries": {}, "episodes": {}}
    for number, run in enumerate(runs):
        for row in run.rows:
            place = f"{number}/{row.key.digest}"
            data["summaries"][place] = summary_of(run, row)
            data["episodes"][place] = b64encode(zlib.compress(packed_episode(run, row, small=True))).decode()
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    # HTML's closing tag inside a script would end it; neither file has one, and a test says so.
    ours, theirs, style = flat_script(), plotting_script(), styles()
    policy = _content_policy(
        scripts=f"{_hash(ours)} {_hash(theirs)}", styles=f"{_hash(style)} {_library_styles()}", connect="'none'"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>'
    scripts = (
        f'<script type="application/json" id="data">{text}</script>\n'
        f'<script type="module">{ours}</script>\n<script>{theirs}</script>'
    )
    return _filled(head, scripts)


def _filled(head: str, scripts: str) -> str:
    before, between, after = re.split(r"<!--(?:HEAD|SCRIPTS)-->", web_file("index.html"))
    return f"{before}{head}{between}{scripts}{after}"


def _content_policy(*, scripts: str, styles: str, connect: str) -> str:
    """No other host, no plug-in, no frame, no form. The library sets `style` attributes, which run nothing."""
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; style-src-attr 'unsafe-inline';"
        f" img-src blob: data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
