"""Imports a user's file: finds its siblings, shadows nothing else, leaves no trace."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

# what this project imports by itself, at any time: a person's file of that name must not get in between
_OURS = frozenset({"torchx", "torchx_cli", "yaml", "fsspec", "docker", "rich", "typer", "docstring_parser"})
_lock = threading.RLock()
_RELATIVE = rb"(?m)^\s*from\s+\."


class _Quiet(SourceFileLoader):
    """Loads a source file and leaves no ``__pycache__`` in a person's folder."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """Writes nothing."""


class SearchPath:
    """The folders searched first for a component's imports, and the modules found there.

    Modules found there win over installed ones, as for a script. They never win over the standard
    library or over what this project needs; the component's own file never over an installed module.
    Outside :meth:`active` none of it shows: ``sys.path`` and ``sys.modules`` are as before, and two
    components with a ``helpers.py`` each get their own.

    Args:
        folders: the folders.
        own: the module name of the component's file; may be empty.
    """

    def __init__(self, folders: Sequence[Path], own: str = "") -> None:
        self.folders = [str(f.resolve()) for f in folders]
        self.own = own
        self._modules: dict[str, ModuleType] = {}
        self._found: set[str] = set()
        self._depth = 0

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Looks imports up here for as long as the block lasts."""
        with _lock:
            self._depth += 1
            if self._depth > 1:
                try:
                    yield
                finally:
                    self._depth -= 1
                return
            before = list(sys.path)
            hidden = self._hide()
            loaded = set(sys.modules)
            sys.modules.update(self._modules)
            self._forget_listings()
            sys.path += [f for f in self.folders if f not in sys.path]
            sys.meta_path.insert(0, self)
            try:
                yield
            finally:
                self._depth -= 1
                sys.meta_path.remove(self)
                # keeps the entries that the file added, and removes ours
                sys.path[:] = [p for p in sys.path if p in before or p not in self.folders]
                self._forget_listings()
                self._take_out(loaded)
                sys.modules.update(hidden)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        """Finds a module in the folders, or one that must not be shadowed; None defers to other finders."""
        top = name.partition(".")[0]
        if path is not None:
            if top in self._found:
                return _quiet(PathFinder.find_spec(name, path, None))
            return None
        if name in sys.stdlib_module_names or name in _OURS or name == self.own:
            elsewhere = self.elsewhere(name)
            if elsewhere is not None or name != self.own:
                return elsewhere
        spec = PathFinder.find_spec(name, self.folders)
        if spec is None or spec.loader is None:  # an installed package takes precedence over a plain folder
            return None
        self._found.add(name)
        return _quiet(spec)

    def elsewhere(self, name: str) -> ModuleSpec | None:
        """Finds a module without the folders; ignores namespace packages."""
        outside = [p for p in sys.path if str(Path(p).resolve()) not in self.folders]
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            path = outside if finder is PathFinder else None
            spec = finder.find_spec(name, path, None)
            if spec is not None and spec.loader is not None:
                return spec
        return None

    def adopt(self, name: str) -> None:
        """Records a module as found here."""
        self._found.add(name)

    def _hide(self) -> dict[str, ModuleType]:
        """Removes loaded modules with the name of a sibling or of a module imported here before."""
        siblings = {name for folder in self.folders for name in _importable(Path(folder))}
        siblings -= {self.own, *_OURS, *sys.stdlib_module_names}
        tops = {n for n in siblings & set(sys.modules) if not self._is_from_here(sys.modules[n])}
        tops |= {n.partition(".")[0] for n in self._modules}
        names = [n for n in sys.modules if n.partition(".")[0] in tops]
        return {name: sys.modules.pop(name) for name in names}

    def _is_from_here(self, module: ModuleType) -> bool:
        places = [*getattr(module, "__path__", [])] or [getattr(module, "__file__", None)]
        return any(str(Path(place).resolve().parent) in self.folders for place in places if place)

    def _forget_listings(self) -> None:
        for folder in self.folders:  # a file may be newer than Python's cached listing of its folder
            sys.path_importer_cache.pop(folder, None)

    def _take_out(self, loaded: set[str]) -> None:
        """Removes modules imported from the folders; they are restored when the path is active again."""
        tops = {n for n in set(sys.modules) - loaded if "." not in n and self._is_from_here(sys.modules[n])}
        for name in list(sys.modules):
            if name.partition(".")[0] in self._found | tops:
                self._modules[name] = sys.modules.pop(name)


def _importable(folder: Path) -> Iterator[str]:
    """Yields the names under which the modules and packages of a folder are imported."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.suffix == ".py" or (entry / "__init__.py").is_file():
            yield entry.stem


def _quiet(spec: ModuleSpec | None) -> ModuleSpec | None:
    if spec is not None and type(spec.loader) is SourceFileLoader and spec.origin:
        spec.loader = _Quiet(spec.name, spec.origin)
    return spec


def load_file(path: Path) -> tuple[ModuleType, SearchPath]:
    """Imports a Python file with its imports.

    A file in a package (a folder with ``__init__.py``) is imported as its submodule, so that relative
    imports work; if the package cannot be imported, a file without such imports is loaded alone.

    Returns:
        The module, and the search path of its imports, which must be active while its code runs.

    Raises:
        Exception: any exception that the file raises.
    """
    path = path.resolve()
    folder, stem = path.parent, path.stem
    root, package = _package(folder)
    if package:
        search = SearchPath([root, folder], own=stem)
        with search.active():
            if _is_ours(package, root / package.partition(".")[0], search):
                try:
                    importlib.import_module(package)
                except Exception:
                    if stem == "__init__" or re.search(_RELATIVE, path.read_bytes()):
                        raise
                else:
                    return importlib.import_module(
                        package if stem == "__init__" else f"{package}.{stem}"
                    ), search
    search = SearchPath([folder], own=stem)
    with search.active():
        taken = not stem.isidentifier() or stem in sys.modules or search.elsewhere(stem) is not None
        return _run_file(f"_component_{stem}" if taken else stem, str(path), search), search


def load_module(name: str, folder: Path) -> tuple[ModuleType, SearchPath]:
    """Imports a module by its dotted name, from the given folder or from the installed packages.

    Raises:
        Exception: any exception that the module raises; ModuleNotFoundError if it does not exist.
    """
    search = SearchPath([folder])
    with search.active():
        return importlib.import_module(name), search


def _run_file(name: str, path: str, search: SearchPath) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, loader=_Quiet(name, path))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    search.adopt(name)
    sys.modules[name] = module  # dataclasses and type hints look their module up here
    spec.loader.exec_module(module)
    return module


def _package(folder: Path) -> tuple[Path, str]:
    """Returns the folder above the outermost package that a folder is in, and the package's dotted name."""
    parts: list[str] = []
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


def _is_ours(package: str, folder: Path, search: SearchPath) -> bool:
    """Returns True if the package imported by this name is the one in this folder."""
    top = package.partition(".")[0]
    loaded = sys.modules.get(top)
    if loaded is not None:
        spec = loaded.__spec__
    else:
        spec = search.find_spec(top) or search.elsewhere(top)
    places = []
    if spec is not None:
        places = spec.submodule_search_locations or []
    return any(Path(p).resolve() == folder.resolve() for p in places)
