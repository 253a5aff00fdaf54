"""Faster physics, arm control and rendering, bit-identical to the simulator's own."""
