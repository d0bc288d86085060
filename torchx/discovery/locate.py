"""What a component's name refers to: a file, a module or a named component; nothing is imported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from torchx.discovery.catalogue import Listed, Shelf, listed, shelves
from torchx.discovery.errors import ComponentNotFoundException
from torchx.discovery.model import LinterMessage
from torchx.discovery.outline import components
from torchx.discovery.places import shown
from torchx.discovery.source import open_source, read_source
from torchx.words import did_you_mean, nearest

ALL_COMPONENTS = "all components: torchx builtins"


class FileRef(NamedTuple):
    """``train.py:trainer``."""

    path: Path
    function: str


class ModuleRef(NamedTuple):
    """``pkg.module:trainer``."""

    module: str
    function: str


def parse_name(name: str, cwd: Path) -> FileRef | ModuleRef | None:
    """Tells what a name refers to by its form; None for a plain or dotted name.

    Args:
        name: as a person typed it.
        cwd: the folder that a relative path counts from.

    Raises:
        ComponentNotFoundException: it is cut short, or names a file that is not there.
    """
    left, colon, right = name.rpartition(":")
    if not colon:
        if name.endswith(".py") or os.sep in name:
            raise _no_function(name, cwd)
        return None
    if not left or not right:
        raise ComponentNotFoundException(
            f"`{name}` names no component", hint="e.g. utils.echo, train.py:trainer or pkg.module:trainer"
        )
    path = cwd / Path(left).expanduser()
    if left.endswith(".py") or os.sep in left or path.is_file():
        if not path.is_file():
            raise _no_file(left, path)
        return FileRef(path.resolve(), right)
    return ModuleRef(left, right)


def find_listed(name: str, everything: list[Shelf]) -> tuple[Shelf, str, str] | None:
    """Finds a named component among the shelves, reading no more source than it must.

    Returns:
        Its shelf, its module and the name of its function; None when there is none.
    """
    for shelf in everything:
        rest = _below(name, shelf)
        if rest is None:
            continue
        for module, path in shelf.modules():
            function = rest if shelf.function else _last(rest, module[len(shelf.module) + 1 :])
            if not function:
                continue
            source = read_source(path)
            if isinstance(source, LinterMessage) or function in source.names:
                return shelf, module, function
    return None


def locate_source(target: str) -> tuple[Path, str | None]:
    """Finds the file, and the function in it, that the linter is to look at.

    Args:
        target: ``FILE``, ``FILE:FUNCTION``, a folder, a named component, a module with or without function.

    Raises:
        ComponentNotFoundException: there is none.
    """
    path, cwd = Path(target).expanduser(), Path.cwd()
    if path.exists():
        return path, None
    if target.endswith(".py") or (os.sep in target and ":" not in target):
        raise _no_file(target, cwd / path)
    reference = parse_name(target, cwd)
    if isinstance(reference, FileRef):
        return reference.path, reference.function
    if reference is None:
        every = shelves()
        if found := find_listed(target, every):
            shelf, module, function = found
            return Path(dict(shelf.modules())[module]), function
        above, _, last = target.rpartition(".")
        names: list[tuple[str, str | None]] = [(target, None), (above, last)]
    else:
        names = [(reference.module, reference.function)]
    for module, wanted in names:
        if module and (file := module_file(module, cwd)):
            return Path(file), wanted
    raise not_found(target)


def module_file(name: str, cwd: Path) -> str | None:
    """Returns the source file of a module, in the given folder or installed; None when there is none."""
    local = cwd.joinpath(*name.split("."))
    for path in (local.with_name(local.name + ".py"), local / "__init__.py"):
        if path.is_file():
            return str(path)
    spec = Shelf("", name, "").spec
    return spec.origin if spec and spec.origin and spec.origin.endswith(".py") else None


def not_found(name: str) -> ComponentNotFoundException:
    """Returns the error for a name that nothing answers to, with the nearest that there is."""
    known: dict[str, Listed] = listed()
    close = did_you_mean(name, known, ALL_COMPONENTS)
    if not nearest(name, known):
        close = f"{ALL_COMPONENTS}   your own: FILE.py:FUNCTION or pkg.module:FUNCTION"
    return ComponentNotFoundException(f"no component `{name}`", hint=close)


def _below(name: str, shelf: Shelf) -> str | None:
    if shelf.function:
        return shelf.function if name == (shelf.prefix or shelf.function) else None
    if not shelf.prefix:
        return name
    return name[len(shelf.prefix) + 1 :] if name.startswith(shelf.prefix + ".") else None


def _last(rest: str, below: str) -> str | None:
    """Returns the function that the rest of a name stands for in a module, None when it is not in it."""
    module, _, function = rest.rpartition(".")
    return function if module == below else None


def _no_function(name: str, cwd: Path) -> ComponentNotFoundException:
    path = cwd / Path(name).expanduser()
    if not path.is_file():
        return _no_file(name, path)
    source = open_source(path)
    known = [] if isinstance(source, LinterMessage) else [each.name for each in components(source)]
    hint = "   ".join(f"{name}:{each}" for each in known) or f"e.g. {name}:trainer"
    return ComponentNotFoundException(f"which component of {shown(path)}? a name is FILE:FUNCTION", hint=hint)


def _no_file(name: str, path: Path) -> ComponentNotFoundException:
    folder = path.absolute().parent
    if not folder.is_dir():
        return ComponentNotFoundException(f"no folder `{Path(name).parent}`", hint=f"looked for {folder}")
    close = nearest(path.name, [f.name for f in folder.iterdir() if f.suffix == ".py"])
    hint = f"did you mean `{Path(name).with_name(close)}`?" if close else f"looked for {path.absolute()}"
    return ComponentNotFoundException(f"no file `{name}`", hint=hint)
