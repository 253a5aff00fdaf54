"""Units and grippers of policies whose folders are given: densities and widths are then judged as the policy does."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from lerobot_policy_quantile.calibration.policy_facts import read_policy
from lerobot_policy_quantile.calibration.spread import motion_units
from lerobot_policy_quantile.explorer.run_reading import ExploredRun, PolicyUnits
from lerobot_policy_quantile.policy.action_units import saved_units
from lerobot_policy_quantile.util.names import nearest


def parse_units(texts: Iterable[str], runs: Sequence[ExploredRun]) -> dict[str, PolicyUnits]:
    """Policy -> units, of texts such as `ours=runs/train/pretrained_model`; the folders must be the runs' own."""
    known = sorted({row.key.policy for run in runs for row in run.rows})
    found = {}
    for text in texts:
        name, equals, place = text.partition("=")
        if not equals or name not in known:
            listed = ", ".join(known) or "none"
            raise ValueError(
                f"--policy must be NAME=FOLDER with a policy of the runs, {listed}; got {text!r}{nearest(name, known)}"
            )
        folder = Path(place)
        dim = read_policy(name, folder).action_dim
        rows = [row for run in runs for row in run.rows if row.key.policy == name and row.status != "error"]
        motion = motion_units(folder, dim, rows).motion
        scale = tuple(float(number) for number in saved_units(folder, dim).scale)
        found[name] = PolicyUnits(scale, tuple(d for d in range(dim) if d not in motion))
    return found
