"""Worlds and policies by name: what the command line hands to the closed loop.

The factory is sent to worker processes, so it holds plain values and imports a simulator or a policy only when one is
asked for.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lerobot_policy_quantile.adapters.alarmed import AlarmedPolicy, AlarmRule
from lerobot_policy_quantile.adapters.cameras import spelled
from lerobot_policy_quantile.adapters.real_time_policy import RealTimePolicy, with_rule
from lerobot_policy_quantile.adapters.replanning import ReplannedPolicy, parse_replan
from lerobot_policy_quantile.adapters.scripted_expert import expert_policy, is_expert
from lerobot_policy_quantile.adapters.server_address import ServerAddress, is_server
from lerobot_policy_quantile.contract import CAMERA_KEYS, Policy, RealTime, UnusablePolicyError, World
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.tables.benchmarks import limit_of
from lerobot_policy_quantile.util.wording import TASK

if TYPE_CHECKING:
    from lerobot_policy_quantile.scenes.contract import Scene

OBSTACLE = "+obstacle"
"""Ends the name of a scene with the obstacle in it."""


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
    cameras: Mapping[str, str] = field(default_factory=lambda: CAMERA_KEYS)
    """A scene's cameras -> what saved policies call them; every row says so where it is not as in LIBERO."""
    replan: str | None = None
    """How far saved policies' chunks are followed (see `replanning.py`); every row says so where it is given."""
    real_time: Mapping[str, RealTime] = field(default_factory=dict)
    """Policies whose answers take time, and what is executed meanwhile; every row of theirs says so."""
    alarm: AlarmRule | None = None
    """What watches saved policies' episodes (see `alarmed.py`); every row says so where it is given."""

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
            return expert_policy(source)
        if is_server(source):
            from lerobot_policy_quantile.adapters.openpi_server import ServerPolicy

            return ServerPolicy(ServerAddress.parse(source))
        _register_own_type()
        from lerobot_policy_quantile.adapters.lerobot_folder import load_lerobot_policy

        with _unusable(policy, source):
            loaded = load_lerobot_policy(Path(source), device=self.device, cameras=self.cameras)
        if self.cameras != CAMERA_KEYS:
            loaded.context["cameras"] = spelled(self.cameras)
        followed = loaded if self.replan is None else ReplannedPolicy(loaded, parse_replan(self.replan))
        watched = followed if self.alarm is None else AlarmedPolicy(followed, self.alarm)
        rule = self.real_time.get(policy)
        return watched if rule is None else RealTimePolicy(watched, rule, loaded.grippers)

    def policy_context(self, policy: str) -> Mapping[str, str] | None:
        """The context of the policy behind a name, told without loading it; None if a server does not answer."""
        source = self.sources[policy]
        if is_expert(source):
            return expert_policy(source).context
        if is_server(source):
            return _served_context(source)
        _register_own_type()
        from lerobot_policy_quantile.adapters.lerobot_folder import saved_context

        with _unusable(policy, source):
            context = saved_context(Path(source), device=self.device)
        if self.cameras != CAMERA_KEYS:
            context["cameras"] = spelled(self.cameras)
        if self.replan is not None:
            context["replanning"] = str(parse_replan(self.replan))
        if self.alarm is not None:
            context["alarm"] = self.alarm.context
        rule = self.real_time.get(policy)
        return context if rule is None else with_rule(context, rule)

    def require_answers(self, keys: Iterable[EpisodeKey]) -> None:
        """Refuse keys whose policy server cannot be reached or does not know their decoder, before any of them is run.

        Folders are looked at by `policy_folder.py`; loading them is left to the workers.
        """
        for policy, decoder in dict.fromkeys((key.policy, key.decoder) for key in keys):
            source = self.sources[policy]
            if is_server(source):
                from lerobot_policy_quantile.adapters.openpi_server import ServerPolicy

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


@contextmanager
def _unusable(policy: str, source: str) -> Iterator[None]:
    """Whatever LeRobot or torch raise over a folder, they will raise again."""
    try:
        yield
    except Exception as error:
        raise UnusablePolicyError(
            f"policy {policy!r} cannot be loaded from {source}: {type(error).__name__}: {error}"
        ) from error


def _register_own_type() -> None:
    """LeRobot's discovery of plugins skips a package that is already imported."""
    import lerobot_policy_quantile

    _ = lerobot_policy_quantile.QuantileConfig


def _served_context(source: str) -> Mapping[str, str] | None:
    from lerobot_policy_quantile.adapters.openpi_server import ServerPolicy

    try:
        server = ServerPolicy(ServerAddress.parse(source))
    except ConnectionError:
        return None
    context = server.context
    server.close()
    return context


def _require_below(field: str, value: int, count: int) -> None:
    if value >= count:
        raise ValueError(f"{field} must lie in 0..{count - 1}; got {value}")
