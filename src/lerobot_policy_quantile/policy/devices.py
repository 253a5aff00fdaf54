"""Where policies compute: what the user names, or the best there is."""

KINDS = ("cuda", "mps", "cpu")


def choose_device(named: str | None) -> str:
    """The device a user named, which must be there; without a name a GPU before Apple's before the processor."""
    import torch

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if named is None:
        return next(kind for kind in KINDS if there[kind])
    kind, _, number = named.partition(":")
    if not there.get(kind, False) or (number and not number.isdecimal()):
        found = ", ".join(kind for kind in KINDS if there[kind])
        raise ValueError(f"--device must be one of those on this machine, {found}; got {named!r}")
    return named
