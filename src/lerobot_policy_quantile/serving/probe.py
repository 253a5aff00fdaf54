"""A quick test of a running server: random observations, timed."""

import statistics
import time
from typing import Any

import numpy as np

from lerobot_policy_quantile.serving.client import PolicyClient


def probe(
    connection: PolicyClient, *, requests: int, size: int, decoder: str | None, seed: int, prompt: str
) -> dict[str, Any]:
    """Open a session, send `requests` random observations with images of `size` pixels, and summarise the answers."""
    if not connection.ours:
        raise ValueError(
            f"{connection.url} is not a qhead server and has no sessions; use `qhead eval --policy {connection.url}`"
        )
    facts, draw = connection.metadata, np.random.default_rng(seed)
    options = {} if decoder is None else {"decoder": decoder}
    about = connection.infer({}, reset=True, seed=seed, **options)["qhead"]
    seconds, answer = [], {}
    for number in range(requests):
        observation = {
            **{name: draw.integers(0, 256, (size, size, 3), dtype=np.uint8) for name in facts["cameras"]},
            "observation/state": draw.uniform(-1, 1, facts["state_dim"]).astype(np.float32),
            "prompt": prompt,
        }
        began = time.monotonic()
        want = ["quantiles", "spread", "ranks"] if facts["levels"] else []
        answer = connection.infer(observation, want=want, sequence=number, sent=began)
        seconds.append(time.monotonic() - began)
    report = {
        "server": f"{connection.url}, policy {facts['context'].get('policy', '?')}",
        "session": f"{about['session']}, decoder {about.get('decoder', facts['decoder'])}, seed {seed}",
        "actions": f"{answer['actions'].shape} from {answer['actions'].min():.4f} to {answer['actions'].max():.4f}",
        "requests": requests,
        "median_ms": round(1e3 * statistics.median(seconds), 2),
        "slowest_ms": round(1e3 * max(seconds), 2),
    }
    if "spread" in answer:
        report |= {"quantiles": str(answer["quantiles"].shape), "mean_spread": round(float(answer["spread"].mean()), 4)}
    return report
