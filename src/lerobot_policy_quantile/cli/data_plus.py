"""`qhead data plus`: LIBERO-Plus from its public repository."""

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import AssetsOption, DataFolderOption, SourcesOption, help_text

HELP = help_text(
    "Convert LIBERO-Plus from its public repository into the data folder.",
    "Changed lights and backgrounds also need the assets: unzip assets.zip of the hub dataset Sylvest/LIBERO-plus"
    " into LIBERO-plus/libero/libero first, or pass the unzipped folder with another --from. No code of the repository"
    " is run.",
    examples=(
        "git clone https://github.com/sylvestf/LIBERO-plus",
        "qhead data plus --from LIBERO-plus",
        "qhead eval --suite libero_plus --dry-run",
    ),
    exit_codes="0 the data were written; 1 a source is incomplete or the data exist already",
)


def plus(sources: SourcesOption, out: DataFolderOption = None, assets: AssetsOption = True) -> None:
    """Convert LIBERO-Plus; `HELP` is what the user reads."""
    from lerobot_policy_quantile.scenes.libero.upstream.convert import convert

    with exit_on("data plus", ValueError, OSError):
        for line in convert("plus", sources, out, assets=assets):
            typer.echo(line)
