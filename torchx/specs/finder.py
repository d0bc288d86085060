"""Documented names for finding components."""

from torchx.discovery.errors import ComponentNotFoundException, ComponentValidationException
from torchx.discovery.find.documented import get_builtin_source, get_component, get_components

__all__ = [
    "ComponentNotFoundException",
    "ComponentValidationException",
    "get_builtin_source",
    "get_component",
    "get_components",
]
