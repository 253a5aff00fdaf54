"""A server in a thread of the test, with its own event loop."""

import asyncio
import threading
from contextlib import contextmanager

from lerobot_policy_quantile.serving.server import PolicyServer
from lerobot_policy_quantile.serving.settings import ServerSettings
from tests.support.waiting import PATIENCE

PATIENT = {"deadline": PATIENCE, "max_age": PATIENCE, "message_timeout": PATIENCE, "drain": PATIENCE}
"""Limits in seconds that a busy machine does not reach; a test of a limit sets its own."""


class Running:
    def __init__(self, server, loop):
        self.server, self._loop = server, loop

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.server.port}"

    def stop(self):
        """Twice is once."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.server.stopping.set)


@contextmanager
def running(model, **settings):
    """Serves `model` on a free port of this machine."""
    ready, held = threading.Event(), []

    def main():
        async def go():
            server = PolicyServer(model, ServerSettings(**{"port": 0, **PATIENT, **settings}))
            held.append(Running(server, asyncio.get_running_loop()))
            await server.run(ready.set)

        try:
            asyncio.run(go())
        finally:
            ready.set()

    thread = threading.Thread(target=main)
    thread.start()
    ready.wait()
    try:
        yield held[0]
    finally:
        held[0].stop()
        thread.join(PATIENCE)
