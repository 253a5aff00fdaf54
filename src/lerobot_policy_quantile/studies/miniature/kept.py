"""What a study's file has already: policies that another day or machine has run need not be trained again."""

from collections.abc import Mapping
from pathlib import Path

from lerobot_policy_quantile.adapters.suite_choice import SuiteChoice
from lerobot_policy_quantile.core.decoders import canonical_text
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.tables.benchmarks import PROTOCOL
from lerobot_policy_quantile.studies.miniature.summary import Summary, read_summary, require_same
from lerobot_policy_quantile.studies.plans import Evaluation, StudyPlan
from lerobot_policy_quantile.studies.plans.size import Size

Place = tuple[str, int, int, int, str]
"""Scene, task, index, seed and decoder of an episode."""


def kept_policies(study: StudyPlan, size: Size, path: Path) -> dict[str, frozenset[str]]:
    """Suite -> policies (`l1#0`) all of whose episodes of it are in the study's file; nothing without one."""
    if not path.is_file():
        return {}
    summary = read_summary(path)
    require_same(summary.settings, size.record(study), path)
    known = _known(summary)
    found = {}
    for evaluation in study.evaluations:
        wanted = places_of(study, size, evaluation)
        found[evaluation.suite] = frozenset(policy for policy, places in known.items() if wanted <= places)
    return found


def places_of(study: StudyPlan, size: Size, evaluation: Evaluation) -> set[Place]:
    """The episodes that `qhead eval` runs for every policy of an evaluation."""
    options = size.options_of(study.name, evaluation)
    choice = SuiteChoice(
        evaluation.suite,
        PROTOCOL,
        None if "episodes" not in options else int(options["episodes"]),
        [],
        None if "sample" not in options else int(options["sample"]),
        0,
        size.indices_of(study.name, evaluation) if evaluation.indices is not None else None,
    )
    lines = [("any", canonical_text(decoder)) for decoder in evaluation.decoders]
    plan = choice.plan(choice.entries(), lines, mixed=False)
    return set(map(_place, plan.keys))


def _known(summary: Summary) -> Mapping[str, set[Place]]:
    known: dict[str, set[Place]] = {}
    for row in summary.rows:
        if row.status != "error":
            known.setdefault(row.key.policy, set()).add(_place(row.key))
    return known


def _place(key: EpisodeKey) -> Place:
    return key.scene, key.task, key.index, key.seed, key.decoder
