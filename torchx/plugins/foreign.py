"""Calls of other packages' code, which may raise anything; errors name the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torchx.errors import PluginError, TorchxError

BROKEN = (Exception, SystemExit)
"""The exceptions that foreign code may raise when imported or called, including SystemExit."""


@contextmanager
def foreign(what: str, hint: str) -> Iterator[None]:
    """Converts exceptions of foreign code to one-line errors; keeps errors of this project.

    Args:
        what: the beginning of the line: ``scheduler plugin `far` cannot be made``.
        hint: the next step for the user.

    Raises:
        PluginError: the code failed.

    >>> with foreign("plugin `far` cannot be loaded", hint="see torchx plugins"):
    ...     raise SystemExit(3)
    Traceback (most recent call last):
    torchx.errors.PluginError: plugin `far` cannot be loaded: SystemExit: 3
      see torchx plugins
    """
    try:
        yield
    except TorchxError:
        raise
    except BROKEN as error:
        raise PluginError(f"{what}: {one_line(error)}", hint=hint) from error


def one_line(error: BaseException) -> str:
    """Returns an exception as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
