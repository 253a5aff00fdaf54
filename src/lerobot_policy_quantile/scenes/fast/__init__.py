"""Physics, arm control and drawing with the simulator's own results to the last bit, in less time."""
