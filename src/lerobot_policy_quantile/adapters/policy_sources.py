"""Policies as the command line names them: `expert:left`, `NAME=FOLDER`, `USER/NAME` on the hub, `ws://host:8000`."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from lerobot_policy_quantile.adapters.cameras import require_cameras
from lerobot_policy_quantile.adapters.policy_folder import require_policy_folder
from lerobot_policy_quantile.adapters.scripted_expert import EXPERT, SCRIPTED, expert_side, is_expert
from lerobot_policy_quantile.adapters.server_address import ServerAddress, is_server
from lerobot_policy_quantile.util.extras import missing_extras
from lerobot_policy_quantile.util.names import nearest


def parse_policies(texts: Iterable[str], cameras: Mapping[str, str]) -> dict[str, str]:
    """Policy name -> its source, checked before anything is loaded; policies of the hub become their local folder."""
    sources: dict[str, str] = {}
    for text in texts:
        name, equals, source = (text, "", "") if is_server(text) else text.partition("=")
        source = from_hub(source if equals else name)
        _require_usable(source, cameras)
        if sources.setdefault(name, source) != source:
            raise ValueError(f"--policy must use a name once; {name!r} stands for {sources[name]!r} and {source!r}")
    return sources


def computing_device(named: str | None, sources: Mapping[str, str], engine: str) -> str | None:
    """The device that policies run on; None if none of them runs here: experts and servers need no device."""
    from lerobot_policy_quantile.policy.devices import choose_device

    if all(is_expert(source) or is_server(source) for source in sources.values()):
        return None
    if engine == "ray" and float(os.environ.get("QHEAD_GPUS_PER_REPLICA", "0")) > 0:
        return named or "cuda"  # a device of the replicas' machines, which this one need not have
    return choose_device(named)


def _require_usable(source: str, cameras: Mapping[str, str]) -> None:
    from lerobot_policy_quantile.scenes.experts.waypoints import Route

    if is_server(source):
        ServerAddress.parse(source)  # refuses unknown options
        if sentence := missing_extras("serve"):
            raise ValueError(sentence)
    elif is_expert(source):
        Route(expert_side(source))  # refuses unknown sides
    elif Path(source).is_dir():
        require_policy_folder(Path(source))
        require_cameras(Path(source), cameras)
    else:
        raise ValueError(
            "--policy must be expert, expert:SIDE or a folder saved by LeRobot (with config.json), USER/NAME on"
            f" the hub, or the ws:// address of a server; got {source!r}{nearest(source, (EXPERT, SCRIPTED))}"
        )


def from_hub(source: str) -> str:
    """USER/NAME or USER/NAME@REVISION -> the folder it was downloaded to; any other source is returned unchanged."""
    if Path(source).exists() or not re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", source):
        return source
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    name, _, revision = source.partition("@")
    try:
        return str(snapshot_download(name, revision=revision or None))
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise ValueError(
            f"--policy {source!r} is neither a folder nor a policy that the hub or its local cache has"
            f" ({type(error).__name__}); give the folder of a saved policy, or fetch it where there is a network:"
            f" hf download {name}"
        ) from error
