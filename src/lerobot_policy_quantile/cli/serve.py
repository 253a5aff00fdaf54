"""`qhead serve`: a policy server for robots."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on, usage_errors
from lerobot_policy_quantile.cli.options import TOKEN_VARIABLE, DeviceOption, help_text, read_tokens

if TYPE_CHECKING:
    from lerobot_policy_quantile.contract import Model
    from lerobot_policy_quantile.serving.guard import Guard
    from lerobot_policy_quantile.serving.settings import ServerSettings

HELP = help_text(
    "Serve a policy to robots over openpi's websocket protocol.",
    "openpi-client works unchanged: it sends observation/image, observation/wrist_image, observation/state and prompt,"
    " and receives actions. An additional entry `qhead` in a request adds sessions, seeds, decoders, quantiles and"
    " spread; see docs/guides/serving.md.",
    "By default only this machine can connect. Any other --host requires an access token: set"
    f" {TOKEN_VARIABLE} (at least 16 characters) for the server and its clients, or use --token-file. On a shared"
    " network, also encrypt with --certificate and --key.",
    "GET /healthz answers OK while the server runs; GET /metrics is for Prometheus. SIGTERM or Ctrl-C finishes the"
    " requests in progress and stops.",
    examples=(
        "qhead serve --policy runs/train/pretrained_model",
        f"export {TOKEN_VARIABLE}=$(openssl rand -hex 16)",
        "qhead serve --policy FOLDER --host 0.0.0.0 --device cuda --limits=-1:1",
        "qhead client ws://127.0.0.1:8000",
    ),
    exit_codes="0 stopped by SIGTERM or Ctrl-C; 1 the policy cannot be loaded or the port is taken; 2 wrong usage",
)

ACCESS, SAFETY, LOAD = "Network and access", "Action limits", "Load and time limits"


def serve(
    policy: Annotated[Path, typer.Option(help="Folder of a policy saved by LeRobot.")],
    decoder: Annotated[
        str | None,
        typer.Option(help="Decoder of sessions that request none. Default: the one saved with the policy."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. Any address except loopback requires a token.", rich_help_panel=ACCESS
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Port; 0 chooses a free one, which is printed.", rich_help_panel=ACCESS),
    ] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"File with the access token, or several, one per line: one for each robot keeps their sessions"
            f" apart. Default: ${TOKEN_VARIABLE}.",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="TLS certificate chain (PEM); requires --key.", rich_help_panel=ACCESS)
    ] = None,
    key: Annotated[Path | None, typer.Option(help="TLS private key (PEM).", rich_help_panel=ACCESS)] = None,
    device: DeviceOption = None,
    camera: Annotated[
        list[str] | None,
        typer.Option(
            help="FEATURE=NAME: the name in requests of one of the policy's cameras, such as"
            " observation.images.front=observation/image. Repeatable."
        ),
    ] = None,
    limits: Annotated[
        str | None,
        typer.Option(
            help="Range of allowed actions: LOW:HIGH for every dimension, or one pair per dimension separated by"
            " commas. Default: no limits.",
            rich_help_panel=SAFETY,
        ),
    ] = None,
    guard: Annotated[
        str,
        typer.Option(
            help="Actions outside the limits: clamp clips them; hold repeats the last action inside the limits for the"
            " rest of the chunk.",
            rich_help_panel=SAFETY,
        ),
    ] = "clamp",
    bounds: Annotated[
        float | None,
        typer.Option(
            help="Mass of the conformal bounds in answers, one that qhead calibrate --conformal fitted. Default: the"
            " largest in the policy's folder, if it has any.",
            rich_help_panel=SAFETY,
        ),
    ] = None,
    guard_bounds: Annotated[
        bool,
        typer.Option(
            "--guard-bounds", help="Conformal bounds are limits, too, where they are narrower.", rich_help_panel=SAFETY
        ),
    ] = False,
    alarm: Annotated[
        Path | None,
        typer.Option(
            help="Alarm written by `qhead alarm fit`: every answer says whether it is on.", rich_help_panel=SAFETY
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the first session that sends none; later sessions count up.")
    ] = 0,
    max_batch: Annotated[
        int, typer.Option(min=1, help="Largest number of requests computed in one batch.", rich_help_panel=LOAD)
    ] = 16,
    queue: Annotated[
        int, typer.Option(min=1, help="Requests that may wait; further ones are refused as busy.", rich_help_panel=LOAD)
    ] = 64,
    window_ms: Annotated[
        float,
        typer.Option(
            min=0, help="Milliseconds an idle server waits for further requests to batch.", rich_help_panel=LOAD
        ),
    ] = 3.0,
    deadline: Annotated[
        float, typer.Option(help="Seconds after which an unanswered request is refused.", rich_help_panel=LOAD)
    ] = 10.0,
    max_age: Annotated[
        float, typer.Option(help="Seconds after which an observation is refused as too old.", rich_help_panel=LOAD)
    ] = 1.0,
    max_connections: Annotated[
        int, typer.Option(min=1, help="Largest number of connected clients.", rich_help_panel=LOAD)
    ] = 256,
    message_timeout: Annotated[
        float,
        typer.Option(
            help="Seconds a message may take to arrive; slower clients are disconnected.", rich_help_panel=LOAD
        ),
    ] = 6.0,
    drain: Annotated[
        float,
        typer.Option(min=0, help="Seconds to finish requests in progress when stopping.", rich_help_panel=LOAD),
    ] = 10.0,
) -> None:
    """Serve a policy; `HELP` is what the user reads."""
    import asyncio
    from dataclasses import replace

    from lerobot_policy_quantile.serving.alarm import Alarm
    from lerobot_policy_quantile.serving.rates import log_to_stderr
    from lerobot_policy_quantile.serving.settings import ServerSettings
    from lerobot_policy_quantile.util.large_buffers import return_large_buffers

    with usage_errors(ValueError, OSError):
        settings = ServerSettings(
            host=host,
            port=port,
            tokens=read_tokens(token_file),
            certificate=None if certificate is None else str(certificate),
            key=None if key is None else str(key),
            guard=replace(parse_guard(limits, guard), use_bounds=guard_bounds),
            alarm=None if alarm is None else Alarm.read(alarm),
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
        settings.tls()  # a wrong certificate is reported before the policy is loaded
        names = _camera_names(camera or [])
    log_to_stderr()
    return_large_buffers()
    from lerobot_policy_quantile.adapters.served_policy import load_served_policy
    from lerobot_policy_quantile.policy.devices import choose_device

    with exit_on("serve", ValueError, OSError):
        device = choose_device(device)
        typer.echo(f"the policy computes on {device}")
        model = load_served_policy(policy, device=device, names=names, bounds=bounds)
        if settings.alarm is not None:
            settings.alarm.require_policy(model.spec.context.get("policy"))
        if guard_bounds and model.spec.bounds is None:
            raise ValueError(
                f"--guard-bounds needs conformal bounds in {policy}; fit them: qhead calibrate --policy {policy}"
                " --dataset DATASET --conformal 0.9"
            )
        asyncio.run(_serve(model, settings, str(policy)))


async def _serve(model: "Model", settings: "ServerSettings", name: str) -> None:
    import asyncio
    import gc
    import signal

    from lerobot_policy_quantile.serving.server import PolicyServer

    server = PolicyServer(model, settings)
    gc.collect()
    gc.freeze()  # later full collections skip torch's objects, which live as long as the server
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stopping.set)
    scheme = "ws" if settings.certificate is None else "wss"

    def announce() -> None:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        typer.echo(f"serving {name} on {scheme}://{host}:{server.port}; SIGTERM or Ctrl-C drains and stops")

    await server.run(announce)
    typer.echo("stopped")


def parse_guard(limits: str | None, mode: str) -> "Guard":
    """Limits such as `-1:1` or `-1:1,-1:1,0:1`."""
    from lerobot_policy_quantile.serving.guard import Guard

    if limits is None:
        return Guard(mode=mode)  # type: ignore[arg-type]  # the guard refuses unknown modes
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
