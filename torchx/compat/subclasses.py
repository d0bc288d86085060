"""Schedulers of other packages: derived from an engine, or written for an earlier interface."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
"""The run options of a call from a package that passes none."""

_DERIVED: Mapping[str, tuple[str, ...]] = {
    "describe": ("_is_live", "describe_native", "exists", "glance", "reconcile", "wait"),
    "list": ("select",),
    "log_iter": ("log_chunks",),
    "_cancel_existing": ("cancel", "delete", "kill"),
}
"""Methods that return or do the same as a documented one, faster or with more detail."""

_PARAMETERS = {"list": 2, "_validate": 4}
"""The number of parameters that a runner passes; earlier versions passed fewer."""


class Adapted:
    """Adapts the scheduler classes of other packages when they are defined.

    A class that overrides a documented method of an engine does not inherit the engine's methods for the
    same purpose: an overridden ``describe`` counts for ``glance`` and ``wait``, too.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.partition(".")[0] != "torchx":
            _accept_extra_arguments(cls)
            _hide_derived_methods(cls)


def _accept_extra_arguments(cls: type[Any]) -> None:
    for name, count in _PARAMETERS.items():
        method = vars(cls).get(name)
        if callable(method) and (accepted := _accepted(method)) < count:
            setattr(cls, name, _without_extra_arguments(method, accepted))


def _hide_derived_methods(cls: type[Any]) -> None:
    order = cls.__mro__
    interface = order[order.index(Adapted) - 1]
    for name, derived in _DERIVED.items():
        overriding = next(place for place, base in enumerate(order) if name in vars(base))
        if order[overriding].__module__.partition(".")[0] == "torchx":
            continue  # an engine's own class, such as the one of its older interface
        for other in derived:
            owner = next((place for place, base in enumerate(order) if other in vars(base)), None)
            if owner is not None and overriding < owner < order.index(interface):
                # None hides an optional method: the class does not implement its protocol
                setattr(cls, other, getattr(interface, other, None))


def method_of_engine(scheduler: object, optional: Callable[Concatenate[Any, P], T]) -> Callable[P, T] | None:
    """Returns an optional method of a scheduler, also one that its class hides, or None.

    Args:
        scheduler: the scheduler.
        optional: the method, as its protocol declares it.
    """
    methods = (vars(base).get(optional.__name__) for base in type(scheduler).__mro__)
    method = next((method for method in methods if method is not None), None)
    if method is None:
        bound: Callable[P, T] | None = None
    else:
        bound = method.__get__(scheduler)
    return bound


def _accepted(method: Any) -> int:
    """Returns the number of positional parameters that a function accepts."""
    code = getattr(method, "__code__", None)
    if code is None or code.co_flags & 0x04:  # not a function of Python, or one with *args
        return 1 << 10
    return int(code.co_argcount)


def _without_extra_arguments(method: Callable[..., Any], accepted: int) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any) -> Any:
        return method(*args[:accepted])

    return call
