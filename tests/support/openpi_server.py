"""A server as openpi's own: its msgpack, metadata first, text error then close 1011. Runs in a thread of the test."""

import threading
import traceback
from contextlib import contextmanager

from openpi_client import msgpack_numpy
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve


@contextmanager
def openpi_server(infer, metadata=None):
    """The address of a server that answers with `infer(observation)`."""

    def handler(connection):
        packer = msgpack_numpy.Packer()
        connection.send(packer.pack(metadata or {}))
        while True:
            try:
                connection.send(packer.pack(infer(msgpack_numpy.unpackb(connection.recv()))))
            except ConnectionClosed:
                return
            except Exception:
                connection.send(traceback.format_exc())
                connection.close(1011, "Internal server error. Traceback included in previous frame.")
                return

    with serve(handler, "127.0.0.1", 0, compression=None, max_size=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()
