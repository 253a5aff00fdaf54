"""What parts of the package need beyond the policy: extras of the distribution, asked for when a command starts."""

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import ParamSpec, TypeVar

import typer

DISTRIBUTION = "lerobot_policy_quantile"
EXTRAS = {
    "sim": ("libero", "mujoco", "numba", "OpenGL", "robosuite"),
    "serve": ("msgpack", "prometheus_client", "websockets"),
    "report": ("jinja2", "markupsafe", "matplotlib"),
    "cluster": ("ray",),
}
"""Extra -> the modules it brings. `[all]` brings every extra."""

P = ParamSpec("P")
R = TypeVar("R")


def missing_modules(extra: str) -> list[str]:
    """Modules of an extra that cannot be found; none of them is imported."""
    return [module for module in EXTRAS[extra] if find_spec(module) is None]


def missing_extras(*extras: str) -> str | None:
    """One sentence that names the extras to install, or None if everything is there."""
    absent = {extra: missing_modules(extra) for extra in extras}
    absent = {extra: modules for extra, modules in absent.items() if modules}
    if not absent:
        return None
    modules = ", ".join(module for found in absent.values() for module in found)
    return f"this needs {modules}, which are not installed: pip install '{DISTRIBUTION}[{','.join(absent)}]'"


def needs(*extras: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A command that ends with that sentence, and exit code 2, before it does anything else."""

    def checked(command: Callable[P, R]) -> Callable[P, R]:
        @wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            if sentence := missing_extras(*extras):
                typer.echo(f"qhead: {sentence}", err=True)
                raise typer.Exit(2)
            return command(*args, **kwargs)

        return run

    return checked
