"""`qhead data`: LIBERO-Plus and LIBERO-Pro from their public repositories."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from lerobot_policy_quantile.util.extras import needs

if TYPE_CHECKING:
    from lerobot_policy_quantile.scenes.libero.upstream.sources import Converted

data = typer.Typer(no_args_is_help=True, help="Make the data folders of LIBERO-Plus and LIBERO-Pro.")

From = Annotated[
    list[Path],
    typer.Option(
        "--from", help="A checkout of the repository, or a folder downloaded from its hub dataset. Repeat for both."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Where the folder goes; QHEAD_LIBERO_DATA or ~/.cache/qhead/libero-data if left out."),
]
Assets = Annotated[
    bool, typer.Option(help="Add the sources' meshes and textures to OUT/assets (hard links where possible).")
]


@data.command()
@needs("sim")
def plus(sources: From, out: Out = None, assets: Assets = True) -> None:
    """Convert LIBERO-Plus: git clone https://github.com/sylvestf/LIBERO-plus, qhead data plus --from LIBERO-plus.

    Lights and backgrounds need its assets, too: unzip assets.zip of the hub dataset Sylvest/LIBERO-plus into
    LIBERO-plus/libero/libero first, or give the unzipped folder with another --from. Nothing of the repository is run.
    """
    from lerobot_policy_quantile.scenes.libero.upstream.plus import convert_plus

    _convert("plus", convert_plus, sources, out, assets=assets)


@data.command()
@needs("sim")
def pro(sources: From, out: Out = None, assets: Assets = True) -> None:
    """Convert LIBERO-Pro: git clone https://github.com/Zxy-MLlab/LIBERO-PRO, and its perturbed tasks from the hub.

    hf download --repo-type dataset zhouxueyang/LIBERO-Pro --local-dir HUB; qhead data pro --from LIBERO-PRO --from HUB.
    A checkout into which the dataset was moved, as its README says, needs no second --from. Nothing of it is run.
    """
    from lerobot_policy_quantile.scenes.libero.upstream.pro import convert_pro

    _convert("pro", convert_pro, sources, out, assets=assets)


def _convert(
    part: str,
    convert: Callable[[Sequence[Path], Path], "Converted"],
    sources: list[Path],
    out: Path | None,
    *,
    assets: bool,
) -> None:
    from lerobot_policy_quantile.scenes.libero.assets import VARIABLE, data_home
    from lerobot_policy_quantile.scenes.libero.upstream.sources import add_assets

    home = data_home() if out is None else out
    try:
        if missing := [str(source) for source in sources if not source.is_dir()]:
            raise ValueError(f"--from must be a folder; got {', '.join(missing)}")
        made = convert(sources, home / part)
        added = add_assets(sources, home / "assets") if assets else 0
    except (ValueError, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(f"qhead data {part}: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from None
    for what, count in made.counts.items():
        typer.echo(f"{count:6,} {what}")
    for note in made.notes:
        typer.echo(f"cannot be run: {note}")
    if added:
        typer.echo(f"{added:6,} files of assets added to {home / 'assets'}")
    typer.echo(f"{made.folder}, {made.digest}; sha256 of every file in source.json")
    if home != data_home():
        typer.echo(f"to use it: export {VARIABLE}={home.absolute()}")
    typer.echo(f"what can be run: qhead eval --suite libero_{part} --dry-run")
