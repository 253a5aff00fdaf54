"""Which text of a LIBERO task is its instruction: names of the two, and of the field that records the choice."""

WORDING = "wording"
"""Field of a LIBERO world's versions, and so of a journal row's context."""

TASK, BDDL = "task.language", "bddl"
"""hf-libero's `task.language`, or the bddl file's `:language`. Rows without the field were made with the latter."""
