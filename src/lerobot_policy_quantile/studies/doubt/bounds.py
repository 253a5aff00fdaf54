"""`make bounds-study`: intervals before and after the conformal correction, and CRPS beside flow samples."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.calibration.held_out import read_dataset
from lerobot_policy_quantile.calibration.policy_facts import parse_policies
from lerobot_policy_quantile.calibration.record_files import RECORD, write_record
from lerobot_policy_quantile.calibration.run import CalibrationSettings
from lerobot_policy_quantile.calibration.with_bar import calibrate_with_bar
from lerobot_policy_quantile.policy.bounds_file import folder_digest
from lerobot_policy_quantile.studies.doubt.figures import bounds_figure
from lerobot_policy_quantile.studies.doubt.page import figure, share, write_page
from lerobot_policy_quantile.studies.doubt.policies import demonstrations, policies_of
from lerobot_policy_quantile.studies.doubt.settings import FITTED_ON, DoubtStudy
from lerobot_policy_quantile.util.files import TEMPORARY
from lerobot_policy_quantile.util.stamps import Stamp
from lerobot_policy_quantile.util.tables import markdown

TOLERANCE = 0.02
"""How far a share after the correction may be from the nominal one."""


def run_bounds(study: DoubtStudy) -> None:
    """Run what is missing and write the page."""
    policies = policies_of(study)
    dataset = demonstrations(study, "held_out", FITTED_ON, study.size.held_out, seed=32)
    record = judged(study, Path(policies.quantile[0]), policies.flow, dataset)
    write_page(study, "bounds", "Bounds and calibration", opening(record), bounds_figure(record), sections(record))


def judged(study: DoubtStudy, quantile: Path, flow: str, dataset: Path) -> dict[str, Any]:
    """Bounds fitted on every second episode, both policies judged on the others; kept once it is whole."""
    folder = study.out / "bounds"
    own = _own_copy(quantile, folder / "policy")
    facts, data = parse_policies([f"quantile={own}", f"flow={flow}"]), read_dataset(str(dataset))
    fit, judge = (tuple(range(first, data.episodes, 2)) for first in (0, 1))
    inputs = {
        "quantile": folder_digest(own),
        "flow": folder_digest(Path(flow)),
        "episodes": data.episodes,
        "masses": study.size.masses,
    }
    stamp = Stamp(folder, "judged", inputs)
    if not stamp.done():
        study.notes.print(f"bounds: fitted on {len(fit)} episodes, then judged on {len(judge)}", markup=False)
        calibrate_with_bar(facts[:1], data, fit, CalibrationSettings(conformal=study.size.masses), study.notes)
        write_record(calibrate_with_bar(facts, data, judge, CalibrationSettings(), study.notes), folder)
        stamp.write()
    found: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    return found


def _own_copy(policy: Path, folder: Path) -> Path:
    """Bounds are stored beside the weights: they go to a copy."""
    if not folder.is_dir():
        building = folder.with_name(f"{folder.name}{TEMPORARY}")
        shutil.rmtree(building, ignore_errors=True)
        shutil.copytree(policy, building)
        building.rename(folder)
    return folder


def opening(record: Mapping[str, Any]) -> str:
    """What the page is about."""
    fitted = len(record["policies"][0]["bounds"]["episodes"])
    return (
        "After this page you can tell how often actions are inside a miniature policy's predicted intervals and inside"
        f" the conformal bounds made of them, and how its CRPS compares with a flow policy's. LIBERO-Spatial and"
        f" LIBERO-Goal, scripted demonstrations: bounds were fitted on {fitted} and everything judged on"
        f" {len(record['episodes'])} others, from initial states that no training used. 95 % intervals over episodes;"
        " widths and CRPS in normalised units."
    )


def sections(record: Mapping[str, Any]) -> list[str]:
    """Both tables, and what they say about the target."""
    rows = record["laws"][0]["conformal"]
    lines = [
        [f"{100 * each['mass']:g} %", *(share(each[n]) for n in ("coverage_before", "coverage"))]
        + [figure(each[n], 3) for n in ("width_before", "width")]
        for each in rows
    ]
    off = [100 * (each["coverage"]["value"] - each["mass"]) for each in rows]
    worst = max(off, key=abs)
    verdict = "within" if abs(worst) <= 100 * TOLERANCE else "not within"
    told = (
        f"After the correction shares are {verdict} {100 * TOLERANCE:g} points of the nominal ones; the farthest is"
        f" {worst:+.1f} points away."
    )
    laws = [law for law in record["laws"] if not law["baseline"]]
    scores = [[law["policy"], law["law"], str(law["expert_passes"]), figure(law["crps"], 4)] for law in laws]
    return [
        "## Intervals before and after the correction",
        markdown(("nominal", "inside before", "inside after", "width before", "width after"), lines),
        told,
        "## CRPS and what it costs",
        markdown(("policy", "judged by", "expert passes", "CRPS"), scores),
    ]
