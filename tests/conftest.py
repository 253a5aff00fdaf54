"""Settings shared by all tests."""

import torch
from hypothesis import settings

# One example costs microseconds to milliseconds of torch; wall-clock deadlines only add flakes.
settings.register_profile("qhead", deadline=None, max_examples=100, derandomize=True)
settings.load_profile("qhead")

torch.set_num_threads(1)
