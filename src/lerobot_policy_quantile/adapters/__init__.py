"""What stands behind `contract.py`: policies from folders, servers and scripts, and worlds and policies by name."""
