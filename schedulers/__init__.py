"""The engines: one module each, named here by string and loaded when one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchx.scheduling.base import Scheduler

SchedulerFactory = Callable[..., "Scheduler[Any]"]
"""Called with the session's name, and with keyword arguments that a scheduler may ignore."""

DEFAULT_SCHEDULER = "local_cwd"

BUILT_IN: Mapping[str, str] = {
    "local_cwd": "torchx.schedulers.local.scheduler:create_cwd_scheduler",
    "local_dir": "torchx.schedulers.local.scheduler:create_dir_scheduler",
    "local_docker": "torchx.schedulers.docker.scheduler:create_scheduler",
    "kubernetes": "torchx.schedulers.kubernetes.scheduler:create_scheduler",
    "slurm": "torchx.schedulers.slurm.scheduler:create_scheduler",
}
"""Name in handles and on the command line, and the factory as ``module:function``."""


def __getattr__(name: str) -> Any:
    if name == "Scheduler":  # on demand: many commands need no more than the names
        from torchx.scheduling.base import Scheduler

        return Scheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def get_default_scheduler_name() -> str:
    """Returns the scheduler that is used when none is named."""
    return DEFAULT_SCHEDULER


def _lazy(reference: str) -> SchedulerFactory:
    def create(session_name: str, **params: Any) -> Scheduler[Any]:
        module, _, function = reference.partition(":")
        scheduler: Scheduler[Any] = getattr(import_module(module), function)(session_name, **params)
        return scheduler

    return create


def _guarded(name: str, make: SchedulerFactory) -> SchedulerFactory:
    """Returns the factory of a plugin, whose mistakes are told as such."""

    def create(session_name: str, **params: Any) -> Scheduler[Any]:
        from torchx.plugins.foreign import foreign

        with foreign(f"scheduler plugin `{name}` cannot be made", "which package it is from: torchx plugins"):
            return make(session_name, **params)

    return create


def get_scheduler_factories() -> dict[str, SchedulerFactory]:
    """Returns the factories of all schedulers by name: those of plugins, and the built-in ones.

    The built-in names are not for plugins to take: a local job must not depend on what else is installed,
    and must not wait for a look at it.
    """
    from torchx.plugins import PluginType, registry

    plugins = registry().get(PluginType.SCHEDULER)
    guarded = {name: _guarded(name, make) for name, make in plugins.items()}
    return guarded | {name: _lazy(reference) for name, reference in BUILT_IN.items()}


def create_scheduler(name: str, session_name: str, **params: Any) -> Scheduler[Any]:
    """Returns a scheduler by name; plugins are looked for only when it is not a built-in one's.

    Raises:
        UnknownSchedulerException: there is none of this name.
    """
    if name in BUILT_IN:
        return _lazy(BUILT_IN[name])(session_name, **params)
    factories = get_scheduler_factories()
    if name not in factories:
        from torchx.specs.handles import UnknownSchedulerException

        raise UnknownSchedulerException(name, known=list(factories))
    return factories[name](session_name, **params)
