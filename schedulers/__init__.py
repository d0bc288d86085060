"""Registry of schedulers: built-in ones and those of plugins, imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torchx.lazy import lazy_imports, lazy_names

with lazy_imports:
    from torchx import plugins as _plugins
    from torchx.plugins import foreign as _foreign
    from torchx.specs import handles as _handles

if TYPE_CHECKING:
    from torchx.scheduling.base import Scheduler

SchedulerFactory = Callable[..., "Scheduler[Any]"]
"""Takes the session name, and keyword arguments that a scheduler may ignore."""

DEFAULT_SCHEDULER = "local_cwd"

BUILT_IN: Mapping[str, str] = {
    "local_cwd": "torchx.schedulers.local.scheduler:create_cwd_scheduler",
    "local_dir": "torchx.schedulers.local.scheduler:create_dir_scheduler",
    "local_docker": "torchx.schedulers.docker.scheduler:create_scheduler",
    "kubernetes": "torchx.schedulers.kubernetes.scheduler:create_scheduler",
    "slurm": "torchx.schedulers.slurm.scheduler:create_scheduler",
    "gridengine": "torchx.schedulers.gridengine.scheduler:create_scheduler",
}
"""Maps scheduler names, as used in handles and on the command line, to ``module:function``."""


# many commands need only the names of the schedulers
__getattr__ = lazy_names(__name__, {"Scheduler": "torchx.scheduling.base"})


def get_default_scheduler_name() -> str:
    """Returns the name of the default scheduler."""
    return DEFAULT_SCHEDULER


def _lazy(reference: str) -> SchedulerFactory:
    def create(session_name: str, **params: Any) -> Scheduler[Any]:
        module, _, function = reference.partition(":")
        scheduler: Scheduler[Any] = getattr(import_module(module), function)(session_name, **params)
        return scheduler

    return create


def _wrap_plugin(name: str, make: SchedulerFactory) -> SchedulerFactory:
    """Wraps the factory of a plugin so that its exceptions name the plugin."""

    def create(session_name: str, **params: Any) -> Scheduler[Any]:
        with _foreign.foreign(
            f"scheduler plugin `{name}` cannot be made", "find its package with: torchx plugins"
        ):
            made = make(session_name, **params)
        if getattr(made, "records_its_name", False):
            made.backend = name  # its records and handles, not those of the scheduler it derives from
        return made

    return create


def get_scheduler_factories(*, skip_defaults: bool = False) -> dict[str, SchedulerFactory]:
    """Returns the factories of all schedulers, by name.

    Plugins cannot replace built-in schedulers: local jobs must not depend on installed plugins.

    Args:
        skip_defaults: only those of plugins.
    """
    plugins = _plugins.registry().get(_plugins.PluginType.SCHEDULER)
    wrapped = {name: _wrap_plugin(name, make) for name, make in plugins.items()}
    built_in = {} if skip_defaults else BUILT_IN
    return wrapped | {name: _lazy(reference) for name, reference in built_in.items()}


def create_scheduler(name: str, session_name: str, **params: Any) -> Scheduler[Any]:
    """Returns a scheduler by name; loads plugins only if the name is not built in.

    Raises:
        UnknownSchedulerException: the name is unknown.
    """
    if name in BUILT_IN:
        return _lazy(BUILT_IN[name])(session_name, **params)
    factories = get_scheduler_factories()
    if name not in factories:
        raise _handles.UnknownSchedulerException(name, known=list(factories))
    return factories[name](session_name, **params)
