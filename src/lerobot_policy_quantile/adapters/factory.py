"""Worlds and policies by name: what the command line hands to the closed loop.

With `cli.py`, the only file that wires rooms together. It is sent to worker processes, so it holds plain values and
imports a simulator or a policy only when one is asked for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lerobot_policy_quantile.adapters.cameras import CAMERAS, spelled
from lerobot_policy_quantile.contract import Chunk, Observation, Policy, UnusablePolicyError, World
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.tables.benchmarks import limit_of
from lerobot_policy_quantile.scenes.libero.wording import TASK

if TYPE_CHECKING:
    from lerobot_policy_quantile.scenes.contract import Scene
    from lerobot_policy_quantile.scenes.experts.detour import Detour
    from lerobot_policy_quantile.scenes.experts.tasks import TaskExpert
    from lerobot_policy_quantile.scenes.experts.waypoints import WaypointExpert

OBSTACLE = "+obstacle"
"""Ends the name of a scene with the obstacle in it."""

EXPERT, SCRIPTED = "expert", "scripted"
"""The way points of one pick and place, and the expert for every LIBERO task."""


@dataclass(frozen=True)
class SceneFactory:
    """Builds scenes of the registry, scripted experts and saved policies."""

    sources: Mapping[str, str] = field(default_factory=dict)
    """Policy name in the key -> `scripted`, `expert`, `expert:left`, ..., a saved policy's folder, `ws://host:port`."""
    camera_size: int = 256
    device: str = "cpu"
    protocol: str | None = None
    """Whose limits hold in the benchmarks' scenes; every row says so."""
    limit: int | None = None
    """Another limit than the protocol's; every row says that too."""
    wording: str = TASK
    """Which words LIBERO's scenes speak."""
    cameras: Mapping[str, str] = field(default_factory=lambda: CAMERAS)
    """A scene's cameras -> what saved policies call them; every row says so where it is not as in LIBERO."""

    def scene(self, name: str) -> "Scene":
        """A scene of the registry; `+obstacle` behind its name puts the obstacle in."""
        from lerobot_policy_quantile.scenes.contract import make_scene

        scene = make_scene(
            name.removesuffix(OBSTACLE),
            obstacle=name.endswith(OBSTACLE),
            camera_size=self.camera_size,
            wording=self.wording,
        )
        if self.protocol is not None:
            scene.limit = self.limit or limit_of(name, self.protocol) or scene.limit
            scene.versions["protocol"] = self.protocol + (f", limit {self.limit}" if self.limit else "")
        return scene

    def world(self, scene: str) -> World:
        """The same, as the closed loop sees it."""
        return self.scene(scene)

    def policy(self, policy: str) -> Policy:
        """The policy behind a name."""
        source = self.sources[policy]
        if is_expert(source):
            return TaskPolicy() if source == SCRIPTED else ExpertPolicy(expert_side(source))
        from lerobot_policy_quantile.adapters.openpi_server import ServerAddress, ServerPolicy, is_server

        if is_server(source):
            return ServerPolicy(ServerAddress.parse(source))
        import lerobot_policy_quantile
        from lerobot_policy_quantile.adapters.lerobot_folder import load_lerobot_policy

        _ = lerobot_policy_quantile.QuantileConfig  # LeRobot's discovery skips a package that is already imported
        try:
            loaded = load_lerobot_policy(Path(source), device=self.device, cameras=self.cameras)
        except Exception as error:  # whatever LeRobot or torch raise here, they will raise again
            raise UnusablePolicyError(
                f"policy {policy!r} cannot be loaded from {source}: {type(error).__name__}: {error}"
            ) from error
        if self.cameras != CAMERAS:
            loaded.context["cameras"] = spelled(self.cameras)
        return loaded

    def require_answers(self, keys: Iterable[EpisodeKey]) -> None:
        """Refuse keys whose policy server cannot be reached or does not know their decoder, before any of them is run.

        Folders are looked at by `policy_folder.py`; loading them is left to the workers.
        """
        from lerobot_policy_quantile.adapters.openpi_server import ServerAddress, ServerPolicy, is_server

        for policy, decoder in dict.fromkeys((key.policy, key.decoder) for key in keys):
            source = self.sources[policy]
            if is_server(source):
                try:
                    server = ServerPolicy(ServerAddress.parse(source))
                    server.require_decoder(decoder)
                    server.close()
                except ConnectionError as error:
                    raise ValueError(
                        f"policy {policy!r} must answer before episodes start; {error}; a server is started with:"
                        " qhead serve --policy FOLDER"
                    ) from None

    def require_possible(self, keys: Iterable[EpisodeKey]) -> None:
        """Refuse keys whose task or initial state does not exist, before any of them is run.

        Builds each scene once: a machine that cannot simulate says so here.
        """
        keys = list(keys)
        for name in dict.fromkeys(key.scene for key in keys):
            scene = self.scene(name)
            try:
                for task, index in dict.fromkeys((key.task, key.index) for key in keys if key.scene == name):
                    _require_below(f"tasks of {name}", task, scene.task_count)
                    _require_below(f"indices of {name} task {task}", index, scene.state_count(task))
            finally:
                scene.close()


@dataclass(frozen=True)
class ExpertPolicy:
    """The scripted expert as a policy: it looks at the scene's layout and answers one action at a time."""

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
        return [
            Chunk(expert.act(observation.state)[None])
            for observation, expert in zip(observations, memories, strict=True)
        ]

    def close(self) -> None:
        """Nothing to free."""


@dataclass(frozen=True)
class TaskPolicy:
    """The expert for every LIBERO task as a policy; in other scenes, and around the obstacle, it is `ExpertPolicy`."""

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
        return [
            Chunk(expert.act(observation.state)[None])
            for observation, expert in zip(observations, memories, strict=True)
        ]

    def close(self) -> None:
        """Nothing to free."""


def is_expert(source: str) -> bool:
    """Whether a policy source names the scripted expert."""
    return source.split(":")[0] in (EXPERT, SCRIPTED)


def expert_side(source: str) -> str:
    """The side in `expert:left`; straight ahead without one."""
    return source.partition(":")[2] or "straight"


def _require_below(field: str, value: int, count: int) -> None:
    if value >= count:
        raise ValueError(f"{field} must lie in 0..{count - 1}; got {value}")
