"""How a command ends early: missing packages, wrong usage, or an expected error in one line instead of a traceback."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import typer

from lerobot_policy_quantile.util.extras import missing_extras

P = ParamSpec("P")
R = TypeVar("R")


def needs(*extras: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a command that needs extras: where one is missing, print how to install it and exit with 2."""

    def checked(command: Callable[P, R]) -> Callable[P, R]:
        @wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            if message := missing_extras(*extras):
                typer.echo(f"qhead: {message}", err=True)
                raise typer.Exit(2)
            return command(*args, **kwargs)

        return run

    return checked


@contextmanager
def usage_errors(*errors: type[Exception]) -> Iterator[None]:
    """Report these errors as wrong usage: exit code 2 with a pointer to --help."""
    try:
        yield
    except errors as error:
        raise typer.BadParameter(str(error)) from None


@contextmanager
def exit_on(command: str, *errors: type[Exception]) -> Iterator[None]:
    """Print these errors as one line on standard error, `qhead COMMAND: MESSAGE`, and exit with 1."""
    try:
        yield
    except errors as error:
        typer.echo(f"qhead {command}: {error}", err=True)
        raise typer.Exit(1) from None
