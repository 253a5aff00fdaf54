"""The site: it builds without a warning, loads nothing from elsewhere, and every page opens with its use."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.configuration_quantile import CHOICES, QuantileConfig
from scripts.docs_reference import cli_page, commands, configuration_page, field_notes, on_page_markdown
from tests.support.pages import DOCS, ROOT

GENERATED = {"reference/cli.md": cli_page, "reference/configuration.md": configuration_page}
LANDING = DOCS / "index.md"
PAGES = sorted(page for page in DOCS.rglob("*.md") if page != LANDING)
OPENING = re.compile(r"# .+\n\n(?:After|With) this page you can ")


def test_every_page_opens_with_what_the_reader_can_do_after_it():
    texts = {str(page.relative_to(DOCS)): page.read_text() for page in PAGES}
    texts |= {name: make() for name, make in GENERATED.items()}
    assert len(texts) > 20
    assert [name for name, text in texts.items() if not OPENING.match(text)] == []


def test_lists_and_tables_stand_after_an_empty_line():
    """Python-Markdown takes them for text otherwise, where GitHub does not."""
    wrong = [f"{page.relative_to(DOCS)}: {line}" for page in PAGES for line in glued(page.read_text())]
    assert wrong == []
    assert glued("Two things:\n- one\n- two") == ["Two things:"]


def glued(text: str) -> list[str]:
    """First lines of paragraphs of prose that go on as a list or a table."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    prose = [part for part in re.split(r"\n\s*\n", text.strip()) if not re.match(r"\s*(- |\d+\. |\|)", part)]
    return [part.splitlines()[0] for part in prose if re.search(r"^(- |\d+\. |\|)", part, flags=re.MULTILINE)]


def test_the_command_reference_lists_every_command_and_option():
    page = cli_page()
    sections = dict(re.findall(r"^## qhead ([\w -]+)\n(.*?)(?=^## |\Z)", page, flags=re.DOTALL | re.MULTILINE))
    known = dict(commands(get_command(app)))
    assert {"eval", "serve", "study two-demo", "study run", "data plus"} <= known.keys()
    assert sections.keys() == known.keys()
    for name, command in known.items():
        missing = [p.name for p in command.params if p.param_type_name == "option" and p.opts[0] not in sections[name]]
        assert missing == []


def test_the_configuration_reference_lists_every_field_and_every_choice():
    page = configuration_page()
    assert [name for name in QuantileConfig.__dataclass_fields__ if f"\n| `{name}` |" not in page] == []
    notes = field_notes(QuantileConfig)
    assert [
        (field, choice) for field, all_ in CHOICES.items() for choice in all_ if choice not in notes[field][1]
    ] == []


def test_escaped_bars_inside_code_lose_their_backslash_and_others_keep_it():
    assert on_page_markdown(r"| `str \| None` | one \| two | `x` |") == r"| `str | None` | one \| two | `x` |"


def test_a_field_without_an_explanation_is_noticed():
    with pytest.raises(ValueError, match=r"Bare\.size must have a comment behind it; got 'size: int = 3'"):
        field_notes(Bare)


class Bare:
    # Section
    size: int = 3


# --- the built site ---


def build(folder: Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", folder]
    variables = {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_strictly_and_holds_every_page(site):
    for page in [*PAGES, LANDING]:
        made = page.with_name("index.md" if page.name == "README.md" else page.name).with_suffix(".html")
        assert (site / made.relative_to(DOCS)).is_file()
    assert all((site / name).with_suffix(".html").is_file() for name in GENERATED)


class Loaded(HTMLParser):
    """Addresses that a browser fetches to show a page; links that a reader follows are not among them."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if (name in ("src", "srcset", "poster", "data") or (tag == "link" and name == "href")) and value:
                self.addresses.append(value)
            if name == "style" and value:
                self.addresses += re.findall(r"url\(([^)]+)\)", value)


def loaded(html: str) -> list[str]:
    parser = Loaded()
    parser.feed(html)
    return [address for address in parser.addresses if re.match(r"(https?:)?//", address)]


@pytest.mark.slow
def test_no_page_loads_anything_from_another_host(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    assert {page.name: loaded(page.read_text()) for page in pages if loaded(page.read_text())} == {}
    sheets = [file for file in site.rglob("*.css") if re.search(r"url\([\"']?(https?:)?//|@import", file.read_text())]
    assert sheets == []


def test_what_is_loaded_from_another_host_is_noticed():
    assert loaded('<script src="//unpkg.com/x.js"></script><a href="https://github.com">') == ["//unpkg.com/x.js"]
    assert loaded('<link rel="stylesheet" href="https://fonts.googleapis.com/css">')


def test_the_theme_asks_no_other_host_for_fonts_or_numbers():
    """With a repo_url the theme asks GitHub's API for stars, with Mermaid blocks unpkg for a script."""
    config = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=yaml.BaseLoader)
    assert config["theme"]["font"] == "false"
    assert "repo_url" not in config
    assert "extra_javascript" not in config
    assert [page.name for page in PAGES if "```mermaid" in page.read_text()] == []


@pytest.mark.slow
@pytest.mark.parametrize("text", ["[gone](nowhere.md)", "[gone](guides/training.md#nowhere)", "[gone](../LICENCE)"])
def test_a_broken_link_stops_the_build(tmp_path, text):
    docs = tmp_path / "docs"
    (docs / "guides").mkdir(parents=True)
    (docs / "index.md").write_text(f"# Start\n\n{text}\n")
    (docs / "guides" / "training.md").write_text("# Training\n\nText.\n")
    config = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=yaml.BaseLoader)
    small = {name: config[name] for name in ("site_name", "validation")} | {"docs_dir": str(docs), "plugins": []}
    (tmp_path / "mkdocs.yml").write_text(yaml.dump(small))
    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode == 1
    assert done.stderr.count("WARNING") == 1
