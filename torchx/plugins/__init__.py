"""Plugins: how other packages add schedulers, named resources, trackers and event handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx.lazy import lazy_names

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
    "EIGHTH": "torchx.plugins.fractions",
    "HALF": "torchx.plugins.fractions",
    "QUARTER": "torchx.plugins.fractions",
    "SIXTEENTH": "torchx.plugins.fractions",
    "WHOLE": "torchx.plugins.fractions",
    "PluginRegistry": "torchx.plugins.installed",
    "PluginType": "torchx.plugins.registration",
    "RegistrationError": "torchx.plugins.installed",
    "halve_mem_down_to": "torchx.plugins.fractions",
    "powers_of_two_gpus": "torchx.plugins.fractions",
    "register": "torchx.plugins.registration",
    "registry": "torchx.plugins.installed",
    "resource_tags": "torchx.plugins.tags",
}


# describing a resource needs the tags alone
__getattr__ = lazy_names(__name__, _WHERE)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
