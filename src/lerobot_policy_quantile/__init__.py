"""Quantile action head for vision-language-action robot policies."""

import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["QuantileConfig", "make_quantile_pre_post_processors"]


def _register() -> dict[str, Any]:
    """Import what LeRobot must know: the policy type, its schedule, its processor steps, the embedded scene."""
    import lerobot_policy_quantile.scenes.lerobot_env  # noqa: F401
    from lerobot_policy_quantile.configuration_quantile import QuantileConfig
    from lerobot_policy_quantile.processor_quantile import make_quantile_pre_post_processors

    return {
        "QuantileConfig": QuantileConfig,
        "make_quantile_pre_post_processors": make_quantile_pre_post_processors,
    }


if TYPE_CHECKING:
    from lerobot_policy_quantile.configuration_quantile import QuantileConfig
    from lerobot_policy_quantile.processor_quantile import make_quantile_pre_post_processors
elif "lerobot" in sys.modules:
    # LeRobot imports its plugins by the package's name. The maths in `core`, imported on its own,
    # needs no LeRobot and does not pay for loading it; with LeRobot here, a failure must be seen.
    globals().update(_register())


def __getattr__(name: str) -> Any:
    if name in __all__:
        return _register()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
