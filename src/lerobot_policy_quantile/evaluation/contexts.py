"""Contexts: what the rows of a scene or a policy were made with, and whether a command would make them the same way."""

from collections.abc import Mapping

from lerobot_policy_quantile.util.stamps import moved
from lerobot_policy_quantile.util.wording import BDDL, WORDING

_SCENE, _POLICY = "scene ", "policy "


def scene_scope(scene: str) -> str:
    """The name of a scene's context in a journal."""
    return f"{_SCENE}{scene}"


def policy_scope(policy: str) -> str:
    """The name of a policy's context in a journal."""
    return f"{_POLICY}{policy}"


def changes(scope: str, recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is not as it was recorded, with both values."""
    before, after = (with_wording(scope.removeprefix(_SCENE), context) for context in (recorded, now))
    return [f"{name}: journal has {old!r}, this run has {new!r}" for name, old, new in moved(before, after)]


def with_wording(scene: str, context: Mapping[str, str]) -> dict[str, str]:
    """The context of a row or a scene; where a LIBERO world says nothing of its wording, the one it had is added."""
    unmarked = scene.startswith("libero_") and "mujoco" in context and WORDING not in context
    return {**context, WORDING: BDDL} if unmarked else dict(context)
