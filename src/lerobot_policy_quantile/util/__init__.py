"""What every package may use: files, digests, processes, progress, names. Standard library and small helpers only."""
