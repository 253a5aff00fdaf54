"""What a test may need beyond this repository and its installed packages: one table, read by marker.

A test says what it needs with a marker (`@pytest.mark.libero`). Where the thing is missing the test is skipped, and one
line at the end of the run says how many were, why, and which command gets it. A test without the marker sees the thing
as missing even where it is there: an unmarked test that touches it fails on every machine, not only on bare ones.

Tests marked `slow` run with `--slow` only (`make test-all`).
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from lerobot_policy_quantile.scenes.libero import assets
from tests.support import browser


@dataclass(frozen=True)
class Need:
    """Something outside the repository."""

    what: str
    command: str
    """Gets it."""
    variable: str
    """Names the place; the word `none` hides the thing."""
    present: Callable[[], bool]


def _found(find: Callable[[], object]) -> Callable[[], bool]:
    def present() -> bool:
        try:
            find()
        except (ValueError, ImportError):  # not there, or LIBERO itself is not importable in this run
            return False
        return True

    return present


NEEDS = {
    "libero": Need(
        "LIBERO's assets",
        f"hf download --repo-type dataset {assets.HUB_DATASET}",
        assets.VARIABLE,
        _found(assets.find_assets),
    ),
    "plus": Need(
        "LIBERO-Plus's data",
        f"git clone {assets.REPOSITORIES['plus']}; qhead data plus --from LIBERO-plus",
        assets.VARIABLE,
        _found(lambda: assets.find_data("plus")),
    ),
    "pro": Need(
        "LIBERO-Pro's data",
        f"git clone {assets.REPOSITORIES['pro']}; qhead data pro --from LIBERO-PRO",
        assets.VARIABLE,
        _found(lambda: assets.find_data("pro")),
    ),
    "browser": Need("Chromium", "apt-get install chromium", browser.VARIABLE, _found(browser.find_chromium)),
}
SLOW = "slow"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than a few seconds; runs with --slow (make test-all)")
    for name, need in NEEDS.items():
        config.addinivalue_line("markers", f"{name}: needs {need.what}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = {name: f"need {need.what}" for name, need in NEEDS.items() if not need.present()}
    for item in items:
        reasons = [missing[name] for name in missing if item.get_closest_marker(name)]
        if not reasons and item.get_closest_marker("slow") and not config.getoption("slow"):
            reasons = [SLOW]
        if reasons:
            item.add_marker(pytest.mark.skip(reason=reasons[0]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """From before the first fixture to after the last, what the test has no marker for is hidden."""
    shown = {need.variable for name, need in NEEDS.items() if item.get_closest_marker(name)}
    with hidden({need.variable for need in NEEDS.values()} - shown):
        return (yield)


@contextmanager
def hidden(variables: set[str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(dict.fromkeys(variables, assets.HIDDEN))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was left out: one line for each cause, with the command that runs it or gets what it needs."""
    skipped = Counter(_reason(report) for report in terminalreporter.getreports("skipped"))
    if not skipped:
        return
    commands = {f"need {need.what}": need.command for need in NEEDS.values()} | {SLOW: "make test-all"}
    terminalreporter.section(f"{skipped.total()} tests left out")
    width = max(map(len, commands))
    for reason, count in skipped.most_common():
        terminalreporter.write_line(f"{count:5} {reason:{width}}   {commands.get(reason, '')}".rstrip())


def _reason(report: pytest.TestReport) -> str:
    *_, text = report.longrepr if isinstance(report.longrepr, tuple) else (str(report.longrepr),)
    return text.removeprefix("Skipped: ").splitlines()[0]
