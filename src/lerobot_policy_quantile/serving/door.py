"""Who may connect: health page, token, metrics page and the number of clients, decided before the websocket opens."""

import hashlib
import hmac
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import urlsplit

from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request as HttpRequest
from websockets.http11 import Response

from lerobot_policy_quantile.serving.connection import WatchedConnection
from lerobot_policy_quantile.serving.metrics import CONTENT_TYPE, Metrics
from lerobot_policy_quantile.serving.settings import ServerSettings, is_loopback

HEALTH, METRICS = "/healthz", "/metrics"


class Door:
    """Answers the HTTP request that opens a connection."""

    def __init__(
        self,
        settings: ServerSettings,
        metrics: Metrics,
        *,
        stopping: Callable[[], bool],
        clients: Callable[[], int],
        most: int,
    ) -> None:
        self._most = most
        self._settings, self._metrics, self._stopping, self._clients = settings, metrics, stopping, clients

    def admit(self, connection: ServerConnection, request: HttpRequest) -> Response | None:
        """Refuse a connection, or None to accept it. Only /healthz works without the token."""
        path = request.path.partition("?")[0]
        if self._from_a_page(request):
            self._metrics.refused.labels("browser").inc()
            return connection.respond(HTTPStatus.FORBIDDEN, "web pages are refused: no Origin, and this host's name\n")
        if path == HEALTH:
            if self._stopping():
                return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "stopping\n")
            return connection.respond(HTTPStatus.OK, "OK\n")
        token = self._token(request)
        if token is None:
            self._metrics.refused.labels("token").inc()
            return connection.respond(
                HTTPStatus.UNAUTHORIZED, "a token is needed: Authorization: Api-Key followed by the server's token\n"
            )
        if path == METRICS:
            return self._metrics_page(connection)
        if self._stopping():
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "stopping\n")
        if self._clients() >= self._most:
            self._metrics.refused.labels("full").inc()
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, f"busy: {self._most} clients are connected\n")
        if isinstance(connection, WatchedConnection):
            connection.token = token
        return None

    def _from_a_page(self, request: HttpRequest) -> bool:
        """Whether a browser's page may have sent it.

        Pages send their `Origin`; a page whose name was made to point to this machine (DNS rebinding) sends that name
        as `Host`, so a server that listens on loopback answers to loopback's names only.
        """
        if request.headers.get_all("Origin"):
            return True
        hosts = request.headers.get_all("Host")
        name = urlsplit(f"//{hosts[0]}").hostname or "" if len(hosts) == 1 else ""
        return is_loopback(self._settings.host) and not is_loopback(name)

    def _token(self, request: HttpRequest) -> bytes | None:
        """Digest of the request's token, empty if none is needed; None if it has not one of the server's.

        Hashes are compared in constant time, all of them, so that timing reveals nothing about the tokens.
        """
        if not self._settings.tokens:
            return b""
        given = request.headers.get_all("Authorization")
        digest = _hashed(given[0] if len(given) == 1 else "")
        same = [hmac.compare_digest(digest, _hashed(f"Api-Key {token}")) for token in self._settings.tokens]
        return digest if any(same) else None

    def _metrics_page(self, connection: ServerConnection) -> Response:
        response = connection.respond(HTTPStatus.OK, "")
        response.body = self._metrics.text()
        del response.headers["Content-Length"], response.headers["Content-Type"]
        response.headers["Content-Length"] = str(len(response.body))
        response.headers["Content-Type"] = CONTENT_TYPE
        return response


def _hashed(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()
