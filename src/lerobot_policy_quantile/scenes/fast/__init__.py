"""Physics, arm control and drawing with the simulator's own results to the last bit, in less time."""

import lerobot_policy_quantile.scenes.simulator  # noqa: F401  before MuJoCo is imported by any module here
