"""A server on loopback that gives out the page and, one by one, the episodes that it asks for.

Addresses never become file names: an episode is looked up by its run's number and its digest. Requests that name
another host than this one are refused, so that a page of a stranger's cannot read the runs through the browser.
"""

import json
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.explorer.packing import index_of, packed_episode, summary_of
from lerobot_policy_quantile.explorer.page import (
    MODULES,
    plotting_script,
    served_page,
    served_policy_header,
    styles,
    web_file,
)
from lerobot_policy_quantile.explorer.run_reading import ExploredRun, PolicyUnits, read_run, stamp_of

LOOPBACK = "127.0.0.1"
MOST_SUMMARIES = 100
"""Episodes in one request for summaries."""
HTML, CSS, SCRIPT, JSON, BYTES = (
    "text/html; charset=utf-8", "text/css; charset=utf-8", "text/javascript; charset=utf-8",
    "application/json; charset=utf-8", "application/octet-stream",
)  # fmt: skip
_NOT_FOUND = (HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"there is nothing here")
Answer = tuple[HTTPStatus, str, bytes]


class Library:
    """The runs, read again whenever a journal has grown."""

    def __init__(self, paths: Sequence[Path], units: dict[str, PolicyUnits] | None = None) -> None:
        self._paths, self._units = tuple(paths), units or {}
        self._lock = threading.Lock()
        self._stamp, self._runs = "", list[ExploredRun]()

    def stamp(self) -> str:
        """Changes when any journal grows."""
        return "; ".join(map(stamp_of, self._paths))

    def runs(self) -> list[ExploredRun]:
        """The runs as they are now."""
        with self._lock:
            stamp = self.stamp()
            if stamp != self._stamp:
                self._runs = [read_run(path, self._units) for path in self._paths]
                self._stamp = stamp
            return self._runs

    def find(self, run: str, digest: str) -> tuple[ExploredRun, Row] | None:
        """The episode that an address names."""
        with self._lock:
            runs = self._runs
        number = int(run) if run.isascii() and run.isdecimal() and len(run) < 6 else -1
        if not 0 <= number < len(runs) or (row := runs[number].row(digest)) is None:
            return None
        return runs[number], row


class ExplorerServer(ThreadingHTTPServer):
    """Serves one library until it is shut down."""

    daemon_threads = True

    def __init__(self, library: Library, port: int = 0) -> None:
        self.library = library
        super().__init__((LOOPBACK, port), _Handler)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self.server_address[1]}/"

    def answer(self, target: str) -> Answer:
        """What is at an address."""
        parts = urlsplit(target)
        if parts.path in ("/", "/plotly.js", "/explorer.css", *(f"/{name}" for name in MODULES)):
            return _part(parts.path[1:])
        match parts.path.split("/"):
            case ["", "data", "index.json"]:
                return _json({"stamp": self.library.stamp(), **index_of(self.library.runs())})
            case ["", "data", "stamp.json"]:
                return _json({"stamp": self.library.stamp()})
            case ["", "data", "summaries.json"]:
                asked = parse_qs(parts.query).get("episodes", [""])[0].split(",")[:MOST_SUMMARIES]
                return _json({place: self._summary(place) for place in asked})
            case ["", "data", "episode", run, digest]:
                found = self.library.find(run, digest)
                return _NOT_FOUND if found is None else (HTTPStatus.OK, BYTES, packed_episode(*found))
        return _NOT_FOUND

    def _summary(self, place: str) -> dict[str, Any] | None:
        found = self.library.find(*[*place.split("/", 1), ""][:2])
        return None if found is None else summary_of(*found)


def _part(name: str) -> Answer:
    if not name:
        return HTTPStatus.OK, HTML, served_page().encode()
    if name == "explorer.css":
        return HTTPStatus.OK, CSS, styles().encode()
    return HTTPStatus.OK, SCRIPT, (plotting_script() if name == "plotly.js" else web_file(name)).encode()


def _json(value: Any) -> Answer:
    return HTTPStatus.OK, JSON, json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


class _Handler(BaseHTTPRequestHandler):
    server: ExplorerServer
    server_version, sys_version = "qhead", ""
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        port = self.server.server_address[1]
        if self.headers.get("Host") not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            return self._send(
                HTTPStatus.FORBIDDEN, "text/plain; charset=utf-8", b"this server answers on loopback only"
            )
        return self._send(*self.server.answer(self.path))

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": served_policy_header(),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "X-Frame-Options": "DENY",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """A page that is looked at fills no terminal."""
