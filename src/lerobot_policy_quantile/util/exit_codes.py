"""Exit codes of the commands that run episodes. Besides these: 0 done, 1 could not go on, 2 wrong usage."""

WITH_ERRORS = 3
"""The run is finished, but some episodes ended in an error and have no result."""

STOPPED = 130
"""Stopped by Ctrl-C; the same command continues the run."""
