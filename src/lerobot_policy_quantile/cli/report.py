"""`qhead report`: a study's page, written again from its records."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from lerobot_policy_quantile.studies.two_demo.records import Arm, Study


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that `qhead study two-demo` wrote, finished or not.")],
) -> None:
    """Write a study's report again: FOLDER/report.html, which needs no other file, and FOLDER/report.md with figures.

    Nothing is run. What the study has not reached yet is named as missing, so this can be asked for
    at any time, also while the study is running.
    """
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.studies.two_demo.records import load_study

    try:
        page = write_study_report(load_study(folder))
    except (ValueError, OSError, JournalError) as error:
        Console(stderr=True, soft_wrap=True).print(f"qhead report: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from None
    typer.echo(f"report: {page}")


def write_study_report(study: "Study") -> Path:
    """Write the report of a study into its folder; returns the HTML file."""
    from lerobot_policy_quantile import __version__
    from lerobot_policy_quantile.studies.two_demo.report.study_page import make_report

    known = replace(study, arms=tuple(map(_with_journal_versions, study.arms)))
    return make_report(known, notes=_stand_in_notes(study.arms), version=__version__).write(study.out)


def _with_journal_versions(arm: "Arm") -> "Arm":
    """The arm with what its journal's rows were made with: versions, settings, fingerprints of the policies."""
    from lerobot_policy_quantile.evaluation.journal import read_rows
    from lerobot_policy_quantile.studies.two_demo.records import JOURNAL

    if not (arm.folder / JOURNAL).is_file():
        return arm
    found = dict(arm.versions)
    for row in read_rows(arm.folder / JOURNAL):
        for name, value in row.versions.items():
            found[f"policy {row.key.policy}" if name == "policy" else name] = value
    return replace(arm, versions=found)


def _stand_in_notes(arms: Iterable["Arm"]) -> list[str]:
    """What of LIBERO's assets is not the original, as far as this machine has the assets that the study ran with."""
    used = {arm.versions.get("assets", "") for arm in arms if arm.name.startswith("libero")}
    if not used:
        return []
    from lerobot_policy_quantile.scenes.libero.assets import assets_hash, find_assets, stand_ins

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
