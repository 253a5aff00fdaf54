"""Whether a policy folder is whole, told from its files alone: no torch, no model, milliseconds.

What only building the model can tell (a type that LeRobot does not know, weights of another shape) is told by the
first worker, and ends the run.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

CONFIG = "config.json"
WEIGHTS = "model*.safetensors"
PROCESSORS = ("policy_preprocessor.json", "policy_postprocessor.json")
_POINTER = b"version https://git-lfs"
_CONVERT = "python -m lerobot.processor.migrate_policy_normalization --pretrained-path"


def require_policy_folder(folder: Path) -> None:
    """Refuse a folder from which no policy can be loaded; the error names the file and what to do."""
    config = _read_json(folder / CONFIG, "LeRobot's trainer saves it into checkpoints/*/pretrained_model")
    if not isinstance(config.get("type"), str):
        raise ValueError(f"{folder / CONFIG} must name the policy's type; got {config.get('type')!r}")
    weights = sorted(folder.glob(WEIGHTS))
    if not weights:
        raise ValueError(f"{folder / 'model.safetensors'} does not exist: copy the whole folder, weights included")
    for name in PROCESSORS:
        path = folder / name
        pipeline = _read_json(path, f"for a checkpoint of an early LeRobot run: {_CONVERT} {folder}")
        states = [step.get("state_file") for step in pipeline.get("steps", []) if isinstance(step, dict)]
        weights += [folder / state for state in states if state]
    for path in weights:
        _require_tensors(path)


def _read_json(path: Path, fix: str) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path} does not exist; {fix}")
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} must be JSON; {error}: copy the folder again") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object; got {type(content).__name__}: copy the folder again")
    return content


def _require_tensors(path: Path) -> None:
    """Header and length of a safetensors file; the numbers themselves are not read."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist: copy the whole folder")
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise ValueError(f"{path} is a Git LFS pointer, not the weights: run git lfs pull in its repository")
    try:
        with safe_open(path, "numpy"):
            pass
    except SafetensorError as error:
        raise ValueError(f"{path} is cut off or no safetensors file ({error}): copy it again") from None
