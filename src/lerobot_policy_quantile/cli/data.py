"""`qhead data plus` and `qhead data pro`: perturbed benchmarks from their public repositories."""

from collections.abc import Callable

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import AssetsOption, DataFolderOption, SourcesOption, help_text

_EXIT_CODES = "0 the data were written; 1 a source is incomplete or the data exist already"

HELP = {
    "plus": help_text(
        "Convert LIBERO-Plus from its public repository into the data folder.",
        "Changed lights and backgrounds also need the assets: unzip assets.zip of the hub dataset Sylvest/LIBERO-plus"
        " into LIBERO-plus/libero/libero first, or pass the unzipped folder with another --from. No code of the"
        " repository is run.",
        examples=(
            "git clone https://github.com/sylvestf/LIBERO-plus",
            "qhead data plus --from LIBERO-plus",
            "qhead eval --suite libero_plus --dry-run",
        ),
        exit_codes=_EXIT_CODES,
    ),
    "pro": help_text(
        "Convert LIBERO-Pro from its public repository and hub dataset into the data folder.",
        "If the dataset was moved into the clone, as its README describes, one --from is enough. No code of the"
        " repository is run.",
        examples=(
            "git clone https://github.com/Zxy-MLlab/LIBERO-PRO",
            "hf download --repo-type dataset zhouxueyang/LIBERO-Pro --local-dir HUB",
            "qhead data pro --from LIBERO-PRO --from HUB",
            "qhead eval --suite libero_pro --dry-run",
        ),
        exit_codes=_EXIT_CODES,
    ),
}


def converter(benchmark: str) -> Callable[..., None]:
    """The command that converts a benchmark; its `HELP` is what the user reads."""

    def convert(sources: SourcesOption, out: DataFolderOption = None, assets: AssetsOption = True) -> None:
        from lerobot_policy_quantile.scenes.libero.upstream import convert as upstream

        with exit_on(f"data {benchmark}", ValueError, OSError):
            for line in upstream.convert(benchmark, sources, out, assets=assets):
                typer.echo(line)

    return convert
