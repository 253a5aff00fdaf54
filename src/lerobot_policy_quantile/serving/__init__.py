"""Policies over openpi's websocket protocol: a server that validates every request, a client, and a robot loop."""
