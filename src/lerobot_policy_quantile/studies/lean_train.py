"""LeRobot's trainer, reading the actions of a chunk without the pictures beside them.

`python -m lerobot_policy_quantile.studies.lean_train` takes the options of `lerobot-train` and trains on the same
samples. LeRobot 0.6 decodes the pictures of all rows of a chunk to read its actions from a dataset that stores
pictures: ten times as many as the sample needs, and more work than an update of the tiny policy.
"""

from typing import Any

import torch
from lerobot.datasets.dataset_reader import DatasetReader
from torch import Tensor


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


def main() -> None:
    """Train."""
    from lerobot.scripts.lerobot_train import main as train

    import lerobot_policy_quantile

    _ = lerobot_policy_quantile.QuantileConfig  # LeRobot's discovery skips a package that is already imported
    DatasetReader._query_hf_dataset = read_columns
    train()


if __name__ == "__main__":
    main()
