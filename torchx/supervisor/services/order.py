"""The order in which roles start, and the time at which services are no longer needed: pure, without time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from torchx.services import ENDED_WHILE_NEEDED as ENDED_WHILE_NEEDED
from torchx.supervisor.actions import APPLICATION


class RoleRules(NamedTuple):
    """The retry rules of one role.

    Attributes:
        name: the role.
        replicas: the ordinals of its replicas within the application.
        max_retries: maximum number of retries.
        retry_policy: the scope of a restart: REPLICA, ROLE or APPLICATION.
        service: it is ended when all roles that are not services have ended; an earlier end is a failure.
        critical: a failure of the service is a failure of the application.
        after: the roles that must be ready (services) or have succeeded before it starts.
    """

    name: str
    replicas: range
    max_retries: int = 0
    retry_policy: str = APPLICATION
    service: bool = False
    critical: bool = True
    after: tuple[str, ...] = ()


class Order:
    """Decides which replicas may start, and when services are no longer needed.

    A replica is *done* if roles after its own need not wait for it: a ready one of a service, or one of an
    ordinary role that has succeeded.

    Args:
        roles: the rules of all roles.

    Attributes:
        held: the replicas that start when others are done.
        services: all replicas of services.
        released: services are no longer needed.
    """

    def __init__(self, roles: Sequence[RoleRules]) -> None:
        self._roles = {role.name: role for role in roles}
        self._role_of = {n: role for role in roles for n in role.replicas}
        self._missing = {role.name: set(role.replicas) for role in roles}  # those that are not done
        self._is_new = False  # a role was completed since the last call of `free`
        self.held: set[int] = set()
        self.services = [n for n, role in self._role_of.items() if role.service]
        self.released = False

    def hold(self, replicas: Iterable[int]) -> list[int]:
        """Returns those of these replicas that may start now; the others are held."""
        starting = list(replicas)
        for replica in starting:
            self._missing_like(replica).add(replica)
        self.held.update(starting)
        self.released = False
        return self.free(starting)

    def free(self, replicas: Iterable[int] | None = None) -> list[int]:
        """Returns the held replicas that may start now, and holds them no longer.

        Args:
            replicas: the replicas to consider (default: all).
        """
        if replicas is None:
            is_new, self._is_new = self._is_new, False
            if not is_new:
                return []
            replicas = sorted(self.held)
        wanted = [n for n in replicas if n in self.held]
        roles = {self._role_of[n].name for n in wanted}
        starting = {name for name in roles if not any(map(self._missing.get, self._roles[name].after))}
        free = [n for n in wanted if self._role_of[n].name in starting]
        self.held.difference_update(free)
        return free

    def ready(self, replica: int) -> None:
        """Handles that a replica of a service is ready."""
        self._complete(replica)

    def ended(self, replica: int, succeeded: bool) -> bool:
        """Handles the end of a replica; returns True if it has not failed.

        Args:
            replica: its ordinal.
            succeeded: it ended by itself with exit code 0.
        """
        if self._role_of[replica].service:
            self._missing_like(replica).add(replica)
            return self.released
        if succeeded:
            self._complete(replica)
        return succeeded

    def is_service(self, replica: int) -> bool:
        """Returns True for a replica of a service."""
        return self._role_of[replica].service

    def tolerates(self, replica: int) -> bool:
        """Handles a permanent failure; returns True if the application continues without the replica."""
        role = self._role_of[replica]
        if not role.service or role.critical:
            return False
        self._complete(replica)
        return True

    def release(self, *active: Collection[int]) -> bool:
        """Returns True if no ordinary replica runs or will start; then no replica is held any longer.

        Args:
            active: the replicas that run, and those that are to start.
        """
        if self.released or not (self.services or self.held):
            return False
        # most often there are more than services
        if any(len(part) > len(self.services) or not all(map(self.is_service, part)) for part in active):
            return False
        waiting = {self._role_of[n].name for n in self.held if not self.is_service(n)}
        possible = self._possible(set().union(*active)) if waiting else ()
        if any(self._all_in(self._roles[name].after, possible) for name in waiting):
            return False
        self.held.clear()
        self.released = True
        return True

    def _missing_like(self, replica: int) -> set[int]:
        """Returns the replicas of the same role that are not done."""
        return self._missing[self._role_of[replica].name]

    def _complete(self, replica: int) -> None:
        missing = self._missing_like(replica)
        missing.discard(replica)
        self._is_new = self._is_new or not missing

    def _possible(self, active: set[int]) -> set[str]:
        """Returns the roles that are done, or may still be."""
        possible = {name for name, left in self._missing.items() if not left or left & active}
        waiting = {name for name, left in self._missing.items() if left & self.held} - possible
        # the longest order of roles has a round for each: no recursion
        while more := {name for name in waiting if self._all_in(self._roles[name].after, possible)}:
            possible |= more
            waiting -= more
        return possible

    def _all_in(self, names: Iterable[str], roles: Collection[str]) -> bool:
        """Returns True if these roles, as far as they exist, are among others."""
        return all(name in roles for name in names if name in self._roles)
