"""Resolves component names to files, modules or named components; imports nothing."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

from torchx.discovery.errors import ComponentNotFoundException, ComponentValidationException
from torchx.discovery.find.catalogue import ComponentSource, Listed, component_sources, listed
from torchx.discovery.model import LinterMessage
from torchx.discovery.source.component_source import open_source, read_source
from torchx.discovery.source.outline import components
from torchx.discovery.source.places import shown
from torchx.machine.files import expanded
from torchx.suggestions import did_you_mean, near_path, nearest

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
    """Classifies a name by its form; None for a plain or dotted name.

    Args:
        name: the name that the user typed.
        cwd: the folder of relative paths.

    Raises:
        ComponentNotFoundException: it is incomplete, or names a missing file.
    """
    left, colon, right = name.rpartition(":")
    if not colon:
        if name.endswith(".py") or os.sep in name:
            raise _no_function(name, cwd)
        return None
    if not left or not right:
        raise ComponentNotFoundException(
            f"`{name}` is not a component name",
            hint="e.g. utils.echo, train.py:trainer or pkg.module:trainer",
        )
    path = cwd / expanded(left)
    if left.endswith(".py") or os.sep in left or path.is_file():
        if not path.is_file():
            raise _no_file(left, path)
        return FileRef(path.resolve(), right)
    return ModuleRef(left, right)


def find_listed(name: str, everything: list[ComponentSource]) -> tuple[ComponentSource, str, str] | None:
    """Finds a named component in the sources, reading as little source as possible.

    Returns:
        Its source, module and function name; None if not found.
    """
    for provider in everything:
        rest = _below(name, provider)
        if rest is None:
            continue
        for module, path in provider.modules():
            function = rest if provider.function else _last(rest, module[len(provider.module) + 1 :])
            if not function:
                continue
            source = read_source(path)
            if isinstance(source, LinterMessage) or function in source.names:
                return provider, module, function
    return None


def locate_source(target: str) -> tuple[Path, str | None]:
    """Finds the file and the function to lint.

    Args:
        target: ``FILE``, ``FILE:FUNCTION``, a folder, a named component, a module with or without function.

    Raises:
        ComponentNotFoundException: not found.
    """
    path, cwd = expanded(target), Path.cwd()
    if path.exists():
        return path, None
    if target.endswith(".py") or (os.sep in target and ":" not in target):
        raise _no_file(target, cwd / path)
    reference = parse_name(target, cwd)
    if isinstance(reference, FileRef):
        return reference.path, reference.function
    if reference is None:
        every = component_sources()
        if found := find_listed(target, every):
            provider, module, function = found
            return Path(dict(provider.modules())[module]), function
        above, _, last = target.rpartition(".")
        names: list[tuple[str, str | None]] = [(target, None), (above, last)]
    else:
        names = [(reference.module, reference.function)]
    for module, wanted in names:
        if module and (file := module_file(module, cwd)):
            return Path(file), wanted
    raise not_found(target)


def module_file(name: str, cwd: Path) -> str | None:
    """Returns the source file of a module, in the given folder or installed; None if not found."""
    local = cwd.joinpath(*name.split("."))
    for path in (local.with_name(local.name + ".py"), local / "__init__.py"):
        if path.is_file():
            return str(path)
    spec = ComponentSource("", name, "").spec
    if spec and spec.origin and spec.origin.endswith(".py"):
        return spec.origin
    return None


def not_found(name: str) -> ComponentNotFoundException:
    """Returns the error for an unknown name, with the nearest known one."""
    known: dict[str, Listed] = listed()
    close = did_you_mean(name, known, ALL_COMPONENTS)
    if not nearest(name, known):
        close = f"{ALL_COMPONENTS}   your own: FILE.py:FUNCTION or pkg.module:FUNCTION"
    if " " in name or (name.replace("-", "_").isidentifier() and shutil.which(name)):
        return _program(f"no component `{name}`", "utils.sh", name)
    return ComponentNotFoundException(f"no component `{name}`", hint=close)


def _below(name: str, provider: ComponentSource) -> str | None:
    if provider.function:
        if name == (provider.prefix or provider.function):
            return provider.function
        return None
    if not provider.prefix:
        return name
    if name.startswith(provider.prefix + "."):
        return name[len(provider.prefix) + 1 :]
    return None


def _last(rest: str, below: str) -> str | None:
    """Returns the function that the rest of a name denotes in a module, None if it is in another."""
    module, _, function = rest.rpartition(".")
    if module == below:
        return function
    return None


def _no_function(name: str, cwd: Path) -> ComponentNotFoundException | ComponentValidationException:
    path = cwd / expanded(name)
    if not path.is_file():
        return _no_file(name, path)
    is_python = name.endswith(".py")
    source = open_source(path)
    known: list[str] = []
    if not isinstance(source, LinterMessage):
        known = [each.name for each in components(source)]
    elif is_python:
        return ComponentValidationException(name, [source])
    if known:
        hint = "   ".join(f"{name}:{each}" for each in known)
        return ComponentNotFoundException(
            f"which component of {shown(path)}? name it as FILE:FUNCTION", hint=hint
        )
    message = f"{shown(path)} has no components"
    if is_python:
        return _program(message, "utils.python", "--script", name)
    return _program(message, "utils.sh", name)


def _program(message: str, *instead: str) -> ComponentNotFoundException:
    """Returns the error for a program in place of a component, with the arguments that run it."""
    error = ComponentNotFoundException(message, hint=f"to run it: torchx run {shlex.join(instead)}")
    error.instead = instead
    return error


def _no_file(name: str, path: Path) -> ComponentNotFoundException:
    folder = path.absolute().parent
    if not folder.is_dir():
        named = str(Path(name).parent)
        return ComponentNotFoundException(f"no folder `{named}`", hint=near_path(str(folder), name=named))
    return ComponentNotFoundException(f"no file `{name}`", hint=near_path(str(path), "*.py", name))
