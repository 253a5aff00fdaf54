"""Settings of MuJoCo and robosuite, which read them once, when they are imported: import this module just before them.

Importing the rest of this package, as LeRobot does to know the embedded scene by name, changes no environment variable.
"""

import logging
import os
import sys

if sys.platform == "linux":
    os.environ.setdefault("MUJOCO_GL", "egl")

# robosuite recommends, at every import, a file of personal settings that nobody needs here.
logging.getLogger("robosuite_logs").addFilter(lambda record: "macro" not in record.getMessage())
