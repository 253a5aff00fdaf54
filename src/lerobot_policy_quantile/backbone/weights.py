"""Weights of a checkpoint into a model, piece by piece: all arrive, or one error lists what does not.

A LeRobot pi05 checkpoint fills our backbone and head, a checkpoint of our own fills the whole policy. LeRobot's loader
for pi05 catches every exception and may return a random model; its loader for policies holds all weights twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError
from torch import Tensor, nn

from lerobot_policy_quantile.backbone.model import Backbone
from lerobot_policy_quantile.backbone.weight_files import SHARD_INDEX, StoredTensor, stored_tensors
from lerobot_policy_quantile.core.heads import Head

ROOT = "paligemma_with_expert."
VLM_LM_HEAD = f"{ROOT}paligemma.lm_head.weight"
LM_HEADS: tuple[str, ...] = (VLM_LM_HEAD, f"{ROOT}gemma_expert.lm_head.weight")
"""Heads over the vocabulary, which pi0.5 never calls."""
TEXT_EMBEDDING = f"{ROOT}paligemma.model.language_model.embed_tokens.weight"
OURS = ("prompts", "query_projection.")
"""Parts of the backbone that LeRobot's pi05 does not have."""
INPUT, OUTPUT = "action_in_proj.weight", "action_out_proj."
"""Projections of actions in a pi05 checkpoint; every head of ours has the second as `head.projection`."""
INHERITED = "inherited"
"""Of an output projection that starts from the checkpoint's; otherwise it is fresh."""
PIECE = 2**26
"""Bytes of a checkpoint that are in memory at once."""


@dataclass(frozen=True)
class LoadReport:
    """What came from the checkpoint, what was left there, and what keeps its initial value."""

    source: str
    loaded: tuple[str, ...]
    dropped: tuple[str, ...]
    new: tuple[str, ...]

    def __str__(self) -> str:
        new = ", ".join(self.new) or "nothing"
        dropped = ", ".join(self.dropped) or "nothing"
        return f"{self.source}: {len(self.loaded)} tensors loaded; new: {new}; dropped: {dropped}"


def load_pi05_weights(
    backbone: Backbone, head: Head, source: str, *, revision: str | None = None, output_projection: str = INHERITED
) -> LoadReport:
    """Fill VLM, expert, time MLP and projections from a LeRobot pi05 checkpoint; nothing is written if a key is wrong.

    `source` is a folder with model.safetensors (or its shards and index), else a hub id. The head's
    projection starts from pi05's output projection, or with `output_projection="fresh"` keeps its initial values.
    """
    stored = pi05_tensors(checkpoint_folder(source, revision))
    targets = _targets(backbone, head)
    left = LM_HEADS
    if output_projection != INHERITED:
        left += tuple(key for key in targets if key.startswith(OUTPUT))
        targets = {key: tensor for key, tensor in targets.items() if not key.startswith(OUTPUT)}
        targets = with_leading_columns(INPUT, targets, stored)
    if TEXT_EMBEDDING not in stored and VLM_LM_HEAD in stored:
        stored[TEXT_EMBEDDING] = stored.pop(VLM_LM_HEAD)  # tied in the checkpoint and stored once
    dropped = tuple(key for key in left if stored.pop(key, None))
    _check_keys(source, stored, targets)
    copy_tensors(stored, targets)
    ours = [*backbone.state_dict(), *(f"head.{name}" for name in head.state_dict())]
    new = [name for name in ours if name.replace("head.projection.", OUTPUT) not in targets]
    new += new_columns(INPUT, targets, backbone.model_dim)
    return LoadReport(source, tuple(sorted(targets)), dropped, tuple(new))


def pi05_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Where the tensors of a pi05 checkpoint lie, under the names without the policy's prefix `model.`."""
    entries: dict[str, StoredTensor] = {}
    for key, entry in stored_tensors(folder).items():
        name = key.removeprefix("model.")
        if name in entries:
            raise ValueError(f"{entry.file} holds {key}, which is {entries[name].key} in {entries[name].file.name}")
        entries[name] = entry
    return entries


def load_own_weights(module: nn.Module, folder: Path) -> None:
    """Fill a module from a folder it was saved in, one file or shards; every tensor has to be there and to fit."""
    stored, targets = stored_tensors(folder), module.state_dict()
    _check_keys(str(folder), stored, targets)
    copy_tensors(stored, targets)


def checkpoint_folder(source: str, revision: str | None = None) -> Path:
    """The folder `source`, or the local copy of the hub repository of that name."""
    folder = Path(source).expanduser()
    if source and folder.is_dir():
        return folder
    owner_and_name = source.split("/")
    if len(owner_and_name) != 2 or not all(owner_and_name) or owner_and_name[0] in (".", "..", "~"):
        raise ValueError(f"backbone weights must be an existing folder or a hub id owner/name; got {source!r}")
    try:
        return Path(snapshot_download(source, revision=revision, allow_patterns=["model*.safetensors", SHARD_INDEX]))
    except (OSError, HfHubHTTPError) as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise ValueError(
            f"backbone weights {source!r} cannot be had from the hub ({type(error).__name__}: {reason}); go online and"
            " log in (hf auth login), or download them elsewhere and give the folder"
        ) from error


def with_leading_columns(key: str, targets: dict[str, Tensor], stored: Mapping[str, StoredTensor]) -> dict[str, Tensor]:
    """A model of more action dimensions takes over those the checkpoint has; the others keep their initial values."""
    if key not in stored or len(stored[key].shape) != 2 or targets[key].shape[1] <= stored[key].shape[1]:
        return targets
    return targets | {key: targets[key][:, : stored[key].shape[1]]}


def new_columns(key: str, targets: Mapping[str, Tensor], model_dim: int) -> list[str]:
    """What of a projection was not taken over, as a report names it."""
    width = targets[key].shape[1]
    return [f"{key}[:, {width}:]"] if width < model_dim else []


def _targets(backbone: Backbone, head: Head) -> dict[str, Tensor]:
    """Our tensors under the names they have in a pi05 checkpoint."""
    targets = {name: tensor for name, tensor in backbone.state_dict().items() if not name.startswith(OURS)}
    return targets | {f"{OUTPUT}{name}": tensor for name, tensor in head.projection.state_dict().items()}


def _check_keys(source: str, stored: Mapping[str, StoredTensor], targets: dict[str, Tensor]) -> None:
    faults = {
        "missing": sorted(targets.keys() - stored.keys()),
        "unexpected": sorted(stored.keys() - targets.keys()),
        "mis-shaped": [
            f"{key}: {stored[key].shape} in the checkpoint, {tuple(targets[key].shape)} here"
            for key in sorted(targets.keys() & stored.keys())
            if stored[key].shape != tuple(targets[key].shape)
        ],
    }
    if any(faults.values()):
        raise ValueError(
            f"{source} does not fit this model:"
            + "".join(_listing(kind, entries) for kind, entries in faults.items() if entries)
        )


def _listing(kind: str, entries: list[str]) -> str:
    return f"\n{len(entries)} {kind}:" + "".join(f"\n  {entry}" for entry in entries)


@torch.no_grad()
def copy_tensors(stored: Mapping[str, StoredTensor], targets: Mapping[str, Tensor]) -> None:
    """A few rows at a time, so that the checkpoint is never in memory as a whole."""
    for key, entry in stored.items():
        target = targets[key] if entry.shape else targets[key][None]
        row_bytes = target[:1].numel() * target.element_size()
        rows = max(1, PIECE // max(1, row_bytes))
        for first in range(0, len(target), rows):
            target[first : first + rows].copy_(entry.rows(slice(first, first + rows)))
