"""Settings shared by all tests."""

import pytest
import torch
from hypothesis import settings

# One example costs microseconds to milliseconds of torch; wall-clock deadlines only add flakes.
settings.register_profile("qhead", deadline=None, max_examples=100, derandomize=True)
settings.load_profile("qhead")

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_draws_every_time() -> None:
    """What a test draws from torch's global generator does not depend on which tests ran before it."""
    torch.manual_seed(0)
