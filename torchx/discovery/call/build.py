"""Calls components, and locates failures in the user's file."""

from __future__ import annotations

from typing import Any

from torchx import masking
from torchx.discovery.errors import ComponentError
from torchx.discovery.find.finder import failure
from torchx.discovery.model import VARARGS, Arguments, Component
from torchx.discovery.source.places import blame, shown
from torchx.errors import TorchxError, UsageError
from torchx.specs.app import AppDef


def call(component: Component, arguments: Arguments) -> Any:
    """Calls a component and returns its result; its exceptions pass through."""
    before = [p for p in component.parameters if p.by_position and p.kind != VARARGS]
    values = dict(arguments.values)
    positional = [values.pop(p.name) for p in before]
    if component.search is None:
        return component.fn(*positional, *arguments.varargs, **values)
    with component.search.active():
        return component.fn(*positional, *arguments.varargs, **values)


def build_app(component: Component, arguments: Arguments) -> AppDef:
    """Calls a component, whose secret arguments are masked in all later output.

    Args:
        component: what to call.
        arguments: the arguments of the call.

    Raises:
        ComponentError: its function raised, or returned something else than an AppDef; the message points
            into its file, and the exception is the cause.
    """
    masking.add_values(masking.secrets_in_environment(arguments.values))
    try:
        app = call(component, arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() in a component ends the component, not this program
        failed = _failed(component, error)
        if arguments.origins and isinstance(error, (ValueError, UsageError)):
            origins = ", ".join(f"`{key}` from {origin}" for key, origin in arguments.origins.items())
            failed.message += f" ({origins})"
        if failed is error:
            raise
        raise failed from error
    if not isinstance(app, AppDef):
        where = ""
        if component.path:
            where = f"  ({shown(component.path)}:{component.line})"
        raise ComponentError(
            f"{component.name} returned {type(app).__name__}, expected an AppDef{where}",
            path=component.path or None,
            line=component.line or None,
            hint="does it lack a `return`?" if app is None else None,
        )
    return app


def _failed(component: Component, error: BaseException) -> TorchxError:
    if isinstance(error, TorchxError) and (component.is_builtin or not isinstance(error, UsageError)):
        return error
    if component.is_builtin and isinstance(error, ValueError):  # how a built-in refuses a combination
        return ComponentError(
            f"{component.name}: {error}", hint=f"its arguments: torchx run {component.name} --help"
        )
    if isinstance(error, UsageError):
        place = blame(error, component.path) if component.path else None
        if place is None:
            return ComponentError(error.message, hint=error.hint)
        return ComponentError(
            f"{error.message}  ({place})", path=place.path, line=place.line, hint=error.hint
        )
    return failure(f"{component.name} failed", error, component.path)
