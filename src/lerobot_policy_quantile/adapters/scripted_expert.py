"""Scripted experts as policies of the closed loop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lerobot_policy_quantile.contract import Chunk, Observation, Policy, World

if TYPE_CHECKING:
    from lerobot_policy_quantile.scenes.contract import Scene
    from lerobot_policy_quantile.scenes.experts.detour import Detour
    from lerobot_policy_quantile.scenes.experts.tasks import TaskExpert
    from lerobot_policy_quantile.scenes.experts.waypoints import WaypointExpert

EXPERT, SCRIPTED = "expert", "scripted"
"""The way points of one pick and place, and the expert for every LIBERO task."""


@dataclass(frozen=True)
class ExpertPolicy:
    """The way points of one pick and place: looks at the scene's layout and answers one action at a time."""

    side: str = "straight"
    n_action_steps: int = 1
    needs_images: bool = False
    looks_at_world: bool = True

    @property
    def context(self) -> Mapping[str, str]:
        """Its route."""
        return {"policy": f"scripted expert, {self.side}"}

    def begin(self, seed: int, world: World, decoder: str) -> "WaypointExpert | Detour":
        """The way points of one episode; nothing is decoded."""
        from lerobot_policy_quantile.scenes.experts.detour import expert_for
        from lerobot_policy_quantile.scenes.experts.waypoints import Route

        scene, route = cast("Scene", world), Route(self.side)
        return expert_for(scene, route.around_obstacle() if scene.obstacle else route)

    def act(self, observations: Sequence[Observation], memories: Sequence["WaypointExpert | Detour"]) -> list[Chunk]:
        """One action for each."""
        return _answers(observations, memories)

    def close(self) -> None:
        """Nothing to free."""


@dataclass(frozen=True)
class TaskPolicy:
    """The expert for every LIBERO task; in other scenes, and around the obstacle, it is `ExpertPolicy`."""

    n_action_steps: int = 1
    needs_images: bool = False
    looks_at_world: bool = True

    @property
    def context(self) -> Mapping[str, str]:
        """Its style."""
        return {"policy": "scripted expert for every task, plain style"}

    def begin(self, seed: int, world: World, decoder: str) -> "TaskExpert | WaypointExpert | Detour":
        """The plan of one episode; ValueError for a thing that the expert cannot take."""
        from lerobot_policy_quantile.scenes.experts.tasks import TaskExpert

        scene = cast("Scene", world)
        if scene.obstacle or not scene.name.startswith("libero"):
            return ExpertPolicy().begin(seed, world, decoder)
        return TaskExpert(scene)

    def act(
        self, observations: Sequence[Observation], memories: Sequence["TaskExpert | WaypointExpert | Detour"]
    ) -> list[Chunk]:
        """One action for each."""
        return _answers(observations, memories)

    def close(self) -> None:
        """Nothing to free."""


def _answers(
    observations: Sequence[Observation], memories: Sequence["TaskExpert | WaypointExpert | Detour"]
) -> list[Chunk]:
    pairs = zip(observations, memories, strict=True)
    return [Chunk(expert.act(observation.state)[None]) for observation, expert in pairs]


def expert_policy(source: str) -> Policy:
    """The expert behind `scripted`, `expert` or `expert:left`."""
    return TaskPolicy() if source == SCRIPTED else ExpertPolicy(expert_side(source))


def is_expert(source: str) -> bool:
    """Whether a policy source names the scripted expert."""
    return source.split(":")[0] in (EXPERT, SCRIPTED)


def expert_side(source: str) -> str:
    """The side in `expert:left`; straight ahead without one."""
    return source.partition(":")[2] or "straight"
