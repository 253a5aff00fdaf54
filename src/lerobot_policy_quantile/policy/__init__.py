"""What LeRobot's three files need: parts, tokenizer, normalisation, schedule, label noise, prefixes, checkpoints."""
