"""Finds LIBERO's meshes and textures, and configures hf-libero before it is imported.

On a new machine hf-libero prompts on standard input and downloads by itself. Both are avoided: a configuration folder
is prepared first, the assets are searched in fixed places, and if they are in none of them the error lists the places.
"""

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from lerobot_policy_quantile.util.digests import digest_tree

VARIABLE = "QHEAD_LIBERO_DATA"
HIDDEN = "none"
"""Value of the variable that hides the assets, wherever they are."""
HUB_DATASET = "lerobot/libero-assets"
REPOSITORIES = {
    "plus": "https://github.com/sylvestf/LIBERO-plus",
    "pro": "https://github.com/Zxy-MLlab/LIBERO-PRO",
}
"""What `qhead data` converts."""
MARK = Path("scenes") / "libero_floor_base_style.xml"  # a file that every complete asset folder has


def find_assets() -> Path:
    """The first folder with LIBERO's assets: the variable's, one beside the checkout, hf-libero's own, the hub's cache.

    Nothing is downloaded; `hf download --repo-type dataset lerobot/libero-assets` fills the hub's cache.
    """
    places = list(_places())
    for _, folder in places:
        if (folder / MARK).is_file():
            return folder
    listing = "\n".join(f"  {why}: {folder}" for why, folder in places)
    raise ValueError(f"LIBERO assets must be in one of these places; {MARK} was found in none:\n{listing}")


def _places() -> Iterator[tuple[str, Path]]:
    given = os.environ.get(VARIABLE)
    if given == HIDDEN:
        yield VARIABLE, Path("(none: nowhere else is looked)")
        return
    if given is None:
        yield VARIABLE, Path("(not set)")
    else:
        yield VARIABLE, Path(given) / "assets"
        yield VARIABLE, Path(given)
    checkout = Path(__file__).resolve().parents[4]
    yield "beside the checkout", checkout.parent / "shared" / "libero-data" / "assets"
    yield "written by qhead data", data_home() / "assets"
    yield "inside hf-libero", libero_package() / "assets"
    yield "hf-libero's download", Path.home() / ".cache" / "libero" / "assets"
    yield f"hub cache of {HUB_DATASET}", _hub_snapshot()


def libero_package() -> Path:
    """The folder of the module `libero.libero`, found without importing it."""
    spec = find_spec("libero")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError("hf-libero must be installed for LIBERO scenes; run: pip install hf-libero==0.1.4")
    return Path(next(iter(spec.submodule_search_locations))) / "libero"


def _hub_snapshot() -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(HUB_DATASET, repo_type="dataset", local_files_only=True))
    except LocalEntryNotFoundError:
        return Path("(not in the cache)")


def data_home() -> Path:
    """Default output of `qhead data`: the variable's folder, or one in the user's cache."""
    given = os.environ.get(VARIABLE)
    return Path(given) if given and given != HIDDEN else Path.home() / ".cache" / "qhead" / "libero-data"


def find_data(part: str) -> Path:
    """The folder `plus` or `pro` with the data of LIBERO-Plus or LIBERO-Pro, without meshes.

    Where `qhead data` writes it, or beside the assets.
    """
    places = [data_home() / part, find_assets().parent / part]
    for place in places:
        if place.is_dir():
            return place
    url = REPOSITORIES[part]
    raise ValueError(
        f"LIBERO data must hold the folder {part!r}; looked for {', '.join(map(str, places))}; make it from the public"
        f" repository: git clone {url}, then qhead data {part} --from {url.rpartition('/')[2]}; or set {VARIABLE} to"
        " the folder that has it"
    )


@cache
def import_libero() -> ModuleType:
    """Import `libero.libero` with its configuration prepared and its assets found."""
    assets = find_assets()
    settings = Path(os.environ.get("LIBERO_CONFIG_PATH", "")) / "config.yaml"
    if "LIBERO_CONFIG_PATH" not in os.environ or not settings.is_file():
        os.environ["LIBERO_CONFIG_PATH"] = str(_write_settings(assets))
    import lerobot_policy_quantile.scenes.simulator  # noqa: F401  LIBERO imports robosuite

    # isort: split
    import libero.libero as module

    module._assets_path_cache = str(assets)
    return module  # type: ignore[no-any-return]


def _write_settings(assets: Path) -> Path:
    """A private folder for this process and its children, gone when it ends."""
    folder = Path(tempfile.mkdtemp(prefix="qhead-libero-"))
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    (folder / "config.yaml").write_text(libero_settings(assets), encoding="utf-8")
    return folder


def libero_settings(assets: Path) -> str:
    """The text of hf-libero's `config.yaml`: its own files, and the assets that were found."""
    root = libero_package()
    paths = {
        "benchmark_root": root,
        "bddl_files": root / "bddl_files",
        "init_states": root / "init_files",
        "datasets": root.parent / "datasets",
        "assets": assets,
    }
    return json.dumps({name: str(path) for name, path in paths.items()})  # JSON is YAML


@cache
def assets_hash(assets: Path) -> str:
    """Twelve hex digits over every file's path and content; rows of different assets are never mixed."""
    return digest_tree(assets)[:12]


@cache
def stand_ins(assets: Path) -> list[str]:
    """Files that stand in for originals, as `MANIFEST.txt` beside the assets lists them; none without such a list."""
    manifest = assets.parent / "MANIFEST.txt"
    if not manifest.is_file():
        return []
    lines = manifest.read_text(encoding="utf-8").splitlines()
    return [words[1] for line in lines if len(words := line.split()) > 1 and words[0] == "STANDIN"]
