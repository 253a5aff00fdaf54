"""Which action dimensions are grippers: a field of the policy, read from a dataset's action names where they tell.

A gripper is open or closed. Decoders keep it at its median, and widths of motion leave it out.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from lerobot.utils.constants import ACTION

WORDS = ("gripper", "finger", "jaw", "claw")
"""What an action dimension that opens and closes is called."""

_logger = logging.getLogger(__name__)


def gripper_indices(grippers: Sequence[int] | None, action_dim: int) -> tuple[int, ...]:
    """Increasing indices in [0, action_dim); negative ones count from the end.

    None is the last dimension, the rule of checkpoints that are older than the field.
    """
    if grippers is None:
        return (action_dim - 1,) if action_dim > 1 else ()
    places = sorted({index % action_dim for index in grippers if -action_dim <= index < action_dim})
    if len(places) < len(grippers):
        raise ValueError(f"grippers must be different indices of the {action_dim} action dimensions; got {grippers}")
    if len(places) == action_dim:
        raise ValueError(f"grippers must leave one of the {action_dim} action dimensions for motion; got {grippers}")
    return tuple(places)


def action_names(features: Mapping[str, Any], action_dim: int) -> list[str] | None:
    """One name per action dimension, in whichever form a LeRobot dataset has them; None where it has not."""
    names: Any = (features.get(ACTION) or {}).get("names")
    if isinstance(names, Mapping):
        numbered = all(isinstance(place, int) for place in names.values())
        names = sorted(names, key=names.__getitem__) if numbered else [n for group in names.values() for n in group]
    if not isinstance(names, list | tuple) or len(names) != action_dim:
        return None
    return [str(name) for name in names]


def named_grippers(names: Sequence[str]) -> list[int] | None:
    """The dimensions whose name says so; none where others are given; None where names are numbered or all the same.

    `motor_0 ... motor_6` may be seven joints, or six and a gripper.
    """
    found = [place for place, name in enumerate(names) if any(word in name.lower() for word in WORDS)]
    plain = [name for name in names if not any(sign.isdigit() for sign in name)]
    return found if found or (plain and len(set(names)) == len(names)) else None


def settle_grippers(config: Any, dataset_meta: Any, *, must_tell: bool) -> None:
    """Write the indices into a policy's configuration, and say so when training starts.

    `must_tell`: a new quantile policy whose dataset's names do not tell is refused; a loaded one keeps the last
    dimension.
    """
    names = None if dataset_meta is None else action_names(getattr(dataset_meta, "features", {}), config.action_dim)
    source = "policy.grippers"
    if config.grippers is None:
        config.grippers = None if names is None else named_grippers(names)
        source = "the dataset's action names"
    if config.grippers is None:
        if must_tell and dataset_meta is not None and config.head == "quantile":
            raise ValueError(
                f"policy.grippers must be set: the dataset's action names do not tell which of the {config.action_dim}"
                f" dimensions are grippers; got {', '.join(names) if names else 'no name per dimension'};"
                f" give their indices, such as --policy.grippers=[{config.action_dim - 1}], or [] for none"
            )
        source = "no names tell: the last dimension"
    config.grippers = list(gripper_indices(config.grippers, config.action_dim))
    if dataset_meta is not None:
        _logger.info("%s (%s)", describe_grippers(config.grippers, config.action_dim, names), source)


def describe_grippers(grippers: Sequence[int], action_dim: int, names: Sequence[str] | None = None) -> str:
    """One line for people."""
    if not grippers:
        return f"grippers: none; all {action_dim} action dimensions are motion"
    told = ", ".join(str(place) if names is None else f"{place} ({names[place]})" for place in grippers)
    return f"grippers: action dimension {told}; the other {action_dim - len(grippers)} are motion"
