"""Scripted experts: they read positions from the simulator and answer with actions."""
