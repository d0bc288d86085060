"""The components that have a name of their own: the built-in ones and those of entry points."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import NamedTuple

from torchx.discovery.docstrings import summary
from torchx.discovery.linter import problems
from torchx.discovery.model import ComponentInfo, LinterMessage
from torchx.discovery.outline import Outline, components
from torchx.discovery.source import SourceFile, read_source

GROUP = "torchx.components"
"""The group of entry points, and the package of the built-in components."""

BUILTIN = "built-in"


@dataclass(frozen=True)
class Shelf:
    """A module, with all below it, whose components have names.

    Attributes:
        prefix: what stands before each name, empty for nothing.
        module: the module's dotted name.
        origin: where it comes from, for people.
        function: the one function that is offered, None for all.
    """

    prefix: str
    module: str
    origin: str
    function: str | None = None

    @property
    def is_builtin(self) -> bool:
        """Whether it came with this distribution."""
        return self.origin == BUILTIN

    @cached_property
    def spec(self) -> ModuleSpec | None:
        """Where the module is, found without importing it or a package above it; None when it is nowhere."""
        top, *rest = self.module.split(".")
        try:
            spec = importlib.util.find_spec(top)
        except (ValueError, ImportError):
            return None
        full = top
        for part in rest:
            full = f"{full}.{part}"
            places = spec.submodule_search_locations if spec else None
            spec = PathFinder.find_spec(full, places) if places is not None else None
        return spec

    def modules(self) -> Iterator[tuple[str, str]]:
        """Yields each module of the shelf by dotted name, with its source file."""
        if self.spec is not None:
            yield from _walk(self.spec, self.module)

    def name_of(self, module: str, function: str) -> str:
        """Returns the name of a component: ``utils.echo``."""
        if self.function is not None:
            return self.prefix or self.function
        below = module[len(self.module) + 1 :]
        return ".".join(p for p in (self.prefix, below, function) if p)


class Listed(NamedTuple):
    """A component on a shelf.

    Attributes:
        name: how to ask for it.
        shelf: where it stands.
        module: the dotted name of its module.
        outline: its outline.
        source: its source file.
    """

    name: str
    shelf: Shelf
    module: str
    outline: Outline
    source: SourceFile


def shelves() -> list[Shelf]:
    """Returns the shelves, the strongest first: entry points, then the built-in components."""
    from torchx.plugins.groups import entry_points

    found: dict[tuple[str, str], Shelf] = {}
    for entry in entry_points(GROUP):
        module, _, function = entry.value.partition(":")
        dist = entry.dist.name if entry.dist else "an unknown distribution"
        prefix = "" if entry.name.startswith("_") else entry.name
        function = function.partition("[")[0].strip()
        shelf = Shelf(prefix, module.strip(), f"entry point `{entry.name}` of {dist}", function or None)
        found.setdefault((entry.name, entry.value), shelf)
    return [*found.values(), Shelf("", GROUP, BUILTIN)]


def listed(everything: list[Shelf] | None = None) -> dict[str, Listed]:
    """Returns every named component, by name; reads source only."""
    found: dict[str, Listed] = {}
    for shelf in shelves() if everything is None else everything:
        for module, path in shelf.modules():
            source = read_source(path)
            if isinstance(source, LinterMessage):
                continue
            for each in components(source):
                if shelf.function in (None, each.name):
                    name = shelf.name_of(module, each.name)
                    found.setdefault(name, Listed(name, shelf, module, each, source))
    return found


def list_components() -> list[ComponentInfo]:
    """Lists the named components, those that can't be run too; reads source and imports nothing.

    Entry points whose module is nowhere, and modules that are no valid Python, stand in the list with
    that as their problem.
    """
    everything = shelves()
    found = [
        ComponentInfo(
            each.name,
            summary(each.outline.docstring),
            each.shelf.origin,
            each.source.path,
            each.outline.node.lineno,
            tuple(problems(each.outline, each.source)),
        )
        for each in listed(everything).values()
    ]
    return sorted([*found, *_broken(everything)], key=lambda info: info.name)


def _broken(everything: list[Shelf]) -> Iterator[ComponentInfo]:
    for shelf in everything:
        if shelf.spec is None:
            text = f"{shelf.origin} names the module `{shelf.module}`, which is not installed"
            name = shelf.prefix or shelf.module
            yield ComponentInfo(name, "", shelf.origin, "", 0, (LinterMessage(name, text, 1, 1),))
        for module, path in shelf.modules():
            source = read_source(path)
            if isinstance(source, LinterMessage):
                name = shelf.name_of(module, "").rstrip(".") or module
                yield ComponentInfo(name, "", shelf.origin, path, source.line, (source,))


def _walk(spec: ModuleSpec, name: str) -> Iterator[tuple[str, str]]:
    if spec.origin and spec.origin.endswith(".py"):
        yield name, spec.origin
    for folder in map(Path, spec.submodule_search_locations or ()):
        for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
            if entry.suffix == ".py" and entry.stem.isidentifier() and not entry.stem.startswith("__"):
                yield f"{name}.{entry.stem}", str(entry)
            elif (entry / "__init__.py").is_file() and entry.name.isidentifier():
                below = PathFinder.find_spec(f"{name}.{entry.name}", [str(folder)])
                if below is not None:
                    yield from _walk(below, f"{name}.{entry.name}")
