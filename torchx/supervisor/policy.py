"""What happens next to a set of replicas: retries, fail-fast and the end, as a pure state machine.

It starts nothing and knows no process: events go in (a replica ended), actions come out (start these,
stop those, the application has ended). One set of rules thus serves every engine that has none of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

REPLICA, ROLE, APPLICATION = "REPLICA", "ROLE", "APPLICATION"


class RoleRules(NamedTuple):
    """How the replicas of one role are retried.

    Attributes:
        name: the role.
        replicas: the ordinals of its replicas within the application.
        max_retries: how often a failure may be answered by a new start.
        retry_policy: what is started again: REPLICA, ROLE or APPLICATION.
    """

    name: str
    replicas: range
    max_retries: int = 0
    retry_policy: str = APPLICATION


class Start(NamedTuple):
    """Start these replicas, each as its next attempt, ``delay`` seconds from now."""

    replicas: tuple[int, ...]
    delay: float = 0.0


class Stop(NamedTuple):
    """End these running replicas; ``why`` is told in the record."""

    replicas: tuple[int, ...]
    why: str


class Retry(NamedTuple):
    """A failure is answered by a new start; for the record only.

    Attributes:
        scope: REPLICA, ROLE or APPLICATION.
        failed: ordinal of the replica whose failure it answers.
        number: which retry of this scope it is, from 1.
        allowed: how many there may be.
        delay: seconds until the new start.
    """

    scope: str
    failed: int
    number: int
    allowed: int
    delay: float


class End(NamedTuple):
    """Nothing is left to do.

    Attributes:
        state: SUCCEEDED, FAILED or CANCELLED.
        first_failure: ordinal of the replica whose failure could not be mended; None without one.
    """

    state: str
    first_failure: int | None = None


Action = Start | Stop | Retry | End


class _Restart(NamedTuple):
    """A group on its way to a new start: it waits until all its members have ended."""

    members: range
    delay: float


@dataclass
class Gang:
    """The replicas of one application and the rules for them.

    Attributes:
        roles: the rules of each role; together they number all replicas from 0.
        fail_fast: a failure for good ends all the others.
        backoff: seconds before the first retry; doubled at each further one, up to ``max_backoff``.
        max_backoff: the longest wait before a retry, seconds.
        used_retries: how many retries have been used: by the ordinal of a replica, ``role NAME``, or
            ``application``. Given when the story of a job is taken up in its middle.
    """

    roles: Sequence[RoleRules]
    fail_fast: bool = True
    backoff: float = 1.0
    max_backoff: float = 60.0
    used_retries: dict[str | int, int] = field(default_factory=dict)
    cancelled: bool = field(default=False, init=False)
    first_failure: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._role_of = {n: role for role in self.roles for n in role.replicas}
        self._all = range(len(self._role_of))
        self._running: set[int] = set()
        self._waiting: set[int] = set()  # a start was ordered and has not been reported yet
        self._restarts: list[_Restart] = []
        self._for_good: set[int] = set()  # no retry is left for these: no restart of others starts them
        self._over = False
        self._lost = False  # it has failed; the rest is only being ended

    def begin(self) -> list[Action]:
        """Returns the first actions: start everything."""
        return [self._start(self._all)] if len(self._all) else [self._end("SUCCEEDED")]

    def started(self, replica: int) -> None:
        """A replica that was to be started runs now."""
        self._waiting.discard(replica)
        self._running.add(replica)

    def exited(self, replica: int, succeeded: bool, stopped: bool = False) -> list[Action]:
        """A replica has ended, or could not be started.

        Args:
            replica: its ordinal.
            succeeded: it ended by itself, with success.
            stopped: it was ended by a :class:`Stop`: what it returned does not count.
        """
        self._running.discard(replica)
        self._waiting.discard(replica)
        actions: list[Action] = []
        counts = not (succeeded or stopped or self.cancelled or self._is_restarting(replica))
        if counts and (self.first_failure is None or not self.fail_fast):
            actions += self._failed(replica)
        return actions + self._settle()

    def cancel(self) -> list[Action]:
        """Ends the application on request; replicas that have ended keep their result.

        One that has failed, so that its other replicas are being ended already, has failed all the same.
        """
        if self.cancelled or self._over:
            return []
        self.cancelled = True
        self._drop_starts()
        return self._stop(self._all, "cancelled") + self._settle()

    def give_up(self, replica: int) -> list[Action]:
        """A replica cannot be started at all: no retry mends that, and nothing of the start may stay."""
        self._running.discard(replica)
        if self.first_failure is None:
            self.first_failure = replica
        self._lost = self._lost or not self.cancelled
        self._drop_starts()
        return self._stop(self._all, "the start failed") + self._settle()

    def wants(self, replica: int) -> bool:
        """Tells whether a start that was ordered for this replica still stands."""
        return replica in self._waiting

    # --- the rules -------------------------------------------------------------------------------

    def _failed(self, replica: int) -> list[Action]:
        role = self._role_of[replica]
        scope, key, members = self._scope(role, replica)
        used = self.used_retries.get(key, 0)
        if used >= role.max_retries:
            if self.first_failure is None:
                self.first_failure = replica
            self._for_good.add(replica)
            if not self.fail_fast:
                return []
            self._lost = True
            self._drop_starts()
            return self._stop(self._all, f"{self._label(replica)} failed")
        self.used_retries[key] = used + 1
        delay = min(self.backoff * 2**used, self.max_backoff)
        retry = Retry(scope, replica, used + 1, role.max_retries, delay)
        # a smaller restart that was under way is part of this one now
        inside = [r for r in self._restarts if set(r.members) <= set(members)]
        self._restarts = [r for r in self._restarts if r not in inside]
        self._waiting.difference_update(members)
        self._restarts.append(_Restart(members, delay))
        return [retry, *self._stop(members, f"{self._label(replica)} failed; {scope.lower()} restarts")]

    def _scope(self, role: RoleRules, replica: int) -> tuple[str, str | int, range]:
        if role.retry_policy == REPLICA:
            return REPLICA, replica, range(replica, replica + 1)
        if role.retry_policy == ROLE:
            return ROLE, f"role {role.name}", role.replicas
        return APPLICATION, "application", self._all

    def _settle(self) -> list[Action]:
        """Orders the restarts whose members have all ended; tells the end when nothing is left."""
        actions: list[Action] = []
        for restart in list(self._restarts):
            if not any(n in restart.members for n in self._running):
                self._restarts.remove(restart)
                again = [n for n in restart.members if n not in self._for_good]
                actions.append(self._start(again, restart.delay))
        if self._over or self._running or self._waiting or self._restarts:
            return actions
        return [*actions, self._end(self._result())]

    def _result(self) -> str:
        if self._lost or (self.first_failure is not None and not self.cancelled):
            return "FAILED"
        return "CANCELLED" if self.cancelled else "SUCCEEDED"

    def _end(self, state: str) -> End:
        self._over = True
        return End(state, self.first_failure if state == "FAILED" else None)

    def _start(self, replicas: Sequence[int], delay: float = 0.0) -> Start:
        self._waiting.update(replicas)
        return Start(tuple(replicas), delay)

    def _stop(self, replicas: Sequence[int], why: str) -> list[Action]:
        running = tuple(n for n in replicas if n in self._running)
        return [Stop(running, why)] if running else []

    def _drop_starts(self) -> None:
        self._waiting.clear()
        self._restarts.clear()

    def _is_restarting(self, replica: int) -> bool:
        return any(replica in r.members for r in self._restarts)

    def _label(self, replica: int) -> str:
        role = self._role_of[replica]
        return f"{role.name}/{replica - role.replicas.start}"
