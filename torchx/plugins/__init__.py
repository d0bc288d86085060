"""Plugins: how other packages add schedulers, named resources, trackers and event handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchx.plugins.fractions import (
        EIGHTH,
        HALF,
        QUARTER,
        SIXTEENTH,
        WHOLE,
        halve_mem_down_to,
        powers_of_two_gpus,
    )
    from torchx.plugins.installed import PluginRegistry, RegistrationError, registry
    from torchx.plugins.registration import PluginType, register
    from torchx.plugins.tags import resource_tags

__all__ = [
    "EIGHTH",
    "HALF",
    "QUARTER",
    "SIXTEENTH",
    "WHOLE",
    "PluginRegistry",
    "PluginType",
    "RegistrationError",
    "halve_mem_down_to",
    "powers_of_two_gpus",
    "register",
    "registry",
    "resource_tags",
]

_WHERE = {
    "EIGHTH": "fractions",
    "HALF": "fractions",
    "QUARTER": "fractions",
    "SIXTEENTH": "fractions",
    "WHOLE": "fractions",
    "PluginRegistry": "installed",
    "PluginType": "registration",
    "RegistrationError": "installed",
    "halve_mem_down_to": "fractions",
    "powers_of_two_gpus": "fractions",
    "register": "registration",
    "registry": "installed",
    "resource_tags": "tags",
}


def __getattr__(name: str) -> Any:
    # on demand: describing a resource needs the tags alone
    if name not in _WHERE:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
