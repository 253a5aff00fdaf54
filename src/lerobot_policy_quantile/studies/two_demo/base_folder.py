"""The checkpoint that a study starts from, by the name or folder that the user gives."""

from pathlib import Path

SHIPPED = "shipped"
"""Stands for the base checkpoint that comes with the package."""


def base_folder(base: str) -> str:
    """The policy folder to start from; `random` is returned unchanged."""
    from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
    from lerobot_policy_quantile.studies.two_demo.start import RANDOM

    if base == RANDOM:
        return base
    folder = base_checkpoint() if base == SHIPPED else Path(base)
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"--base must be {SHIPPED}, a policy folder (with config.json) or {RANDOM}; looked for {folder}/config.json"
        )
    return str(folder)
