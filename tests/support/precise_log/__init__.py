"""LeRobot's training log with nine digits, loaded with --policy.discover_packages_path=tests.support.precise_log."""

from typing import Any

from lerobot.utils import logging_utils

_init = logging_utils.AverageMeter.__init__


def _precise(self: Any, name: str, fmt: str = ":f", **options: Any) -> None:
    _init(self, name, ":.9f", **options)


logging_utils.AverageMeter.__init__ = _precise
