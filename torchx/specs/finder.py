"""Documented door: finding components by name."""

from torchx.discovery.documented import get_builtin_source, get_component, get_components
from torchx.discovery.errors import ComponentNotFoundException, ComponentValidationException

__all__ = [
    "ComponentNotFoundException",
    "ComponentValidationException",
    "get_builtin_source",
    "get_component",
    "get_components",
]
