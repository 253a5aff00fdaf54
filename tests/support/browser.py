"""A headless Chromium, driven over the DevTools protocol: as much of it as looking at a page needs."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VARIABLE = "QHEAD_CHROMIUM"
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
)  # fmt: skip
SECONDS = 180.0
"""How long any one thing may take; generous, machines are busy."""


def find_chromium() -> str:
    """The program that the variable names (`none` hides them all), or the first known name on PATH."""
    names = (given,) if (given := os.environ.get(VARIABLE)) else NAMES
    for name in names:
        if found := shutil.which(name):
            return found
    raise ValueError(f"Chromium must be installed or named by {VARIABLE}; looked for {', '.join(names)}")


@contextmanager
def open_browser() -> Iterator["Browser"]:
    """A browser with a fresh profile, for tests marked `browser`."""
    program = find_chromium()
    with tempfile.TemporaryDirectory(prefix="qhead-chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            # No pings: a fixture may keep this process busy for longer than they are waited for.
            options = {"max_size": None, "open_timeout": SECONDS, "ping_interval": None}
            with connect(_address(process, Path(profile)), **options) as socket:
                browser = Browser(socket)
                yield browser
                browser.call("Browser.close")
            process.wait(SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], profile: Path) -> str:
    """Where the browser listens; it writes the port into its profile when it is ready."""
    port = profile / "DevToolsActivePort"
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        if port.is_file() and len(lines := port.read_text().splitlines()) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.05)
    raise RuntimeError(f"Chromium did not start within {SECONDS:g} s; exit code {process.poll()}")


class Browser:
    """The connection, and one page at a time."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        """Everything the page reported since it was opened."""

    def open(self, address: str, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Load a page at a window's width; the earlier page is closed."""
        target = self.call("Target.createTarget", url="about:blank", browser=True)["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True, browser=True)["sessionId"]
        self.events = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=address)
        self._wait_for("Page.loadEventFired")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are waited for."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors and warnings of the page: console, exceptions, refused or failed loads."""
        found = []
        for event in self.events:
            name, facts = event["method"], event.get("params", {})
            if name == "Runtime.exceptionThrown":
                found.append(f"exception: {facts['exceptionDetails'].get('text')}")
            if name == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
                found.append(f"console {facts['type']}: {facts['args']}")
            if name == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
                found.append(f"log {facts['entry']['level']}: {facts['entry']['text']}")
            if name == "Network.loadingFailed":
                found.append(f"load failed: {facts.get('errorText')}")
        return found

    def requests(self) -> list[str]:
        """Addresses that the page asked for, data addresses left out."""
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [address for address in asked if not address.startswith("data:")]

    def screenshot(self, file: Path) -> None:
        """The whole page as a PNG."""
        height = self.run("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": self.run("innerWidth"), "height": height, "scale": 1}
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(found["data"]))

    def call(self, method: str, *, browser: bool = False, **params: Any) -> dict[str, Any]:
        """One command and its answer."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None and not browser and not method.startswith("Browser."):
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                found: dict[str, Any] = answer["result"]
                return found

    def _wait_for(self, event: str) -> None:
        while not any(seen["method"] == event for seen in self.events):
            self._receive()

    def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv(timeout=SECONDS))
        if "method" in message and message.get("sessionId") == self._session:
            self.events.append(message)
        return message
