"""Named components: the built-in ones and those of entry points."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import NamedTuple

from torchx.discovery.model import ComponentInfo, LinterMessage
from torchx.discovery.source.component_source import SourceFile, read_source
from torchx.discovery.source.docstrings import summary
from torchx.discovery.source.linter import problems
from torchx.discovery.source.outline import Outline, components
from torchx.plugins.groups import entry_points

GROUP = "torchx.components"
"""The group of entry points, and the package of the built-in components."""

BUILTIN = "built-in"


@dataclass(frozen=True)
class ComponentSource:
    """A module whose components, and those of its submodules, have names.

    Attributes:
        prefix: the prefix of each name; may be empty.
        module: the module's dotted name.
        origin: its source, as shown to users.
        function: the only function offered, None for all.
    """

    prefix: str
    module: str
    origin: str
    function: str | None = None

    @property
    def is_builtin(self) -> bool:
        """Whether it is part of this distribution."""
        return self.origin == BUILTIN

    @cached_property
    def spec(self) -> ModuleSpec | None:
        """The module's spec, found without importing it or a parent package; None if not found."""
        top, *rest = self.module.split(".")
        try:
            spec = importlib.util.find_spec(top)
        except (ValueError, ImportError):
            return None
        full = top
        for part in rest:
            full = f"{full}.{part}"
            places = None
            if spec:
                places = spec.submodule_search_locations
            spec = None
            if places is not None:
                spec = PathFinder.find_spec(full, places)
        return spec

    def modules(self) -> Iterator[tuple[str, str]]:
        """Yields the dotted name and the source file of each module."""
        if self.spec is not None:
            yield from _walk(self.spec, self.module)

    def name_of(self, module: str, function: str) -> str:
        """Returns the name of a component: ``utils.echo``."""
        if self.function is not None:
            return self.prefix or self.function
        below = module[len(self.module) + 1 :]
        return ".".join(p for p in (self.prefix, below, function) if p)


class Listed(NamedTuple):
    """A component of a source.

    Attributes:
        name: its full name.
        provider: its source.
        module: the dotted name of its module.
        outline: its outline.
        source: its source file.
    """

    name: str
    provider: ComponentSource
    module: str
    outline: Outline
    source: SourceFile


def component_sources() -> list[ComponentSource]:
    """Returns all sources in order of precedence: entry points, then the built-in components."""
    found: dict[tuple[str, str], ComponentSource] = {}
    for entry in entry_points(GROUP):
        module, _, function = entry.value.partition(":")
        dist = "an unknown distribution"
        if entry.dist:
            dist = entry.dist.name
        if entry.name.startswith("_"):
            prefix = ""
        else:
            prefix = entry.name
        function = function.partition("[")[0].strip()
        provider = ComponentSource(
            prefix, module.strip(), f"entry point `{entry.name}` of {dist}", function or None
        )
        found.setdefault((entry.name, entry.value), provider)
    return [*found.values(), ComponentSource("", GROUP, BUILTIN)]


def listed(everything: list[ComponentSource] | None = None) -> dict[str, Listed]:
    """Returns every named component, by name; reads source only."""
    found: dict[str, Listed] = {}
    for provider in component_sources() if everything is None else everything:
        for module, path in provider.modules():
            source = read_source(path)
            if isinstance(source, LinterMessage):
                continue
            for each in components(source):
                if provider.function in (None, each.name):
                    name = provider.name_of(module, each.name)
                    found.setdefault(name, Listed(name, provider, module, each, source))
    return found


def list_components() -> list[ComponentInfo]:
    """Lists the named components, including invalid ones; reads source and imports nothing.

    Entry points of missing modules, and modules with syntax errors, are listed with that problem.
    """
    everything = component_sources()
    found = [
        ComponentInfo(
            each.name,
            summary(each.outline.docstring),
            each.provider.origin,
            each.source.path,
            each.outline.node.lineno,
            tuple(problems(each.outline, each.source)),
        )
        for each in listed(everything).values()
    ]
    return sorted([*found, *_broken(everything)], key=lambda info: info.name)


def _broken(everything: list[ComponentSource]) -> Iterator[ComponentInfo]:
    for provider in everything:
        if provider.spec is None:
            text = f"{provider.origin} names the module `{provider.module}`, which is not installed"
            name = provider.prefix or provider.module
            yield ComponentInfo(name, "", provider.origin, "", 0, (LinterMessage(name, text, 1, 1),))
        for module, path in provider.modules():
            source = read_source(path)
            if isinstance(source, LinterMessage):
                name = provider.name_of(module, "").rstrip(".") or module
                yield ComponentInfo(name, "", provider.origin, path, source.line, (source,))


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
