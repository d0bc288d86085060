"""The requests of roles, beside which measurements are shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from torchx.scheduling.measurement import Requested

if TYPE_CHECKING:
    from torchx.specs.app import Role


def requests_of(roles: Iterable[Role]) -> dict[str, Requested]:
    """Returns the resources that each role requests for a replica."""
    return {
        role.name: Requested.of(role.resource.cpu, role.resource.memMB, role.resource.gpu) for role in roles
    }
