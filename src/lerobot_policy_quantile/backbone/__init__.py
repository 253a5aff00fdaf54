"""pi0.5 as this project uses it: a prefix pass of the VLM, and an action expert that reads its K/V.

The only package that knows LeRobot's pi05 modules.
"""

from lerobot_policy_quantile.backbone.attention import KeyValue, Prefix
from lerobot_policy_quantile.backbone.inputs import BackboneInputs
from lerobot_policy_quantile.backbone.model import QUERIES, Backbone
from lerobot_policy_quantile.backbone.variants import VARIANTS, Variant
from lerobot_policy_quantile.backbone.weights import LoadReport, load_pi05_weights

__all__ = [
    "QUERIES",
    "VARIANTS",
    "Backbone",
    "BackboneInputs",
    "KeyValue",
    "LoadReport",
    "Prefix",
    "Variant",
    "load_pi05_weights",
]
