"""What several commands share: option types, which options were given, help texts, and the access token of a server."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

TOKEN_VARIABLE = "QHEAD_TOKEN"

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
DeviceOption = Annotated[
    str | None,
    typer.Option(help="Device that runs the policy: cuda, cuda:N, mps or cpu. Default: a GPU if there is one."),
]
SceneHelp = "embedded, libero_object, libero_10, ...; append +obstacle to add the obstacle."
CameraSizeOption = Annotated[int, typer.Option(min=1, help="Width and height of the camera images, in pixels.")]
WordingOption = Annotated[
    str,
    typer.Option(
        help="Instructions of LIBERO tasks: task.language, as in public datasets and checkpoints, or bddl, as in the"
        " task files; the shipped base checkpoint was trained on bddl."
    ),
]
SourcesOption = Annotated[
    list[Path],
    typer.Option("--from", help="A clone of the repository, or a folder downloaded from its hub dataset. Repeatable."),
]
DataFolderOption = Annotated[
    Path | None,
    typer.Option(help="Data folder to write to. Default: $QHEAD_LIBERO_DATA, else ~/.cache/qhead/libero-data."),
]
AssetsOption = Annotated[
    bool, typer.Option(help="Also add the meshes and textures to OUT/assets, as hard links where possible.")
]


def help_text(*paragraphs: str, examples: tuple[str, ...] = (), exit_codes: str = "") -> str:
    """Help of a command: what it does, examples, exit codes. A paragraph is one line, which the terminal wraps."""
    parts = list(paragraphs)
    if examples:
        parts.append("\n".join(["Examples:", *(f"  {example}" for example in examples)]))
    if exit_codes:
        parts.append(f"Exit codes: {exit_codes}.")
    return escape("\n\n".join(parts))


def given_options(context: typer.Context, *names: str) -> list[str]:
    """Those of the named options that the user set, spelled as on the command line."""
    sources = {name: context.get_parameter_source(name) for name in names}
    return [f"--{name}" for name, source in sources.items() if source is not None and source.name != "DEFAULT"]


def read_token(file: Path | None = None) -> str | None:
    """The access token in a file, or else in the environment variable QHEAD_TOKEN; None if neither is set."""
    text = os.environ.get(TOKEN_VARIABLE, "") if file is None else file.read_text()
    return text.strip() or None


def read_tokens(file: Path | None = None) -> tuple[str, ...]:
    """The server's access tokens: every line of a file that is not empty, or else the one in QHEAD_TOKEN."""
    return tuple(line.strip() for line in (read_token(file) or "").splitlines() if line.strip())
