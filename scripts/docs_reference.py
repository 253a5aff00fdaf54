"""MkDocs hook: the pages of the site that are made from the code, and the navigation of whole folders.

`reference/cli.md` lists every command with its options as Typer knows them, `reference/configuration.md` every field of
`QuantileConfig` with the explanation beside it in the source. Neither is a file in the repository: neither goes stale.
"""

import ast
import dataclasses
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.main import get_command

EXAMPLES = "Examples:\n"
"""Begins the paragraph of a help text that holds commands, one per line."""
TABLE_CODE = re.compile(r"`[^`\n]*\\\|[^`\n]*`")
DOCS_PATH = re.compile(r"\bdocs/([\w/]+\.md)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """A navigation entry that ends in a slash stands for all pages of that folder, index.md first."""
    config.nav = _with_folders(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, make in {"reference/cli.md": cli_page, "reference/configuration.md": configuration_page}.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """GitHub wants a bar inside a table's code escaped; here it would show its backslash."""
    return TABLE_CODE.sub(lambda code: code[0].replace("\\|", "|"), markdown)


def _with_folders(nav: Any, docs: Path) -> Any:
    if isinstance(nav, list):
        return [_with_folders(entry, docs) for entry in nav]
    if isinstance(nav, dict):
        return {title: _with_folders(entry, docs) for title, entry in nav.items()}
    if not nav.endswith("/"):
        return nav
    pages = [path.relative_to(docs).as_posix() for path in (docs / nav).rglob("*.md")]
    return sorted(pages, key=lambda page: (page != f"{nav}index.md", page))


# --- commands ---


def cli_page() -> str:
    """Every command of `qhead`: what it does, its arguments and options."""
    from lerobot_policy_quantile.cli.main import app

    parts = [
        "# Commands",
        "With this page you can look up every command of `qhead` with all its options and their defaults."
        " `qhead COMMAND --help` prints the same.",
    ]
    for name, command in commands(get_command(app)):
        parts += _command_section(f"qhead {name}", command)
    return "\n\n".join(parts) + "\n"


def commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Name and command of everything that can be called, in the order of `--help`."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _command_section(name: str, command: Any) -> Iterator[str]:
    yield f"## {name}"
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    words = [_argument_usage(p) for p in arguments]
    words += [f"{p.opts[0]} {_placeholder(p)}" for p in options if p.required]
    words += ["[OPTIONS]"] if any(not p.required for p in options) else []
    yield _block(" ".join([name, *words]))
    for paragraph in inspect.cleandoc(command.help).replace("\\[", "[").split("\n\n"):
        if paragraph.startswith(EXAMPLES):
            yield _block(inspect.cleandoc(paragraph.removeprefix(EXAMPLES)))
        else:
            yield _linked(paragraph)
    if arguments:
        yield _table(("argument", "default", "meaning"), [(_code(p.name.upper()), *_common(p)) for p in arguments])
    if options:
        rows = [(" / ".join(_code(o) for o in (*p.opts, *p.secondary_opts)), *_common(p)) for p in options]
        yield _table(("option", "default", "meaning"), rows)


def _argument_usage(parameter: Any) -> str:
    name = parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _placeholder(parameter: Any) -> str:
    return str(parameter.opts[0]).removeprefix("--").replace("-", "_").upper()


def _common(parameter: Any) -> tuple[str, str]:
    return _default(parameter), _linked(_cell(parameter.help.replace("\\[", "[")))


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if isinstance(value, bool):
        return _code(parameter.opts[0] if value else parameter.secondary_opts[0]) if parameter.secondary_opts else "off"
    if isinstance(value, list | tuple):
        return ", ".join(_code(str(item)) for item in value)
    return "" if value is None else _code(str(value))


# --- configuration ---


def configuration_page() -> str:
    """Every field of the policy's configuration: type, default, meaning; then what LeRobot's base class adds."""
    from lerobot_policy_quantile.configuration_quantile import QuantileConfig

    own = field_notes(QuantileConfig)
    parts = [
        "# Configuration",
        "With this page you can look up every field of the policy: its type, its default and what it does. A field is"
        " `--policy.FIELD=VALUE` on the command line of `lerobot-train` and `lerobot-eval`, an argument of"
        " `QuantileConfig` in Python, an entry of `config.json` in a checkpoint. Wrong values are reported together,"
        " each with the field, the value and the fix.",
    ]
    fields = {field.name: field for field in dataclasses.fields(QuantileConfig)}
    for title in dict.fromkeys(section for section, _ in own.values()):
        notes = {name: note for name, (section, note) in own.items() if section == title}
        rows = [(*_field_cells(fields[name]), _cell(note)) for name, note in notes.items()]
        parts += [f"## {title}", _table(("field", "type", "default", "meaning"), rows)]
    inherited = [_field_cells(field) for name, field in fields.items() if name not in own]
    parts += [
        "## From LeRobot",
        "Fields of LeRobot's `PreTrainedConfig`, which every policy has.",
        _table(("field", "type", "default"), inherited),
    ]
    return "\n\n".join(parts) + "\n"


def field_notes(config: type) -> dict[str, tuple[str, str]]:
    """Field -> (section, explanation), from the source: `# Section` above fields, `# explanation` behind each."""
    source = inspect.getsource(config).splitlines()
    (node,) = ast.parse("\n".join(source)).body
    assert isinstance(node, ast.ClassDef)
    notes: dict[str, tuple[str, str]] = {}
    for field in (child for child in node.body if isinstance(child, ast.AnnAssign)):
        assert isinstance(field.target, ast.Name)
        above = [line.strip() for line in source[: field.lineno - 1] if re.match(r"    # \w", line)]
        code, _, note = source[field.lineno - 1].partition("  # ")
        if not note or not above:
            raise ValueError(f"{config.__name__}.{field.target.id} must have a comment behind it; got {code.strip()!r}")
        notes[field.target.id] = above[-1].removeprefix("# "), note
    return notes


def _field_cells(field: "dataclasses.Field[Any]") -> tuple[str, str, str]:
    """Name, type and default; values are spelled as on the command line."""
    kind = field.type.__name__ if isinstance(field.type, type) else re.sub(r"(\w+\.)+", "", str(field.type))
    made = field.default_factory is not dataclasses.MISSING
    value = field.default_factory() if made else field.default  # type: ignore[misc]
    if isinstance(value, dict):
        text = ", ".join(f"{key}: {getattr(item, 'value', item)}" for key, item in value.items()) or "{}"
    else:
        text = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    return _code(field.name), _code(kind), _code(text)


# --- Markdown ---


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _block(text: str) -> str:
    return f"```sh\n{text}\n```"


def _linked(text: str) -> str:
    """Paths of documentation pages as links, which the strict build then checks."""
    return DOCS_PATH.sub(lambda found: f"[{found[0]}](../{found[1]})", text)
