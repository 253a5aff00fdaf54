"""Quantile action head for vision-language-action robot policies."""

from importlib.util import find_spec

__version__ = "0.1.0"

if find_spec("lerobot") is not None:
    # Importing registers the policy type, its schedule and its processor steps with LeRobot. Without
    # LeRobot the maths in `core` still works alone; with it, a failure here must be seen.
    from lerobot_policy_quantile.configuration_quantile import QuantileConfig
    from lerobot_policy_quantile.processor_quantile import make_quantile_pre_post_processors

    __all__ = ["QuantileConfig", "make_quantile_pre_post_processors"]
