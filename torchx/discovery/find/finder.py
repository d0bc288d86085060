"""Finds a component by its name: its file is linted, imported and inspected."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from torchx.discovery.call.signature import Signature, read_signature
from torchx.discovery.errors import ComponentError, ComponentNotFoundException, ComponentValidationException
from torchx.discovery.find.catalogue import ComponentSource, component_sources, listed
from torchx.discovery.find.importing import SearchPath, load_file, load_module
from torchx.discovery.find.locate import FileRef, ModuleRef, find_listed, module_file, not_found, parse_name
from torchx.discovery.model import Component, LinterMessage
from torchx.discovery.source.component_source import SourceFile, open_source, read_source
from torchx.discovery.source.linter import no_such_function, problems
from torchx.discovery.source.outline import BUILD, Outline, outline
from torchx.discovery.source.places import blame, describe_exception, shown
from torchx.errors import TorchxError
from torchx.specs.app import AppDef

TRACEBACK = "full traceback: torchx --debug"

Load = Callable[[], tuple[ModuleType, SearchPath]]


def find_component(name: str, *, cwd: str | None = None) -> Component:
    """Finds a component and prepares it for a call; imports no other component.

    Args:
        name: ``utils.echo``, ``train.py:trainer``, ``pkg.module:trainer`` or ``pkg.module.trainer``.
        cwd: the folder of relative paths and of modules that are not installed.

    Raises:
        ComponentNotFoundException: no component has this name.
        ComponentValidationException: it is not a valid component.
        ComponentError: the import of its file fails.
    """
    folder = Path(cwd or Path.cwd()).resolve()
    reference = parse_name(name, folder)
    if isinstance(reference, FileRef):
        path = reference.path
        return _prepare(name, str(path), reference.function, lambda: load_file(path))
    if isinstance(reference, ModuleRef):
        return _from_module(name, reference.module, reference.function, folder)
    found = find_listed(name, component_sources())
    if found is not None:
        return _from_provider(name, *found)
    module, _, function = name.rpartition(".")
    if module and module_file(module, folder):
        return _from_module(name, module, function, folder)
    raise not_found(name)


def all_components(everything: list[ComponentSource] | None = None) -> dict[str, Component]:
    """Imports all named components and returns the valid ones, by name.

    Args:
        everything: their sources (default: all).
    """
    ready = {}
    for name, each in listed(everything).items():
        try:
            ready[name] = _from_provider(name, each.provider, each.module, each.outline.name)
        except (ComponentNotFoundException, ComponentValidationException, ComponentError):
            continue  # `list_components` reports the problem
    return ready


def component_of(fn: Callable[..., Any]) -> Component:
    """Makes a component of a function object.

    Raises:
        ComponentValidationException: its signature is not valid for a component.
    """
    path, found = _own_source(fn)
    called = str(getattr(fn, "__name__", type(fn).__name__))
    return _checked(called, fn, path, found, None, False)


def _from_provider(name: str, provider: ComponentSource, module: str, function: str) -> Component:
    path = dict(provider.modules())[module]
    return _prepare(
        name, path, function, lambda: (import_module(module), SearchPath([])), provider.is_builtin
    )


def _from_module(name: str, module: str, function: str, folder: Path) -> Component:
    path = module_file(module, folder)
    if path is None:
        hint = f"looked in {shown(folder)} and in {sys.prefix}"
        raise ComponentNotFoundException(f"no module `{module}`", hint=hint)
    return _prepare(name, path, function, lambda: load_module(module, folder))


def _prepare(name: str, path: str, function: str, load: Load, is_builtin: bool = False) -> Component:
    """Lints a function, imports its file and reads its signature."""
    source = open_source(path)
    if isinstance(source, LinterMessage):
        raise ComponentValidationException(name, [source])
    if function not in source.names and not source.has_star_import:
        raise no_such_function(source, function)
    found = None
    if function in source.definitions:
        found = outline(source.definitions[function], source, function)
    if found is not None and (faults := _source_problems(found, source)):
        raise ComponentValidationException(name, faults)
    try:
        module, search = load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() in a user's file ends that file, not this program
        raise import_error(error, path) from error
    target = getattr(module, function, None)
    if target is None:
        raise no_such_function(source, function)
    with search.active():
        return _checked(name, target, path, found, search, is_builtin)


def _source_problems(found: Outline, source: SourceFile) -> Sequence[LinterMessage]:
    faults = problems(found, source)
    if found.function is None:  # build() may be inherited from a class of another file
        faults = [f for f in faults if "method `build`" not in f.description]
    return faults


def _checked(
    name: str,
    target: Any,
    path: str,
    found: Outline | None,
    search: SearchPath | None,
    is_builtin: bool,
) -> Component:
    """Checks an imported object and makes a component of it."""
    if not callable(target):
        raise ComponentValidationException(
            f"`{name}` has type {type(target).__name__}, and a component is a function"
        )
    if inspect.isclass(target) and not callable(getattr(target, BUILD, None)):
        raise ComponentValidationException(
            f"`{name}` is a class without a method `build`; add one that returns AppDef"
        )
    if found is None:
        place, found = _own_source(target)
        if found:
            path = place
    signature = read_signature(target, found, path)
    if signature.problems:
        raise ComponentValidationException(name, signature.problems)
    _check_return(name, target)
    return _component(name, target, path, found, signature, search, is_builtin)


def _component(
    name: str,
    target: Any,
    path: str,
    found: Outline | None,
    signature: Signature,
    search: SearchPath | None,
    is_builtin: bool,
) -> Component:
    if inspect.isclass(target):
        fn = _builder(target)
    else:
        fn = target
    line = found.node.lineno if found else 0
    return Component(name, fn, path, line, signature.parameters, signature.docs, is_builtin, search)


def _check_return(name: str, target: Any) -> None:
    if inspect.isclass(target):
        function = getattr(target, BUILD)
    else:
        function = target
    while isinstance(function, functools.partial):
        function = function.func
    annotation = getattr(inspect.unwrap(function), "__annotations__", {}).get("return")
    if annotation is None:
        raise ComponentValidationException(f"`{name}` has no return annotation; add `-> AppDef`")
    if isinstance(annotation, str):
        text = annotation
    else:
        text = getattr(annotation, "__name__", str(annotation))
    if text.strip("'\" ").rpartition(".")[2] != "AppDef" and not _resolves_to_appdef(function):
        raise ComponentValidationException(f"`{name}` returns `{text}`; a component returns AppDef")


def _resolves_to_appdef(function: Any) -> bool:
    try:
        return typing.get_type_hints(function).get("return") is AppDef
    except Exception:  # evaluates the user's annotations, which may raise anything
        return False


def _builder(kind: type) -> Callable[..., Any]:
    """Returns a function that makes an object of a class and calls its ``build()``."""

    def build(*args: Any, **kwargs: Any) -> Any:
        return kind(*args, **kwargs).build()

    build.__name__ = kind.__name__
    build.__qualname__ = kind.__qualname__
    build.__module__ = kind.__module__
    build.__doc__ = kind.__doc__
    build.__signature__ = inspect.signature(kind)  # type: ignore[attr-defined]  # a documented hook
    return build


def _own_source(target: Any) -> tuple[str, Outline | None]:
    """Returns the file of a function and its outline, or an empty path and None."""
    while isinstance(target, functools.partial):
        target = target.func
    target = inspect.unwrap(target)
    try:
        path = inspect.getsourcefile(target) or ""
        source = read_source(path)
    except (TypeError, OSError):
        return "", None
    name = getattr(target, "__qualname__", "")
    if isinstance(source, LinterMessage) or name not in source.definitions:
        return path, None
    return path, outline(source.definitions[name], source, name)


def import_error(error: BaseException, path: str) -> ComponentError:
    """Returns the error for a component file whose import fails."""
    return failure(f"{shown(path)} cannot be imported", error, path)


def failure(what: str, error: BaseException, path: str) -> ComponentError:
    """Returns the error for an exception in a user's code, with the line it comes from.

    Args:
        what: the failed action, the beginning of the message.
        error: the exception.
        path: the component's file; may be empty.
    """
    place = blame(error, path) if path else None
    where = f"  ({place})" if place else ""
    return ComponentError(
        f"{what}: {describe_exception(error)}{where}",
        path=place.path if place else None,
        line=place.line if place else None,
        hint=_advice(error),
    )


def _advice(error: BaseException) -> str | None:
    if isinstance(error, TorchxError):
        return error.hint
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.partition(".")[0]
        if top == "torchx":
            return f"this version of torchx has no `{error.name}`"
        if top == error.name or top not in sys.modules:
            return f"`{top}` is not installed for {sys.executable}"
    return TRACEBACK
