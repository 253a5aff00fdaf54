"""The study's table in a terminal: success per decoder beside the paper's numbers."""

from rich.table import Table

from lerobot_policy_quantile.studies.two_demo.records import Arm, Cost, Study
from lerobot_policy_quantile.studies.two_demo.result import Result
from lerobot_policy_quantile.util.tables import boxed

NEARBY_TITLE = "one answer per observation, from starts a centimetre or so from the demonstrations'"
DETERMINISTIC_NOTE = (
    "median, L1 and L2 run one episode per training seed (the median twice, as a check); a close one is decided by"
    " rounding and may end differently on another processor"
)
COLUMNS = ("head", "decoder", "success", "rate", "95 % interval", "paper", "passed left / right")


def arm_table(arm: Arm) -> Table:
    """One line per head and decoder; sides are those of the successes."""
    return boxed(f"{arm.name}: {arm.instruction}", COLUMNS, map(row, arm.results()))


def nearby_table(arm: Arm) -> Table | None:
    """Deterministic decoders over nearby starts; None without any."""
    results = arm.nearby_results()
    return boxed(f"{arm.name}: {NEARBY_TITLE}", COLUMNS, map(row, results)) if results else None


def row(result: Result) -> tuple[str, ...]:
    """A result in words."""
    errors = f", {result.errors} errors" if result.errors else ""
    return (
        result.head,
        result.decoder,
        f"{result.success}/{result.episodes}{errors}",
        f"{result.rate:.0f} %" if result.episodes else "-",
        result.interval_words,
        "-" if result.paper is None else f"{result.paper:.0f} %",
        f"{result.left} / {result.right}",
    )


def cost_lines(study: Study) -> list[str]:
    """Expert passes and milliseconds per replan, quantile against flow, per arm."""
    lines = []
    for arm in study.arms:
        for seed, costs in arm.costs.items():
            known: dict[str, Cost] = {cost.head: cost for cost in costs}
            quantile, flow = known["quantile"], known["flow"]
            lines.append(
                f"{arm.name}, seed {seed}: a replan costs the quantile head {quantile.expert_passes} expert pass,"
                f" {quantile.expert_ms:.1f} ms; flow {flow.expert_passes} passes, {flow.expert_ms:.1f} ms"
                f" ({flow.expert_ms / quantile.expert_ms:.1f}x); the prefix takes {quantile.prefix_ms:.0f} ms for both,"
                f" head and decoder {quantile.decode_ms:.1f} and {flow.decode_ms:.1f} ms"
            )
    return lines
