"""Simulated scenes behind one interface, and scripted experts that solve their tasks."""

import logging
import os
import sys

if sys.platform == "linux":
    os.environ.setdefault("MUJOCO_GL", "egl")  # read when MuJoCo and robosuite are imported

# robosuite recommends a file of personal settings at every import; it is not needed here.
logging.getLogger("robosuite_logs").addFilter(lambda record: "macro" not in record.getMessage())
