"""LeRobot's trainer, decoding fewer pictures.

`python -m lerobot_policy_quantile.studies.lean_train` takes the options of `lerobot-train` and trains on the same
samples. LeRobot 0.6 decodes the pictures of all rows of a chunk to read its actions from a dataset that stores
pictures: ten times as many as the sample needs, and more work than an update of the tiny policy. Here actions are read
without pictures, and with `--policy.prefix_cache=FOLDER` decoded pictures are kept in that folder.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lerobot.datasets.dataset_reader import DatasetReader
from torch import Tensor

from lerobot_policy_quantile.policy.prefix_reuse import IN_MEMORY
from lerobot_policy_quantile.studies.lean_pictures import with_kept_pictures

CACHE = "--policy.prefix_cache="


def read_columns(reader: Any, query_indices: dict[str, list[int]]) -> dict[str, Tensor]:
    """What `DatasetReader._query_hf_dataset` returns, from one column at a time."""
    rows = reader._absolute_to_relative_idx
    found = {}
    for key, frames in query_indices.items():
        if key not in reader._meta.video_keys:
            wanted = frames if rows is None else [rows[frame] for frame in frames]
            found[key] = torch.stack(_column(reader, key)[wanted][key])
    return found


def _column(reader: Any, key: str) -> Any:
    """The dataset with this column only, kept as long as its whole is the same."""
    whole, columns = reader.__dict__.get("_lean_columns", (None, {}))
    if whole is not reader.hf_dataset:
        columns = {}
        reader._lean_columns = (reader.hf_dataset, columns)
    if key not in columns:
        columns[key] = reader.hf_dataset.select_columns([key])
    return columns[key]


def keep_pictures(words: Sequence[str]) -> None:
    """Let LeRobot's datasets keep decoded pictures in the folder of the prefix cache, if the options name one."""
    folders = [word.removeprefix(CACHE) for word in words if word.startswith(CACHE)]
    if not folders or folders[-1] == IN_MEMORY:
        return
    load = DatasetReader._load_hf_dataset
    folder = Path(folders[-1])

    def load_keeping(reader: Any) -> Any:
        return with_kept_pictures(load(reader), reader._meta.features, folder)

    DatasetReader._load_hf_dataset = load_keeping


def main() -> None:
    """Train."""
    from lerobot.scripts.lerobot_train import main as train

    import lerobot_policy_quantile

    _ = lerobot_policy_quantile.QuantileConfig  # LeRobot's discovery skips a package that is already imported
    DatasetReader._query_hf_dataset = read_columns
    keep_pictures(sys.argv[1:])
    train()


if __name__ == "__main__":
    main()
