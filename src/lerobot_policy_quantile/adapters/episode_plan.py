"""Which episodes `qhead eval` runs: every combination of what its options list."""

from collections.abc import Mapping, Sequence

from lerobot_policy_quantile.adapters.scripted_expert import is_expert
from lerobot_policy_quantile.contract import OWN_DECODER
from lerobot_policy_quantile.evaluation.plan import Plan, parse_numbers


def decoders_of(sources: Mapping[str, str], decoders: Sequence[str]) -> dict[str, list[str]]:
    """Policy -> the decoders it runs with. Experts have no decoder and run once.

    Decoders are spelled one way, so that `shared` and `shared(l=0)` name the same episodes.
    """
    spelled = list(dict.fromkeys(text if text == OWN_DECODER else _canonical(text) for text in decoders))
    return {name: [OWN_DECODER] if is_expert(source) else spelled for name, source in sources.items()}


def cross_plan(
    scenes: Sequence[str], tasks: str, indices: str, seeds: str, decoders: Mapping[str, Sequence[str]]
) -> Plan:
    """Every combination of scenes, tasks, initial states, seeds, policies and their decoders."""
    plan = Plan()
    for policy, own in decoders.items():
        plan += Plan.cross(
            scenes=scenes,
            tasks=parse_numbers("--tasks", tasks),
            indices=parse_numbers("--indices", indices),
            seeds=parse_numbers("--seeds", seeds),
            policies=[policy],
            decoders=own,
        )
    return plan


def _canonical(decoder: str) -> str:
    from lerobot_policy_quantile.core.decoders import canonical_text  # imports torch, which experts do not need

    return canonical_text(decoder)
