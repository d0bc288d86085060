"""Warnings about names that are about to be removed, or have moved."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def deprecated(*, replacement: str | None = None) -> Callable[[F], F]:
    """Returns a decorator for a function or class, each call of which warns.

    Args:
        replacement: the name to use instead.
    """

    def decorate(target: F) -> F:
        @functools.wraps(target)
        def call(*args: Any, **kwargs: Any) -> Any:
            instead = ""
            if replacement:
                instead = f"; use {replacement}"
            warnings.warn(f"{target.__qualname__} is deprecated{instead}", UserWarning, stacklevel=2)
            return target(*args, **kwargs)

        return cast("F", call)

    return decorate


def deprecated_module(old_import: str, new_import: str, *, stacklevel: int = 3) -> None:
    """Warns that a module has moved; called by a module at its former place.

    Args:
        old_import: the former name.
        new_import: the present name.
        stacklevel: the frame that the warning is about (default: the importing module).
    """
    warnings.warn(f"the module {old_import} has moved to {new_import}", UserWarning, stacklevel=stacklevel)
