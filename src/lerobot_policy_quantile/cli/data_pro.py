"""`qhead data pro`: LIBERO-Pro from its public repository."""

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import AssetsOption, DataFolderOption, SourcesOption, help_text

HELP = help_text(
    "Convert LIBERO-Pro from its public repository and hub dataset into the data folder.",
    "If the dataset was moved into the clone, as its README describes, one --from is enough. No code of the"
    " repository is run.",
    examples=(
        "git clone https://github.com/Zxy-MLlab/LIBERO-PRO",
        "hf download --repo-type dataset zhouxueyang/LIBERO-Pro --local-dir HUB",
        "qhead data pro --from LIBERO-PRO --from HUB",
        "qhead eval --suite libero_pro --dry-run",
    ),
    exit_codes="0 the data were written; 1 a source is incomplete or the data exist already",
)


def pro(sources: SourcesOption, out: DataFolderOption = None, assets: AssetsOption = True) -> None:
    """Convert LIBERO-Pro; `HELP` is what the user reads."""
    from lerobot_policy_quantile.scenes.libero.upstream.convert import convert

    with exit_on("data pro", ValueError, OSError):
        for line in convert("pro", sources, out, assets=assets):
            typer.echo(line)
