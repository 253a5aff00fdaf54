"""Simulated worlds behind one small contract, and the scripted expert that moves in them."""

import logging
import os
import sys

if sys.platform == "linux":
    os.environ.setdefault("MUJOCO_GL", "egl")  # read when MuJoCo and robosuite are imported

# robosuite recommends, at every import, a file of personal settings that nobody needs here.
logging.getLogger("robosuite_logs").addFilter(lambda record: "macro" not in record.getMessage())
