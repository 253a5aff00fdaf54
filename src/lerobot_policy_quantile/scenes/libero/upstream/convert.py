"""LIBERO-Plus or LIBERO-Pro from their public repositories into the data folder."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from lerobot_policy_quantile.scenes.libero.assets import VARIABLE, data_home
from lerobot_policy_quantile.scenes.libero.upstream.plus import convert_plus
from lerobot_policy_quantile.scenes.libero.upstream.pro import convert_pro
from lerobot_policy_quantile.scenes.libero.upstream.sources import add_assets

CONVERTERS = {"plus": convert_plus, "pro": convert_pro}


def convert(part: str, sources: Sequence[Path], out: Path | None, *, assets: bool) -> Iterator[str]:
    """Convert `plus` or `pro`, add the sources' assets, and describe what was made, line by line."""
    home = data_home() if out is None else out
    if missing := [str(source) for source in sources if not source.is_dir()]:
        raise ValueError(f"--from must be a folder; got {', '.join(missing)}")
    made = CONVERTERS[part](sources, home / part)
    added = add_assets(sources, home / "assets") if assets else 0
    yield from (f"{count:6,} {what}" for what, count in made.counts.items())
    yield from (f"cannot be run: {note}" for note in made.notes)
    if added:
        yield f"{added:6,} files of assets added to {home / 'assets'}"
    yield f"{made.folder}, {made.digest}; sha256 of every file in source.json"
    if home != data_home():
        yield f"to use it: export {VARIABLE}={home.absolute()}"
    yield f"what can be run: qhead eval --suite libero_{part} --dry-run"
