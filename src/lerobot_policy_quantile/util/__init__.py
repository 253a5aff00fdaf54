"""What every package may use: files, digests, processes, progress, tables, names. Small helpers only."""
