"""Policies over openpi's websocket protocol: a server that trusts nobody, a client, and a robot loop."""
