"""The server's metrics, in Prometheus' text format."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Metrics:
    """One registry per server, so that two servers in one process count separately."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter("qhead_requests", "Requests by outcome", ["outcome"], registry=registry)
        self.errors = Counter("qhead_errors", "Refused requests by kind of error", ["kind"], registry=registry)
        self.refused = Counter("qhead_refused_connections", "Connections by reason", ["reason"], registry=registry)
        self.latency = Histogram(
            "qhead_request_seconds", "From the whole frame to its answer", buckets=SECONDS, registry=registry
        )
        self.inference = Histogram("qhead_inference_seconds", "One batch", buckets=SECONDS, registry=registry)
        self.batch_size = Histogram(
            "qhead_batch_size", "Rows computed together", buckets=(1, 2, 4, 8, 16, 32, 64), registry=registry
        )
        self.queue = Gauge("qhead_queue_length", "Requests that wait", registry=registry)
        self.connections = Gauge("qhead_connections", "Open connections", registry=registry)
        self.handshakes = Gauge(
            "qhead_dropped_handshakes", "Connections dropped before their first request", registry=registry
        )
        self.sessions = Gauge("qhead_sessions", "Sessions that can be continued", registry=registry)
        self.guarded = Counter("qhead_guarded_steps", "Steps of actions that the guard changed", registry=registry)
        self.spread = Histogram(
            "qhead_spread",
            "Mean width of the central 80 % interval over a chunk, in action units",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
            registry=registry,
        )
        self.surprise = Histogram(
            "qhead_surprise",
            "How far left-over actions lie outside the new law, in widths of its central interval",
            buckets=(0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
            registry=registry,
        )

    def text(self) -> bytes:
        """Body of GET /metrics."""
        return generate_latest(self._registry)
