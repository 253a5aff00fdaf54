"""The obstacle: a static box, so it adds no degree of freedom and stored initial states still load."""

from xml.etree import ElementTree

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.contract import Array

BODY = "obstacle"
SIZE = np.array([0.06, 0.044, 0.19])
"""Width across the approach, depth along it, height (metres)."""

DISTANCE = 0.10
"""From the end effector's start to the box's centre, towards the object (metres)."""


def stand_between(start: Float[Array, "3"], target: Float[Array, "3"], ground: float) -> Float[Array, "3"]:
    """The box's centre: `DISTANCE` ahead of the start on the way to the target, standing on the ground."""
    ahead = (target - start)[:2]
    place = start[:2] + DISTANCE * ahead / np.linalg.norm(ahead)
    return np.array([*place, ground + SIZE[2] / 2])


def obstacle_body(centre: Float[Array, "3"], direction: Float[Array, "3"]) -> ElementTree.Element:
    """The MJCF body at `centre`; its long side lies across `direction`. Collision and looks are separate geoms."""
    yaw = float(np.arctan2(direction[1], direction[0])) - np.pi / 2
    quaternion = f"{np.cos(yaw / 2)} 0 0 {np.sin(yaw / 2)}"
    body = ElementTree.Element("body", name=BODY, pos=" ".join(map(str, centre)), quat=quaternion)
    box = {"type": "box", "size": " ".join(map(str, SIZE / 2)), "rgba": "0.85 0.45 0.1 1"}
    ElementTree.SubElement(body, "geom", {"name": f"{BODY}_collision", "group": "0", **box})
    looks = {"name": f"{BODY}_visual", "group": "1", "contype": "0", "conaffinity": "0"}
    ElementTree.SubElement(body, "geom", {**looks, **box})
    return body
