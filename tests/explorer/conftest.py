"""A run, a server that gives it out, a browser that looks at it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lerobot_policy_quantile.explorer.server import ExplorerServer, Library
from tests.support.browser import Browser, open_browser
from tests.support.explored_run import usual_keys, write_run
from tests.support.waiting import wait_until


@contextmanager
def serving(*folders: Path, **options) -> Iterator[ExplorerServer]:
    with ExplorerServer(Library(folders, **options)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def wait_in(browser: Browser, expression: str) -> None:
    wait_until(lambda: browser.run(expression), expression)


def open_page(browser: Browser, address: str, width: int = 1280, *, dark: bool = False) -> None:
    """Load the explorer and wait until the first episode is drawn."""
    browser.open(address, width, dark=dark)
    wait_in(browser, "document.body.dataset.listed !== undefined")
    wait_in(browser, "document.body.dataset.drawn !== undefined")


@pytest.fixture(scope="session")
def usual_run(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"), usual_keys())


@pytest.fixture(scope="module")
def server(usual_run) -> Iterator[ExplorerServer]:
    with serving(usual_run) as opened:
        yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened
