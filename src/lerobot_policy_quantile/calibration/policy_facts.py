"""What a saved policy reads and predicts, told from its files alone: nothing is loaded."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.adapters.policy_folder import CONFIG, PROCESSORS, require_policy_folder
from lerobot_policy_quantile.adapters.policy_sources import from_hub

OURS = "quantile"
"""The policy type that this package registers with LeRobot."""


@dataclass(frozen=True)
class PolicyFacts:
    """One saved policy of ours."""

    name: str
    folder: Path
    head: str
    cameras: tuple[str, ...]
    state_dim: int
    action_dim: int
    chunk_size: int
    renamed: Mapping[str, str]
    """A dataset's own names of observations -> the policy's, as saved with its processors or given by the user."""

    def source_of(self, feature: str) -> str:
        """The dataset's name of one of the policy's features."""
        return next((own for own, name in self.renamed.items() if name == feature), feature)


def parse_policies(texts: Iterable[str], renamed: Mapping[str, str] | None = None) -> list[PolicyFacts]:
    """The policies of texts such as `ours=runs/train/pretrained_model` or `USER/NAME` on the hub, each name once."""
    found: dict[str, PolicyFacts] = {}
    for text in texts:
        name, equals, source = text.partition("=")
        facts = read_policy(name, Path(from_hub(source if equals else name)), renamed)
        if name in found:
            raise ValueError(f"--policy must use a name once; {name!r} stands for {found[name].folder} and {source!r}")
        found[name] = facts
    if not found:
        raise ValueError("--policy must be given at least once, such as --policy ours=FOLDER; got none")
    return list(found.values())


def parse_renames(texts: Iterable[str]) -> dict[str, str]:
    """Texts such as `observation.images.front=observation.images.image` -> the dataset's name -> the policy's."""
    found: dict[str, str] = {}
    for text in texts:
        own, equals, name = text.partition("=")
        if not own or not equals or not name or own in found or name in found.values():
            example = "observation.images.front=observation.images.image"
            raise ValueError(f"--rename must read like {example}, each name once; got {text!r}")
        found[own] = name
    return found


def read_policy(name: str, folder: Path, renamed: Mapping[str, str] | None = None) -> PolicyFacts:
    """The facts of a policy folder; refuses one that is not whole or not ours."""
    if not folder.is_dir():
        raise ValueError(
            f"--policy {name} must be a folder saved by LeRobot (with {CONFIG}) or USER/NAME on the hub; got {folder}"
        )
    require_policy_folder(folder)
    config = json.loads((folder / CONFIG).read_bytes())
    if config["type"] != OURS:
        raise ValueError(
            f"--policy {name} must be of type {OURS!r}, whose predictions are distributions or matched baselines; got"
            f" {config['type']!r} in {folder}"
        )
    inputs, outputs = config.get("input_features") or {}, config.get("output_features") or {}
    return PolicyFacts(
        name=name,
        folder=folder,
        head=str(config["head"]),
        cameras=tuple(key for key, feature in inputs.items() if feature["type"] == "VISUAL"),
        state_dim=int(inputs["observation.state"]["shape"][0]),
        action_dim=int(outputs["action"]["shape"][0]),
        chunk_size=int(config["chunk_size"]),
        renamed=dict(renamed) if renamed else _saved_renames(folder),
    )


def _saved_renames(folder: Path) -> dict[str, str]:
    pipeline: dict[str, Any] = json.loads((folder / PROCESSORS[0]).read_bytes())
    for step in pipeline.get("steps", []):
        if step.get("registry_name") == "rename_observations_processor":
            return dict(step.get("config", {}).get("rename_map") or {})
    return {}
