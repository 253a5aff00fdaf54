"""Is a plan sound, and can its benchmarks be run on this machine? Asked before anything is trained."""

from lerobot_policy_quantile.adapters.suites import parse_suites
from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.core.decoders import canonical_text
from lerobot_policy_quantile.scenes.libero.assets import find_assets, find_data
from lerobot_policy_quantile.studies.plans import StudyPlan
from lerobot_policy_quantile.util.extras import missing_extras


def require_sound(study: StudyPlan) -> None:
    """Refuse a plan whose policy settings, suites or decoders do not exist."""
    for variant in study.variants:
        try:
            QuantileConfig(device="cpu", **variant.policy)
        except (TypeError, ValueError) as error:
            raise ValueError(f"variant {variant.name!r} of study {study.name!r}: {error}") from error
    for evaluation in study.evaluations:
        parse_suites(evaluation.suite)
        for decoder in evaluation.decoders:
            canonical_text(decoder)


def require_benchmarks(study: StudyPlan) -> None:
    """Refuse a plan whose benchmarks need packages, data or assets that this machine does not have."""
    suites = [suite for evaluation in study.evaluations for suite in parse_suites(evaluation.suite)]
    if suites and (absent := missing_extras("sim")):
        raise ValueError(absent)
    for part in ("plus", "pro"):
        if any(suite.startswith(f"libero_{part}") for suite in suites):
            find_data(part)
    if suites:
        find_assets()
