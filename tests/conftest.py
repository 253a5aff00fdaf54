"""Settings shared by all tests."""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.support.needs"]
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched, by the tests or by the commands they start

# One example costs microseconds to milliseconds of torch; anything that looks at a clock only adds flakes.
settings.register_profile(
    "qhead", deadline=None, max_examples=100, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("qhead")

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_draws_every_time() -> None:
    """What a test draws from torch's global generator does not depend on which tests ran before it."""
    torch.manual_seed(0)
