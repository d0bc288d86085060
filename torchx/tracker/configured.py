"""The trackers that a job or a project has chosen: made by name, with their configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from torchx import settings
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.plugins.foreign import foreign
from torchx.suggestions import did_you_mean
from torchx.tracker.base import TrackerBase

with lazy_imports:
    from torchx import plugins as torchx_plugins

BUILT_IN: Mapping[str, str] = {"fsspec": "torchx.tracker.backend.fsspec:create"}
"""Name of a tracker -> what makes it, as ``module:function``; a plugin of the same name comes before it."""


def tracker_config_env_var_name(name: str) -> str:
    """Returns the variable that hands a tracker its configuration.

    >>> tracker_config_env_var_name("fsspec")
    'TORCHX_TRACKER_FSSPEC_CONFIG'
    """
    return f"TORCHX_TRACKER_{name.upper()}_CONFIG"


def tracker_factory_env_var_name(name: str) -> str:
    """Returns the name of the variable with a tracker's factory, ``module:function``, if it is not a plugin.

    >>> tracker_factory_env_var_name("mine")
    'TORCHX_TRACKER_MINE_FACTORY'
    """
    return f"TORCHX_TRACKER_{name.upper()}_FACTORY"


def trackers_from_environ() -> list[TrackerBase]:
    """Returns the trackers in ``$TORCHX_TRACKERS``: names, or factories as ``module:function``.

    Raises:
        UsageError: a tracker is unknown, or cannot be created with its configuration.
    """
    names = [name.strip() for name in os.environ.get(settings.TORCHX_TRACKERS, "").split(",")]
    configs = {name: os.environ.get(tracker_config_env_var_name(name)) for name in names if name}
    made_by = {name: os.environ.get(tracker_factory_env_var_name(name), "") for name in configs}
    return list(build_trackers(configs, made_by))


def build_trackers(
    configured: Mapping[str, str | None], factories: Mapping[str, str] | None = None
) -> Iterator[TrackerBase]:
    """Yields trackers.

    Args:
        configured: names of trackers with their configuration, e.g. the path of a file.
        factories: factories by name, as ``module:function``; others are plugins or built in.

    Raises:
        UsageError: a tracker is unknown, or cannot be created with its configuration.
    """
    for name, config in configured.items():
        reference = (factories or {}).get(name) or (name if ":" in name else "")
        if reference:
            make = _loaded(name, reference)
        else:
            make = _factory(name)
        hint = "it has no configuration"
        if config:
            hint = f"its configuration is `{config}`"
        with foreign(f"the tracker `{name}` cannot be created", hint):
            try:
                tracker = make(config)
            except ModuleNotFoundError as error:
                raise UsageError(
                    f"the tracker `{name}` needs the package `{error.name}` where it is used",
                    hint=f"pip install {error.name}",
                    code="missing_package",
                ) from error
        yield tracker


def _loaded(name: str, reference: str) -> Callable[[str | None], TrackerBase]:
    module, _, function = reference.partition(":")
    hint = "[torchx:tracker] takes NAME = MODULE:FUNCTION, or NAME = for a plugin"
    with foreign(f"the tracker `{name}` cannot be loaded from {reference}", hint):
        factory: Callable[[str | None], TrackerBase] = getattr(import_module(module), function)
    return factory


def _factory(name: str) -> Callable[[str | None], TrackerBase]:
    plugins = torchx_plugins.registry().get(torchx_plugins.PluginType.TRACKER)
    if name in plugins:
        return plugins[name]
    if name in BUILT_IN:
        module, _, function = BUILT_IN[name].partition(":")
        factory: Any = getattr(import_module(module), function)
        return factory  # type: ignore[no-any-return]  # the table above says what it is
    known = [*BUILT_IN, *plugins]
    raise UsageError(
        f"unknown tracker `{name}`",
        hint=did_you_mean(name, known, f"trackers: {', '.join(known)}"),
        code="unknown_tracker",
        facts={"given": name},
    )
