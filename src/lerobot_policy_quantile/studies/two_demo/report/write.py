"""Writes the report of a study into its folder."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lerobot_policy_quantile import __version__
from lerobot_policy_quantile.evaluation.journal import read_rows
from lerobot_policy_quantile.scenes.libero.assets import assets_hash, find_assets, stand_ins
from lerobot_policy_quantile.studies.two_demo.records import JOURNAL, Arm, Study
from lerobot_policy_quantile.studies.two_demo.report.study_page import make_report


def write_study_report(study: Study) -> Path:
    """Write `report.html`, which needs no other file, and `report.md` with its figures; returns the HTML file."""
    known = replace(study, arms=tuple(map(_with_journal_versions, study.arms)))
    return make_report(known, notes=_stand_in_notes(study.arms), version=__version__).write(study.out)


def _with_journal_versions(arm: Arm) -> Arm:
    """The arm with the versions, settings and policy fingerprints that its journal's rows record."""
    if not (arm.folder / JOURNAL).is_file():
        return arm
    found = dict(arm.versions)
    for row in read_rows(arm.folder / JOURNAL):
        for name, value in row.versions.items():
            found[f"policy {row.key.policy}" if name == "policy" else name] = value
    return replace(arm, versions=found)


def _stand_in_notes(arms: Iterable[Arm]) -> list[str]:
    """Which of LIBERO's assets are not the originals, if this machine has the assets that the study ran with."""
    used = {arm.versions.get("assets", "") for arm in arms if arm.name.startswith("libero")}
    if not used:
        return []
    try:
        assets = find_assets()
    except ValueError:
        return [f"LIBERO assets {', '.join(sorted(used))}: not on this machine, stand-ins unknown."]
    if assets_hash(assets) not in used:
        return [f"LIBERO assets {', '.join(sorted(used))}: others than this machine has, stand-ins unknown."]
    files = stand_ins(assets)
    if not files:
        return ["LIBERO assets: no list of stand-ins beside them."]
    folders = (Path(file).parent for file in files)
    names = ", ".join(sorted({(folder.parent if folder.name == "visual" else folder).name for folder in folders}))
    return [
        f"LIBERO assets: {len(files)} visual files are stand-ins for originals that could not be had ({names});"
        " the physics is the original."
    ]
