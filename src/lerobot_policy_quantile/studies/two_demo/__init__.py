"""Two demonstrations, one start, opposite detours: which heads and decoders keep both routes (App. B.3)."""
