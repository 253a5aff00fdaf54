"""`qhead serve` and `qhead client`: a policy behind a socket, and a first look at one."""

import asyncio
import gc
import json
import logging
import os
import signal
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from lerobot_policy_quantile.contract import Model
    from lerobot_policy_quantile.serving.client import PolicyClient
    from lerobot_policy_quantile.serving.guard import Guard
    from lerobot_policy_quantile.serving.server import ServerSettings

TOKEN_VARIABLE = "QHEAD_TOKEN"

# One line per paragraph: the terminal wraps it.
SERVE_HELP = "\n\n".join(
    [
        "Serve a policy to robots over openpi's websocket protocol.",
        "The genuine openpi-client works unchanged: observation/image, observation/wrist_image, observation/state and"
        " prompt in, actions out. Our own client, or one more entry `qhead` in a request, adds sessions, seeds,"
        " decoders, quantiles and spread; docs/guides/serving.md has the fields.",
        "Only this machine can connect unless --host says otherwise, and then a token is required: set"
        f" {TOKEN_VARIABLE} (16 characters or more) for the server and its clients, or use --token-file. Over a network"
        " that is not yours alone, add --certificate and --key.",
        "GET /healthz says OK; GET /metrics is for Prometheus. SIGTERM and Ctrl-C finish what is under way and stop.",
        "Examples:",
        "qhead serve --policy runs/train/pretrained_model",
        f"{TOKEN_VARIABLE}=$(openssl rand -hex 16) qhead serve --policy runs/a --host 0.0.0.0 --device cuda"
        " --limits=-1:1",
        "qhead client ws://127.0.0.1:8000",
    ]
)


