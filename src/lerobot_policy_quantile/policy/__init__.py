"""What LeRobot's three files need: parts, schedule, normalisation, label noise, prefix reuse, checkpoints."""
