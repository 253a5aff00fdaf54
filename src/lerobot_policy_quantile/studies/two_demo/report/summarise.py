"""Combines the journals of one or several study folders into small files, a page and a figure."""

from collections.abc import Iterable
from pathlib import Path

from lerobot_policy_quantile.studies.two_demo.records import load_study
from lerobot_policy_quantile.studies.two_demo.report.summary_page import FIGURE, PAGE, summary_figure, summary_page
from lerobot_policy_quantile.studies.two_demo.summary import ArmSummary, keep_summaries, read_summaries
from lerobot_policy_quantile.util.files import write_text


def summarise_folders(folders: Iterable[Path], into: Path) -> list[ArmSummary]:
    """Add the folders' summaries to those in `into`, and write its page and figure anew; returns all summaries."""
    for folder in folders:
        keep_summaries(load_study(folder), into)
    found = read_summaries(into)
    if not found:
        raise ValueError(f"{into} holds no summary yet: name a study's folder")
    write_text(into / PAGE, summary_page(found))
    write_text(into / FIGURE, summary_figure(found).svg_file())
    return found
