"""The results of a plan: its tables and figures, written into its folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lerobot_policy_quantile.evaluation.tables.sheet import render, sheets_of
from lerobot_policy_quantile.studies.plan_figures import figures_of
from lerobot_policy_quantile.studies.plan_rows import study_rows
from lerobot_policy_quantile.studies.plans import StudyPlan
from lerobot_policy_quantile.studies.plans.commands import StudyCommand
from lerobot_policy_quantile.util.files import write_text


@dataclass(frozen=True)
class PlanResults:
    """What was written."""

    table: str
    """In Markdown."""
    table_file: Path
    figure_files: tuple[Path, ...]


def write_results(study: StudyPlan, steps: Sequence[StudyCommand], folder: Path) -> PlanResults | None:
    """Write `table.md`, `table.csv` and one figure per benchmark; None if no episode has been run yet."""
    rows, facts = study_rows(steps)
    sheets = sheets_of(rows, facts)
    if not sheets:
        return None
    text = "\n".join(render(sheet, "markdown") for sheet in sheets)
    write_text(folder / "table.md", text)
    write_text(folder / "table.csv", "\n".join(render(sheet, "csv") for sheet in sheets))
    figures = {folder / f"{name}.svg": figure for name, figure in figures_of(study.name, rows, facts).items()}
    for path, figure in figures.items():
        write_text(path, figure.svg_file())
    return PlanResults(text, folder / "table.md", tuple(figures))
