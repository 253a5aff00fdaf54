"""What several test files need: a small dataset, a toy environment, and the real command lines."""
