"""Chunks that join while the robot moves: delays, sides that are kept, surprise after a push (`make real-time`)."""
