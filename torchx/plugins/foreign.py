"""The code of other packages: it may raise anything, and is told as what is to blame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torchx.errors import PluginError, TorchxError

BROKEN = (Exception, SystemExit)
"""What code of somebody else may raise when it is imported or called: an end of the process, too."""


@contextmanager
def foreign(what: str, hint: str) -> Iterator[None]:
    """Tells what code of another package raises in one line; errors that were raised on purpose stay.

    Args:
        what: the beginning of the line: ``scheduler plugin `far` cannot be made``.
        hint: what to look at next.

    Raises:
        PluginError: the code did not work.

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
        raise PluginError(f"{what}: {told(error)}", hint=hint) from error


def told(error: BaseException) -> str:
    """Returns an error of a program as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
