"""Scripted experts: actions computed from privileged positions in the simulator."""
