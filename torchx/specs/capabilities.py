"""Typed access to the capabilities of a resource."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar, cast, get_origin, overload

from torchx.specs.resources import Resource
from torchx.specs.run_options import get_type_name

V = TypeVar("V")


@dataclass(frozen=True)
class CapabilityKey(Generic[V]):
    """A capability, identified by namespace and name.

    Attributes:
        namespace: its reader, e.g. a scheduler.
        name: its name there.
        type: the type of its value.

    >>> arch = CapabilityKey("cloud", "arch", str)
    >>> machine = Resource(cpu=1, gpu=0, memMB=512)
    >>> arch.set(machine, "arm64")
    >>> arch.get(machine), machine.capabilities
    ('arm64', {'cloud.arch': 'arm64'})
    """

    namespace: str
    name: str
    type: type[V]

    @property
    def key(self) -> str:
        """The key in ``Resource.capabilities``: namespace and name."""
        return f"{self.namespace}.{self.name}"

    def set(self, resource: Resource, value: V) -> None:
        """Sets the capability of a resource, in place.

        Raises:
            TypeError: the value is not of the capability's type.
        """
        resource.capabilities[self.key] = self._checked(value)

    @overload
    def get(self, resource: Resource) -> V | None: ...

    @overload
    def get(self, resource: Resource, default: V) -> V: ...

    def get(self, resource: Resource, default: V | None = None) -> V | None:
        """Returns the capability of a resource, or ``default``.

        Raises:
            TypeError: the value is not of the capability's type.
        """
        if self.key not in resource.capabilities:
            return default
        return self._checked(resource.capabilities[self.key])

    def _checked(self, value: object) -> V:
        kind = get_origin(self.type) or self.type
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return cast("V", value)
        raise TypeError(f"capability `{self.key}` must be {get_type_name(self.type)}, got {value!r}")
