"""The types of policies that see the containers of an application."""

from __future__ import annotations

from dataclasses import dataclass

from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.replay import Progress
from torchx.supervisor.policies import Policy, Replica

RULE = "rule"
"""The fact with the rule by which a failure is not retried."""


@dataclass
class ContainerReplica(Replica):
    """A running attempt in a container.

    Attributes:
        container: the container, as it was read last.
    """

    container: Container


class ContainerPolicy(Policy[ContainerReplica]):
    """A policy that sees all containers."""

    def follow(self, progress: Progress) -> None:
        """Handles the state of the application, each time it is read."""
