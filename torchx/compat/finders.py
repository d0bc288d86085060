"""Finders of components as classes; the functions of `torchx.specs.finder` find the same components."""

from __future__ import annotations

import abc
from types import ModuleType

from torchx.discovery.find.catalogue import ComponentSource
from torchx.discovery.find.documented import Validators, get_component, objections
from torchx.discovery.find.finder import all_components
from torchx.discovery.model import Component


class ComponentsFinder(abc.ABC):
    """Finds components."""

    @abc.abstractmethod
    def find(self, validators: Validators | None = None) -> list[Component]:
        """Returns the valid components.

        Args:
            validators: further checks.
        """


class ModuleComponentsFinder(ComponentsFinder):
    """Finds the components of a module and its submodules.

    Args:
        module: the module, or its name.
        group: the prefix of their names (default: their place below the module).
    """

    def __init__(self, module: str | ModuleType, group: str = "") -> None:
        if isinstance(module, str):
            name = module
        else:
            name = module.__name__
        self._source = ComponentSource(group, name, f"module {name}")

    def find(self, validators: Validators | None = None) -> list[Component]:
        """Returns the valid components."""
        return [each for each in all_components([self._source]).values() if not objections(each, validators)]


class CustomComponentsFinder(ComponentsFinder):
    """Finds one component.

    Args:
        filepath: its file, or the dotted name of its module.
        function_name: its name there.
    """

    def __init__(self, filepath: str, function_name: str) -> None:
        self._name = f"{filepath}:{function_name}"

    def find(self, validators: Validators | None = None) -> list[Component]:
        """Returns the component.

        Raises:
            ComponentNotFoundException: it does not exist.
            ComponentValidationException: it is not a valid component, or a check fails.
        """
        return [get_component(self._name, validators)]
