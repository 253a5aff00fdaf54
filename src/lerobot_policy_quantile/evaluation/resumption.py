"""Before a run goes on: are its settings those of the rows in its folder, and are their side files still there?"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from lerobot_policy_quantile.contract import DescribingFactory, Factory
from lerobot_policy_quantile.evaluation.contexts import policy_scope, scene_scope
from lerobot_policy_quantile.evaluation.journal import Journal, Row, require_same
from lerobot_policy_quantile.evaluation.plan import Plan
from lerobot_policy_quantile.evaluation.rollout import scene_context
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.worker import WorkerJob

MACHINE = frozenset({"torch"})
"""Of a policy's context: what the machine that computes decides, which need not be this one."""


def require_same_settings(plan: Plan, journal: Journal, job: WorkerJob, *, computed_here: bool = True) -> list[str]:
    """Refuse scenes and policies of the plan that are not as their rows in the journal were made, pending or not.

    No simulator and no model is built. Returns the policies that cannot be described now, which were not compared.
    """
    recorded = journal.contexts()
    for scene in dict.fromkeys(key.scene for key in plan):
        if (known := recorded.get(scene_scope(scene))) is not None:
            require_same(scene_scope(scene), known, _scene_context(job, scene))
    unknown = []
    left_out = frozenset() if computed_here else MACHINE
    for policy in dict.fromkeys(key.policy for key in plan):
        if (known := recorded.get(policy_scope(policy))) is None:
            continue
        now = _policy_context(job.factory, policy)
        if now is None:
            unknown.append(policy)
        else:
            require_same(policy_scope(policy), _without(left_out, known), _without(left_out, now))
    return unknown


def missing_side_files(rows: Iterable[Row], files: SideFiles | None) -> list[Path]:
    """Side files that rows say were written and that are gone."""
    if files is None:
        return []
    there = {path.name for path in files.folder.glob("*")}
    expected = (files.path(row.key, suffix) for row in rows for suffix in row.side_files)
    return [path for path in expected if path.name not in there]


def _scene_context(job: WorkerJob, scene: str) -> dict[str, str]:
    world = job.factory.world(scene)
    try:
        return scene_context(world, world.limit if job.limit is None else job.limit)
    finally:
        world.close()


def _policy_context(factory: Factory, policy: str) -> Mapping[str, str] | None:
    return factory.policy_context(policy) if isinstance(factory, DescribingFactory) else None


def _without(names: frozenset[str], context: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in context.items() if name not in names}
