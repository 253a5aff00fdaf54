"""Rows written before scenes said which words they speak: they were made with the bddl's `:language`."""

from collections.abc import Mapping

FIELD, BEFORE = "wording", "bddl"


def with_wording(scene: str, context: Mapping[str, str]) -> dict[str, str]:
    """The context of a row or a scene; where a LIBERO world says nothing of its wording, the one it had is added."""
    unmarked = scene.startswith("libero_") and "mujoco" in context and FIELD not in context
    return {**context, FIELD: BEFORE} if unmarked else dict(context)