def serve(
    policy: Annotated[Path, typer.Option(help="Folder of a policy saved by LeRobot.")],
    decoder: Annotated[
        str | None, typer.Option(help="Decoder of sessions that choose none; the policy's own if left out.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on. Anything but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one and says which.")] = 8000,
    token_file: Annotated[Path | None, typer.Option(help=f"File with the token, instead of {TOKEN_VARIABLE}.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="TLS certificate chain (PEM); needs --key.")] = None,
    key: Annotated[Path | None, typer.Option(help="TLS private key (PEM).")] = None,
    device: Annotated[
        str | None, typer.Option(help="Where the policy computes: cuda, mps or cpu; the best there is if left out.")
    ] = None,
    camera: Annotated[
        list[str] | None,
        typer.Option(help="FEATURE=NAME: what a camera of the policy is called in requests. Repeatable."),
    ] = None,
    limits: Annotated[
        str | None,
        typer.Option(help="Allowed actions, LOW:HIGH for all coordinates or a comma-separated pair for each."),
    ] = None,
    guard: Annotated[
        str, typer.Option(help="Actions beyond the limits: clamp them, or hold the last good one for the chunk's rest.")
    ] = "clamp",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first session that brings none; then counting up.")] = 0,
    max_batch: Annotated[int, typer.Option(min=1, help="Requests computed together.")] = 16,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait; more are told 'busy'.")] = 64,
    window_ms: Annotated[float, typer.Option(min=0, help="How long an idle server waits for company.")] = 3.0,
    deadline: Annotated[float, typer.Option(help="Seconds after which a request is given up.")] = 10.0,
    max_age: Annotated[float, typer.Option(help="Seconds after which an observation is too old to act upon.")] = 1.0,
    max_connections: Annotated[int, typer.Option(min=1, help="Clients at the same time.")] = 256,
    message_timeout: Annotated[
        float, typer.Option(help="Seconds a message may take to arrive; slower clients are dropped.")
    ] = 6.0,
    drain: Annotated[float, typer.Option(min=0, help="Seconds for requests under way when told to stop.")] = 10.0,
) -> None:
    """Serve a policy; `SERVE_HELP` is what the user reads."""
    from lerobot_policy_quantile.serving.server import ServerSettings

    try:
        settings = ServerSettings(
            host=host,
            port=port,
            token=read_token(token_file),
            certificate=None if certificate is None else str(certificate),
            key=None if key is None else str(key),
            guard=parse_guard(limits, guard),
            max_batch=max_batch,
            max_queue=queue,
            window=window_ms / 1e3,
            deadline=deadline,
            max_age=max_age,
            max_connections=max_connections,
            message_timeout=message_timeout,
            drain=drain,
            first_seed=seed,
            decoder=decoder,
        )
        settings.tls()  # a wrong certificate is told before the policy is loaded
        names = _camera_names(camera or [])
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from None
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("websockets").setLevel(logging.CRITICAL)  # a client's faults are in the metrics
    from lerobot_policy_quantile.adapters.served_policy import load_served_policy
    from lerobot_policy_quantile.policy.devices import choose_device

    try:
        device = choose_device(device)
        typer.echo(f"the policy computes on {device}")
        model = load_served_policy(policy, device=device, names=names)
        asyncio.run(_serve(model, settings, str(policy)))
    except (ValueError, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(f"qhead serve: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from None


async def _serve(model: "Model", settings: "ServerSettings", name: str) -> None:
    from lerobot_policy_quantile.serving.server import PolicyServer

    server = PolicyServer(model, settings)
    gc.collect()
    gc.freeze()  # full collections look at what connections leave behind, not at all of torch each time
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stopping.set)
    scheme = "ws" if settings.certificate is None else "wss"

    def say() -> None:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        typer.echo(f"serving {name} on {scheme}://{host}:{server.port}; SIGTERM or Ctrl-C drains and stops")

    await server.run(say)
    typer.echo("stopped")


def client(
    url: Annotated[str, typer.Argument(help="ws://host:8000 or wss://host.")] = "ws://127.0.0.1:8000",
    requests: Annotated[int, typer.Option(min=1, help="How many observations to send.")] = 10,
    size: Annotated[int, typer.Option(min=8, help="Pixels of the square pictures.")] = 224,
    decoder: Annotated[str | None, typer.Option(help="Decoder of the session; the server's if left out.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the session.")] = 0,
    prompt: Annotated[str, typer.Option(help="Instruction.")] = "put the can into the basket",
    ca: Annotated[Path | None, typer.Option(help="Certificate to trust for wss://, if it is self-signed.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Connect to one of our servers, send random observations, and say what came back and how fast.

    A token is read from QHEAD_TOKEN. Exits with 1 and one sentence if the server cannot be reached or refuses.
    """
    from lerobot_policy_quantile.serving.client import PolicyClient, ServerGoneError, ServerRefusedError
    from lerobot_policy_quantile.serving.protocol import RequestError

    try:
        with PolicyClient(
            url, token=read_token(None), ca=None if ca is None else str(ca), timeout=timeout
        ) as connection:
            report = _look(connection, requests, size, decoder, seed, prompt)
    except (ServerGoneError, ServerRefusedError, RequestError, ValueError, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(f"qhead client: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    for name, value in report.items():
        typer.echo(f"{name:16} {value}")


def _look(
    connection: "PolicyClient", requests: int, size: int, decoder: str | None, seed: int, prompt: str
) -> dict[str, Any]:
    import numpy as np

    if not connection.ours:
        raise ValueError(
            f"{connection.url} is an openpi server of another make; use `qhead eval --policy {connection.url}`"
        )
    facts, draw = connection.metadata, np.random.default_rng(seed)
    wishes = {} if decoder is None else {"decoder": decoder}
    about = connection.infer({}, reset=True, seed=seed, **wishes)["qhead"]
    seconds, answer = [], {}
    for number in range(requests):
        observation = {
            **{name: draw.integers(0, 256, (size, size, 3), dtype=np.uint8) for name in facts["cameras"]},
            "observation/state": draw.uniform(-1, 1, facts["state_dim"]).astype(np.float32),
            "prompt": prompt,
        }
        began = time.monotonic()
        want = ["quantiles", "spread", "ranks"] if facts["levels"] else []
        answer = connection.infer(observation, want=want, sequence=number, sent=began)
        seconds.append(time.monotonic() - began)
    report = {
        "server": f"{connection.url}, policy {facts['context'].get('policy', '?')}",
        "session": f"{about['session']}, decoder {about.get('decoder', facts['decoder'])}, seed {seed}",
        "actions": f"{answer['actions'].shape} from {answer['actions'].min():.4f} to {answer['actions'].max():.4f}",
        "requests": requests,
        "median_ms": round(1e3 * statistics.median(seconds), 2),
        "slowest_ms": round(1e3 * max(seconds), 2),
    }
    if "spread" in answer:
        report |= {"quantiles": str(answer["quantiles"].shape), "mean_spread": round(float(answer["spread"].mean()), 4)}
    return report


def read_token(file: Path | None) -> str | None:
    """The token in a file or in the environment; None if there is neither."""
    text = os.environ.get(TOKEN_VARIABLE, "") if file is None else file.read_text()
    return text.strip() or None


def parse_guard(limits: str | None, mode: str) -> "Guard":
    """Limits such as `-1:1` or `-1:1,-1:1,0:1`."""
    from lerobot_policy_quantile.serving.guard import Guard

    if limits is None:
        return Guard(mode=mode)  # type: ignore[arg-type]  # the guard knows its modes
    try:
        low, high = zip(*(map(float, pair.split(":")) for pair in limits.split(",")), strict=True)
    except ValueError:
        raise ValueError(f"--limits must read like -1:1 or -1:1,-2:2,0:1; got {limits!r}") from None
    return Guard(low, high, mode)  # type: ignore[arg-type]


def _camera_names(texts: list[str]) -> dict[str, str]:
    names = {}
    for text in texts:
        feature, equals, name = text.partition("=")
        if not (feature and equals and name):
            raise ValueError(f"--camera must read like observation.images.front=observation/image; got {text!r}")
        names[feature] = name
    return names
