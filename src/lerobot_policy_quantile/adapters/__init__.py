"""Implementations of `contract.py`: policies from folders, servers and scripts; worlds and policies by name."""
