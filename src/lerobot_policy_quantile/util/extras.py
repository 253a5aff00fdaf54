"""Optional dependencies: the distribution's extras, and which of their modules are missing."""

from importlib.util import find_spec

DISTRIBUTION = "lerobot_policy_quantile"
EXTRAS = {
    "sim": ("libero", "mujoco", "numba", "OpenGL", "robosuite"),
    "serve": ("msgpack", "prometheus_client", "websockets"),
    "report": ("jinja2", "markupsafe", "matplotlib", "plotly"),
    "cluster": ("ray",),
    "rerun": ("rerun",),
}
"""Extra -> the modules it installs. `[all]` installs every extra."""


def missing_modules(extra: str) -> list[str]:
    """Modules of an extra that cannot be found; none of them is imported."""
    return [module for module in EXTRAS[extra] if find_spec(module) is None]


def missing_extras(*extras: str) -> str | None:
    """What is missing and the command that installs it, or None if everything is installed."""
    absent = {extra: missing_modules(extra) for extra in extras}
    absent = {extra: modules for extra, modules in absent.items() if modules}
    if not absent:
        return None
    modules = ", ".join(module for found in absent.values() for module in found)
    return f"this needs {modules}, which are not installed: pip install '{DISTRIBUTION}[{','.join(absent)}]'"
