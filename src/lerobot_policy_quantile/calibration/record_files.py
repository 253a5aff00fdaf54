"""The files of a calibration run: its record as JSON, and the page drawn from it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.calibration.page import make_page
from lerobot_policy_quantile.util.files import write_json, write_text

RECORD, PAGE = "calibration.json", "calibration.html"


def write_record(record: Mapping[str, Any], folder: Path) -> None:
    """Write both files into a folder, over what an earlier run left there."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RECORD, record)
    write_text(folder / PAGE, make_page(record))
