"""Checks of what closed-loop evaluation needs on this machine, each with a fix."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from lerobot_policy_quantile.util.extras import DISTRIBUTION, EXTRAS, missing_extras
from lerobot_policy_quantile.util.findings import Finding

GL_FIX = (
    "install OpenGL (Debian, Ubuntu: apt-get install libegl1 libgl1-mesa-dri; Fedora: dnf install mesa-libEGL"
    " mesa-dri-drivers) and set MUJOCO_GL=egl, or MUJOCO_GL=osmesa with libosmesa6"
)

_RENDER = """
import mujoco
model = mujoco.MjModel.from_xml_string('<mujoco><worldbody><light pos="0 0 3"/><geom size="1"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 32, 32) as renderer:
    renderer.update_scene(data)
    print("brightest pixel", int(renderer.render().max()), flush=True)
"""


def examine() -> list[Finding]:
    """Run every check, in the order in which a new user would meet the problems."""
    return [*check_versions(), check_sqlite(), check_rendering(), check_assets(), check_threads()]


def check_versions() -> Iterator[Finding]:
    """Installed packages against this distribution's requirements; the simulator's are exact pins.

    A missing package of an extra is a warning; a package of the wrong version is a failure.
    """
    for text in requires(DISTRIBUTION) or []:
        requirement = Requirement(text)
        extra = _extra_of(requirement)
        if extra is None:
            continue
        wanted = str(requirement.specifier)
        fix = f"pip install '{requirement.name}{wanted}'"
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            if extra:
                fix = f"pip install '{DISTRIBUTION}[{extra}]'"
            yield Finding(requirement.name, "warn" if extra else "fail", "not installed", fix)
            continue
        fits = requirement.specifier.contains(installed, prereleases=True)
        yield Finding(requirement.name, "ok" if fits else "fail", f"{installed} (wanted {wanted})", "" if fits else fix)


def _extra_of(requirement: Requirement) -> str | None:
    """The extra that a requirement belongs to on this machine; empty for none, None if it does not apply."""
    if requirement.marker is None:
        return ""
    return next((extra for extra in ("", *EXTRAS) if requirement.marker.evaluate({"extra": extra})), None)


def check_sqlite(found: tuple[int, ...] = sqlite3.sqlite_version_info) -> Finding:
    """SQLite 3.37 or newer, for the STRICT tables of the journal."""
    text = ".".join(map(str, found))
    if found < (3, 37):
        return Finding("sqlite", "fail", f"{text} (wanted >=3.37)", "use a Python built with SQLite 3.37 or newer")
    return Finding("sqlite", "ok", text)


def check_rendering(code: str = _RENDER) -> Finding:
    """Render one image in a separate process, because a missing driver may crash the process."""
    if absent := missing_extras("sim"):
        return Finding("rendering", "warn", "no simulator", absent)
    import lerobot_policy_quantile.scenes.simulator  # noqa: F401  chooses a MUJOCO_GL where none is set

    backend = os.environ.get("MUJOCO_GL", "(not set)")
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return Finding("rendering", "fail", f"MUJOCO_GL={backend}: no picture within 120 s", GL_FIX)
    if "brightest pixel" not in done.stdout or "brightest pixel 0" in done.stdout:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Finding("rendering", "fail", f"MUJOCO_GL={backend}: {last}", GL_FIX)
    return Finding("rendering", "ok", f"MUJOCO_GL={backend}: a picture came out")


def check_assets(find: Callable[[], object] | None = None) -> Finding:
    """LIBERO's meshes and textures; the embedded scene needs none."""
    from lerobot_policy_quantile.scenes.libero.assets import find_assets

    try:
        return Finding("LIBERO assets", "ok", str((find or find_assets)()))
    except ValueError as error:
        return Finding("LIBERO assets", "warn", str(error), "set QHEAD_LIBERO_DATA; the embedded scene needs none")


def check_threads() -> Finding:
    """One thread per worker process: more threads compete for the same cores."""
    cores, threads = os.cpu_count() or 1, os.environ.get("OMP_NUM_THREADS")
    if threads is None:
        return Finding("threads", "ok", f"{cores} cores; OMP_NUM_THREADS not set, `qhead eval` sets it to 1 in workers")
    if not threads.isdecimal() or int(threads) > 1:
        fix = "export OMP_NUM_THREADS=1, or use fewer workers"
        return Finding("threads", "warn", f"{cores} cores; OMP_NUM_THREADS={threads} in every worker", fix)
    return Finding("threads", "ok", f"{cores} cores; OMP_NUM_THREADS={threads}")
