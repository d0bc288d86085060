"""Imports that load a module at its first use, so that a command loads only the modules it needs.

Python 3.15 has the statement ``lazy import`` (PEP 810) for this; older versions need a block::

    with lazy_imports:
        from torchx.jobs import pruning

``pruning`` is loaded at the first access to one of its attributes. Type checkers, editors and the tests of
the structure of this project see a normal import.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class LazyModule:
    """A module that is loaded at the first access to one of its attributes.

    Args:
        name: its full name.
        known: attributes whose use does not load it.
    """

    __slots__ = ("_known", "_module", "_name")

    def __init__(self, name: str, known: Mapping[str, object] | None = None) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_known", known or {})
        object.__setattr__(self, "_module", None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of tools that inspect every object, such as doctest
            raise AttributeError(name)
        known = object.__getattribute__(self, "_known")
        if name in known:
            return known[name]
        return getattr(_load(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_load(self), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_load(self), name)

    def __repr__(self) -> str:
        return f"<lazy module `{object.__getattribute__(self, '_name')}`>"


def _load(lazy: LazyModule) -> Any:
    module = object.__getattribute__(lazy, "_module")
    if module is None:
        name = object.__getattribute__(lazy, "_name")
        loaded: object = sys.modules.get(name)
        if loaded is lazy:  # see postpone
            del sys.modules[name]
        module = importlib.import_module(name)
        object.__setattr__(lazy, "_module", module)
    return module


def lazy_names(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the ``__getattr__`` of a module that loads names of other modules at their first use.

    Args:
        module: its full name.
        homes: for each name, the full name of the module that defines it.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module `{module}` has no attribute `{name}`")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[module], name, value)  # later uses are direct
        return value

    return load


def postpone(*names: str, **known: Mapping[str, object]) -> None:
    """Makes each import of modules that are not loaded yet lazy, also those in modules of others.

    Args:
        names: their full names.
        known: further modules, with attributes whose use does not load them.
    """
    for name in (*names, *known):
        sys.modules.setdefault(name, LazyModule(name, known.get(name, {})))  # type: ignore[arg-type]


class _Package:
    """The result of an import with a list of names: each name is a module of the package."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return _module(f"{self._name}.{name}")


def _module(name: str) -> Any:
    return sys.modules.get(name) or LazyModule(name)


class _LazyImports:
    """The block of import statements; it may import modules only, by absolute names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._import = builtins.__import__
        self._thread = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._thread = threading.get_ident()
        self._import = builtins.__import__
        builtins.__import__ = self._lazy_import

    def __exit__(self, *exception: object) -> None:
        builtins.__import__ = self._import
        self._thread = 0
        self._lock.release()

    def _lazy_import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if threading.get_ident() != self._thread:  # another thread imports at the same time
            return self._import(name, globals, locals, fromlist or (), level)
        if level or (not fromlist and "." in name):
            raise ImportError(f"write `from package import module` to import `{name}` lazily")
        if fromlist:
            return _Package(name)
        return _module(name)


lazy_imports = _LazyImports()
"""Context manager: modules that are imported in its block are loaded at their first use."""
