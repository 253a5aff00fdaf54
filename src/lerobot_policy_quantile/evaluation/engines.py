"""The engines that run episodes, by name."""

from lerobot_policy_quantile.evaluation.engine import MakeCrew
from lerobot_policy_quantile.util.names import require_choice

ENGINES = ("local", "ray")


def crew_of(engine: str, replicas: int) -> MakeCrew | None:
    """Makes the runners of an engine; None: worker processes on this machine."""
    require_choice("--engine", engine, ENGINES)
    if engine == "local":
        return None
    from lerobot_policy_quantile.evaluation.ray_engine import ray_crew

    return ray_crew(replicas)
