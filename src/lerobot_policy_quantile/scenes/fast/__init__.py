"""Faster physics, arm control and rendering, bit-identical to the simulator's own."""

import lerobot_policy_quantile.scenes.simulator  # noqa: F401  before MuJoCo is imported by any module here
