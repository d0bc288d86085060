"""Documented names for finding components."""

from torchx.compat.finders import ComponentsFinder, CustomComponentsFinder, ModuleComponentsFinder
from torchx.discovery.errors import ComponentNotFoundException, ComponentValidationException
from torchx.discovery.find.documented import get_builtin_source, get_component, get_components

__all__ = [
    "ComponentNotFoundException",
    "ComponentValidationException",
    "ComponentsFinder",
    "CustomComponentsFinder",
    "ModuleComponentsFinder",
    "get_builtin_source",
    "get_component",
    "get_components",
]
