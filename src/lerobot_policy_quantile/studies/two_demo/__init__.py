"""Two demonstrations, one start, opposite detours: which heads and decoders keep both routes (M33-M37)."""
