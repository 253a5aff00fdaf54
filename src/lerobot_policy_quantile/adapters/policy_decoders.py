"""Whether a saved policy can answer with a decoder, told before any model is loaded."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.adapters.policy_folder import CONFIG
from lerobot_policy_quantile.adapters.scripted_expert import is_expert
from lerobot_policy_quantile.adapters.server_address import is_server
from lerobot_policy_quantile.contract import OWN_DECODER

_OURS, _COPULA = "quantile", "copula"


def require_decoders(sources: Mapping[str, str], decoders: Mapping[str, Sequence[str]]) -> None:
    """Refuse decoders that a policy folder cannot answer with; a server is asked when its episodes are about to run."""
    for name, source in sources.items():
        if is_expert(source) or is_server(source):
            continue
        config = json.loads((Path(source) / CONFIG).read_bytes())
        for decoder in decoders[name]:
            if decoder not in (OWN_DECODER, config.get("decoder")):
                _require_decoder(name, Path(source), config, decoder)


def _require_decoder(name: str, folder: Path, config: Mapping[str, Any], decoder: str) -> None:
    kind, head = config["type"], config.get("head", _OURS)
    if kind != _OURS:
        from lerobot_policy_quantile.adapters.lerobot_folder import takes_decoders

        if not takes_decoders(folder):
            raise ValueError(
                f"--decoder must be {OWN_DECODER!r} for policy {name!r}, which is of type {kind}; got {decoder!r}"
            )
    elif head != _OURS:
        raise ValueError(
            f"--decoder must be {OWN_DECODER!r} for policy {name!r}: decoders need the quantile head, and its head is"
            f" {head}; got {decoder!r}"
        )
    else:
        _require_files(folder, decoder)


def _require_files(folder: Path, decoder: str) -> None:
    """What some decoders read beside the checkpoint."""
    base, inside, mass = decoder.partition(" inside ")
    if inside:
        from lerobot_policy_quantile.policy.bounds_file import require_bounds

        require_bounds(folder).margin(float(mass))
    if base.partition("(")[0] == _COPULA:
        from lerobot_policy_quantile.policy.checkpoint_config import COPULA_FILE

        if not (folder / COPULA_FILE).is_file():
            raise ValueError(
                f"--decoder {decoder!r} needs a correlation fitted to training data; {folder / COPULA_FILE} does not"
                " exist"
            )
