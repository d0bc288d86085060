"""The retry and fail-fast policy of a set of replicas, as a pure state machine.

It has no side effects: it takes events (a replica ended) and returns actions (start these, stop those, the
application has ended). All engines without such a policy of their own use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from torchx.services import NO_LONGER_NEEDED
from torchx.supervisor.actions import APPLICATION as APPLICATION
from torchx.supervisor.actions import REPLICA as REPLICA
from torchx.supervisor.actions import ROLE as ROLE
from torchx.supervisor.actions import Action as Action
from torchx.supervisor.actions import End as End
from torchx.supervisor.actions import Requeue as Requeue
from torchx.supervisor.actions import Retry as Retry
from torchx.supervisor.actions import Start as Start
from torchx.supervisor.actions import Stop as Stop
from torchx.supervisor.services.order import Order
from torchx.supervisor.services.order import RoleRules as RoleRules

if TYPE_CHECKING:
    from torchx.jobs.record import JobRecord

REQUEUED = "time-limit"
"""The key of the requeues among the used retries."""

COUNTED, FREE, NEVER = "counted", "free", "never"
"""Verdicts on a failure: a counted retry, a retry that uses up none of the allowed ones, or no retry."""


class _Restart(NamedTuple):
    """A group to restart once all its members have ended."""

    members: range
    delay: float


@dataclass
class Gang:
    """The replicas of one application and their rules.

    Attributes:
        roles: the rules of each role; together they number all replicas from 0.
        fail_fast: a permanent failure ends all other replicas.
        backoff: seconds before the first retry; doubled for each further one, up to ``max_backoff``.
        max_backoff: maximum seconds before a retry.
        used_retries: number of used retries by the ordinal of a replica, ``role NAME``, or ``application``,
            and of requeues by :data:`REQUEUED`; passed in to resume a running application.
        requeues: maximum number of requeues after a time limit.
    """

    roles: Sequence[RoleRules]
    fail_fast: bool = True
    backoff: float = 1.0
    max_backoff: float = 60.0
    used_retries: dict[str | int, int] = field(default_factory=dict)
    requeues: int = 0
    cancelled: bool = field(default=False, init=False)
    first_failure: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._order = Order(self.roles)
        self._role_of = {n: role for role in self.roles for n in role.replicas}
        self._all = range(len(self._role_of))
        self._running: set[int] = set()
        self._waiting: set[int] = set()  # start requested, but not reported yet
        self._restarts: list[_Restart] = []
        self._failed_permanently: set[int] = set()  # no retries left; restarts of others exclude these
        self._over = False
        self._lost = False  # the application has failed; the other replicas are being ended
        self.expired = False  # the time limit has ended the run
        self._noticed = False  # the programs know that the run will end
        self._interrupted: list[int] = []  # replicas that have ended unsuccessfully since the notice

    def begin(self) -> list[Action]:
        """Returns the first actions, which start all replicas."""
        if len(self._all):
            return [self._start(self._all)]
        return [self._end()]

    def started(self, replica: int) -> None:
        """Handles the start of a replica."""
        self._order.held.discard(replica)
        self._waiting.discard(replica)
        self._running.add(replica)

    def exited(
        self, replica: int, succeeded: bool, stopped: bool = False, verdict: str = COUNTED
    ) -> list[Action]:
        """Handles the end of a replica, or a failed start; returns the next actions.

        Args:
            replica: its ordinal.
            succeeded: it ended by itself and succeeded.
            stopped: it was ended by a :class:`Stop`, so its exit code is ignored.
            verdict: how a failure is retried: COUNTED, FREE or NEVER.
        """
        self._running.discard(replica)
        self._waiting.discard(replica)
        actions: list[Action] = []
        succeeded = self._order.ended(replica, succeeded and not stopped)
        counts = not (succeeded or stopped or self.cancelled or self._is_restarting(replica))
        if counts and not self._lost and (self._noticed or self.expired):
            if not self._order.is_service(replica):
                self._interrupted.append(replica)
        elif counts and (self.first_failure is None or not self.fail_fast):
            actions += self._failed(replica, verdict)
        return actions + self._advance()

    def ready(self, replica: int) -> list[Action]:
        """Handles that a running replica of a service is ready; returns the next actions."""
        self._order.ready(replica)
        return self._advance()

    def needs(self, replica: int) -> bool:
        """Returns True for a service that is still needed, so that its end is a failure."""
        over = self._order.released or self.cancelled or self._lost or self.expired or self._noticed
        return self._order.is_service(replica) and not over

    def cancel(self) -> list[Action]:
        """Cancels the application; ended replicas keep their results.

        If it has failed already and its other replicas are being ended, it is still FAILED.
        """
        if self.cancelled or self._over:
            return []
        self.cancelled = True
        self._drop_starts()
        return self._stop(self._all, "cancelled") + self._advance()

    def notice(self) -> None:
        """Handles the notice of the time limit: from now on, replicas end because of it.

        A replica that ends with success has finished. Another end is not a failure, and is not retried: the
        other replicas continue, to save their state, until they end or the time limit is reached.
        """
        self._noticed = True

    def expire(self) -> list[Action]:
        """Handles the time limit: ends all replicas, then starts them again if requeues are left."""
        if self.cancelled or self._over or self._lost or self.expired:
            return []
        self.expired = True
        self._drop_starts()
        return self._stop(self._all, "time limit") + self._advance()

    @property
    def decided(self) -> End | None:
        """The end, as soon as no later event can change it: replicas may still be running; None before."""
        if self._over or self._lost:
            return self._result()
        return None

    @property
    def run(self) -> int:
        """The number of the current run, from 1."""
        return self.used_retries.get(REQUEUED, 0) + 1

    def give_up(self, replica: int) -> list[Action]:
        """Fails the application without retries, because a replica cannot be started at all."""
        self._running.discard(replica)
        if self.first_failure is None:
            self.first_failure = replica
        self._lost = self._lost or not self.cancelled
        self._drop_starts()
        return self._stop(self._all, "the start failed") + self._advance()

    def wants(self, replica: int) -> bool:
        """Returns True if a requested start of this replica is still valid."""
        return replica in self._waiting

    def may_retry(self, replica: int) -> bool:
        """Returns True if a failure of this replica could be retried now, as far as retries are left."""
        role = self._role_of[replica]
        left = self.used_retries.get(self._scope(role, replica)[1], 0) < role.max_retries
        interrupted = self._noticed or self.expired
        return left and not (self.cancelled or self._lost or interrupted or self._is_restarting(replica))

    @property
    def restarting(self) -> frozenset[int]:
        """The replicas that are to start, once the running ones of their group have ended."""
        pending = {n for restart in self._restarts for n in restart.members}
        return frozenset((pending - self._failed_permanently) | self._waiting)

    @property
    def held(self) -> frozenset[int]:
        """The replicas that start when the roles before theirs are ready or have succeeded."""
        return frozenset(self._order.held)

    def is_service(self, replica: int) -> bool:
        """Returns True for a replica of a service."""
        return self._order.is_service(replica)

    @property
    def released(self) -> bool:
        """Whether services are no longer needed, as all ordinary roles have ended."""
        return self._order.released

    # --- the rules -------------------------------------------------------------------------------

    def _failed(self, replica: int, verdict: str) -> list[Action]:
        role = self._role_of[replica]
        scope, key, members = self._scope(role, replica)
        used = self.used_retries.get(key, 0)
        free = verdict == FREE and role.max_retries > 0
        if verdict == NEVER or (used >= role.max_retries and not free):
            self._failed_permanently.add(replica)
            if self._order.tolerates(replica):
                return []
            if self.first_failure is None:
                self.first_failure = replica
            if not self.fail_fast:
                return []
            self._lost = True
            self._drop_starts()
            return self._stop(self._all, f"{self._label(replica)} failed")
        number = used if free else used + 1
        self.used_retries[key] = number
        delay = min(self.backoff * 2**used, self.max_backoff)
        retry = Retry(scope, replica, number, role.max_retries, delay)
        # pending smaller restarts become part of this one
        inside = [r for r in self._restarts if set(r.members) <= set(members)]
        self._restarts = [r for r in self._restarts if r not in inside]
        self._waiting.difference_update(members)
        self._order.held.difference_update(members)
        self._restarts.append(_Restart(members, delay))
        return [retry, *self._stop(members, f"{self._label(replica)} failed; {scope.lower()} restarts")]

    def _scope(self, role: RoleRules, replica: int) -> tuple[str, str | int, range]:
        if role.retry_policy == REPLICA:
            return REPLICA, replica, range(replica, replica + 1)
        if role.retry_policy == ROLE:
            return ROLE, f"role {role.name}", role.replicas
        return APPLICATION, "application", self._all

    def _advance(self) -> list[Action]:
        """Returns the starts of groups whose members have all ended, and the end if nothing remains."""
        actions: list[Action] = []
        for restart in list(self._restarts):
            few, many = sorted((restart.members, self._running), key=len)
            if not any(n in many for n in few):
                self._restarts.remove(restart)
                replicas = [n for n in restart.members if n not in self._failed_permanently]
                actions.append(self._start(replicas, restart.delay))
        actions += self._follow()
        if self._over or self._running or self._waiting or self._restarts:
            return actions
        if (self.expired or self._interrupted) and not (self.cancelled or self._lost):
            return [*actions, *self._end_run()]
        return [*actions, self._end()]

    def _follow(self) -> list[Action]:
        """Starts the replicas that had to wait for others, and ends the services that are not needed."""
        if not (self._order.services or self._order.held):
            return []
        free = self._order.free()
        self._waiting.update(free)
        actions: list[Action] = []
        if free:
            actions = [Start(tuple(free))]
        pending = {n for restart in self._restarts for n in restart.members}
        stopping = self.cancelled or self._lost or self.expired
        if stopping or not self._order.release(self._running, self._waiting, pending):
            return actions
        self._drop_starts()  # of services
        return actions + self._stop(self._order.services, NO_LONGER_NEEDED)

    def _end_run(self) -> list[Action]:
        """Begins the next run after a time limit, or ends the application without one."""
        replicas = [n for n in self._all if n not in self._failed_permanently]
        if self.run > self.requeues or not replicas:
            if self.first_failure is None and self._interrupted:
                self.first_failure = self._interrupted[0]
            self.expired = self._lost = True
            return [self._end()]
        self.used_retries[REQUEUED] = self.run
        self.expired = self._noticed = False
        self._interrupted.clear()
        return [Requeue(self.run - 1, self.requeues), self._start(replicas)]

    def _result(self) -> End:
        if self._lost or (self.first_failure is not None and not self.cancelled):
            return End("FAILED", self.first_failure)
        if self.cancelled:
            return End("CANCELLED")
        return End("SUCCEEDED")

    def _end(self) -> End:
        self._over = True
        return self._result()

    def _start(self, replicas: Sequence[int], delay: float = 0.0) -> Start:
        free = self._order.hold(replicas)
        self._waiting.update(free)
        return Start(tuple(free), delay)

    def _stop(self, replicas: Sequence[int], why: str) -> list[Action]:
        running = tuple(n for n in replicas if n in self._running)
        if running:
            return [Stop(running, why)]
        return []

    def _drop_starts(self) -> None:
        self._waiting.clear()
        self._restarts.clear()
        self._order.held.clear()

    def _is_restarting(self, replica: int) -> bool:
        return any(replica in r.members for r in self._restarts)

    def _label(self, replica: int) -> str:
        role = self._role_of[replica]
        return f"{role.name}/{replica - role.replicas.start}"


def gang_of(record: JobRecord) -> Gang:
    """Returns the replicas of a local job with their rules."""
    rules = []
    first = 0
    for role in record.roles:
        ordinals = range(first, first + len(role.replicas))
        own = RoleRules(role.name, ordinals, role.max_retries, role.retry_policy)
        if role.service is not None:
            own = own._replace(service=True, critical=role.service.get("critical", True) is not False)
        rules.append(own._replace(after=tuple(role.after)))
        first = ordinals.stop
    return Gang(rules, record.fail_fast, record.backoff)
