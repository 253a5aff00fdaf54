"""`qhead client`: a quick test of a running policy server."""

import json
from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import TOKEN_VARIABLE, JsonOption, help_text, read_token

HELP = help_text(
    "Test a policy server: send random observations and print the answers and their latency.",
    f"Works with servers started by `qhead serve`. The access token is read from {TOKEN_VARIABLE}.",
    examples=("qhead client ws://127.0.0.1:8000", "qhead client wss://gpu-box:8000 --ca cert.pem --requests 100"),
    exit_codes="0 every request was answered; 1 the server cannot be reached or refused a request",
)


def client(
    url: Annotated[
        str, typer.Argument(help="Address of the server: ws://host:8000 or wss://host.")
    ] = "ws://127.0.0.1:8000",
    requests: Annotated[int, typer.Option(min=1, help="Number of observations to send.")] = 10,
    size: Annotated[int, typer.Option(min=8, help="Width and height of the images, in pixels.")] = 224,
    decoder: Annotated[str | None, typer.Option(help="Decoder of the session. Default: the server's.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the session and of the random observations.")] = 0,
    prompt: Annotated[str, typer.Option(help="Instruction for the policy.")] = "put the can into the basket",
    ca: Annotated[
        Path | None, typer.Option(help="Certificate to trust for wss://, if it is self-signed (PEM).")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.")] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Test a server; `HELP` is what the user reads."""
    from lerobot_policy_quantile.serving.client import PolicyClient, ServerGoneError, ServerRefusedError
    from lerobot_policy_quantile.serving.probe import probe
    from lerobot_policy_quantile.serving.protocol import RequestError

    trusted = None if ca is None else str(ca)
    with (
        exit_on("client", ServerGoneError, ServerRefusedError, RequestError, ValueError, OSError),
        PolicyClient(url, token=read_token(), ca=trusted, timeout=timeout) as connection,
    ):
        report = probe(connection, requests=requests, size=size, decoder=decoder, seed=seed, prompt=prompt)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    for name, value in report.items():
        typer.echo(f"{name:16} {value}")
