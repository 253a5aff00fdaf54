"""`qhead explore`: look at the episodes of runs."""

from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import help_text

HELP = help_text(
    "Open a page with the episodes of runs: video, predicted distributions, what other decoders would have done.",
    "Reads journals and side files, of finished and of growing runs; nothing is run and nothing is written into a"
    " run's folder. The page is served on loopback until Ctrl-C, or written as one file with --out.",
    "Density-weighted and tracking ranks depend on the policy's normalised units; --policy gives them.",
    examples=(
        "qhead explore runs/a",
        "qhead explore runs/a runs/b --policy ours=FOLDER",
        "qhead explore runs/a --out page.html --most 20",
    ),
    exit_codes="0 the page was written, or served until Ctrl-C; 1 a run cannot be found or the port is taken",
)
PORT = 8010


def explore(
    runs: Annotated[list[Path], typer.Argument(help="Folders written by `qhead eval --out`, or journal files.")],
    out: Annotated[Path | None, typer.Option(help="Write the page with its episodes into this file.")] = None,
    episode: Annotated[
        list[str],
        typer.Option(
            help="With --out: key of an episode, or the name of its side files without their ending. Repeatable."
        ),
    ] = [],  # noqa: B006
    most: Annotated[int, typer.Option(min=1, help="With --out: episodes to put into the file.")] = 20,
    policy: Annotated[
        list[str], typer.Option(help="NAME=FOLDER: where a policy of the runs is, for its units. Repeatable.")
    ] = [],  # noqa: B006
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0 takes a free one.")] = PORT,
) -> None:
    """Serve or write the page; `HELP` is what the user reads."""
    from lerobot_policy_quantile.explorer.page import single_page
    from lerobot_policy_quantile.explorer.run_reading import few_episodes, read_run, require_run
    from lerobot_policy_quantile.explorer.server import ExplorerServer, Library
    from lerobot_policy_quantile.util.files import write_text

    with exit_on("explore", ValueError, OSError):
        for run in runs:
            require_run(run)
        units = {}
        if policy:
            from lerobot_policy_quantile.explorer.units import parse_units

            units = parse_units(policy, [read_run(run) for run in runs])
        if out is not None:
            found = [read_run(run, units) for run in runs]
            few = few_episodes(found, episode, most)
            write_text(out, single_page(few))
            counts = [sum(len(run.rows) for run in which) for which in (few, found)]
            size = f"{out.stat().st_size / 1e6:.1f} MB"
            typer.echo(f"{out}: {size}, {counts[0]} of {counts[1]} episodes; --most and --episode choose", err=True)
            return
        try:
            server = ExplorerServer(Library(runs, units), port)
        except OSError as error:
            raise ValueError(f"--port must be free on loopback; got {port} ({error}); try --port 0") from None
    typer.echo(f"{server.address} (Ctrl-C ends it)")
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("", err=True)
