"""Reports the attempts in containers to policies, and carries out their orders."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime, timezone

from torchx.end_causes import EndCause, Reason
from torchx.errors import StateError
from torchx.json_limits import Object
from torchx.schedulers.docker import cancel as docker_cancel
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.engine.parallel import in_parallel
from torchx.schedulers.docker.frames import Line, seconds_of
from torchx.schedulers.docker.logs import FollowedLog, read_log
from torchx.schedulers.docker.marks import STALLED, forced
from torchx.schedulers.docker.policies import RULE, ContainerPolicy, ContainerReplica
from torchx.schedulers.docker.replay import Progress
from torchx.scheduling.logs import LogQuery
from torchx.supervisor.policies import Cancel, Fail, Interest, Order, Policy, pause_of, verdict_of
from torchx.supervisor.policy import NEVER

KEPT, FOLLOWED = (Interest.TIME, Interest.LATER), (Interest.LINES,)
"""The output that is read from the engine when a policy is due, and the output that is followed."""


class Attempts:
    """Reports the attempts in containers to policies, and carries out the orders of these.

    Args:
        engine: the engine.
        app_id: the application.
        policies: the policies, in the order in which they are called.
    """

    def __init__(self, engine: Engine, app_id: str, policies: Sequence[Policy[ContainerReplica]]) -> None:
        self.policies = policies
        self._engine, self._app_id = engine, app_id
        self._running: dict[int, ContainerReplica] = {}
        self._logs: dict[int, FollowedLog] = {}
        self._seen: dict[str, bytes] = {}  # by container: the time of the last line that was read
        self._grace = docker_cancel.GRACE

    def follow(self, progress: Progress) -> None:
        """Reports the starts and ends of attempts since the last call."""
        self._grace = progress.job.grace
        for policy in self.policies:
            if isinstance(policy, ContainerPolicy):
                policy.follow(progress)
        running: dict[int, Container] = {}
        if not progress.cancelled and progress.end is None:
            running = {n: container for n, container in progress.running.items() if not container.mark}
        for ordinal, replica in list(self._running.items()):
            container = running.get(ordinal)
            if container is None or _run_of(container) != _run_of(replica.container):
                self._ended(ordinal)
        for ordinal, container in running.items():
            if ordinal in self._running:
                self._running[ordinal].container = container
            else:
                self._started(ordinal, container)
            self._follow_log(ordinal, container)

    def _follow_log(self, ordinal: int, container: Container) -> None:
        if not self._interest(ordinal, FOLLOWED):
            self._close_log(ordinal)
        elif ordinal not in self._logs:
            self._logs[ordinal] = FollowedLog(self._engine, container)

    def _close_log(self, ordinal: int) -> None:
        if ordinal in self._logs:
            self._logs.pop(ordinal).close()

    def _replica_of(self, ordinal: int, container: Container) -> ContainerReplica:
        # it may have begun before this supervisor saw it
        age = max(self._engine.clock.now() - (container.started or 0.0), 0.0)
        number = container.attempt + container.restarts
        return ContainerReplica(ordinal, number, time.monotonic() - age, container)

    def _started(self, ordinal: int, container: Container) -> None:
        self._running[ordinal] = replica = self._replica_of(ordinal, container)
        for policy in self.policies:
            policy.started(replica)

    def _ended(self, ordinal: int) -> None:
        if ordinal in self._logs:
            self._report(ordinal, self._logs[ordinal].read(), FOLLOWED)
        self._close_log(ordinal)
        replica = self._running.pop(ordinal)
        for policy in self.policies:
            policy.ended(replica, None)

    def refusal(self, ordinal: int, container: Container) -> str:
        """Returns why the failure of a container is not retried, for its mark; empty if it is."""
        code = container.exit_code
        if container.signal:
            code = None
        cause = None
        if container.oom:
            cause = EndCause.OUT_OF_MEMORY
        facts: Object = {"code": code, "signal": container.signal, "cause": cause}
        if verdict_of(self.policies, self._replica_of(ordinal, container), facts) == NEVER:
            return str(facts.get(RULE) or "policy")
        return ""

    def files(self) -> list[FollowedLog]:
        """Returns the open logs that some policies follow, to be polled."""
        return [log for log in self._logs.values() if log.is_open]

    def pause(self, *, before_ends: bool = False) -> float:
        """Returns the seconds until a policy that is due before, or after, ends of attempts is due."""
        wait = pause_of(policy for policy in self.policies if policy.before_ends == before_ends)
        waits = [math.inf]
        if wait is not None:
            waits.append(wait)
        if not before_ends:
            waits += [log.pause() for log in self._logs.values()]
        return min(waits)

    def carry_out(self, *, before_ends: bool = False) -> None:
        """Reads the output that policies need now, and carries out the orders that are due."""
        policies = [policy for policy in self.policies if policy.before_ends == before_ends]
        if not before_ends:
            for ordinal, log in self._logs.items():
                self._report(ordinal, log.read(), FOLLOWED)
            if any(pause <= 0 for policy in policies if (pause := policy.pause()) is not None):
                self._read_kept()
        for policy in policies:
            for order in policy.due():
                self._execute(order)

    def close(self) -> None:
        """Ends the policies, as the application has ended."""
        for ordinal in list(self._logs):
            self._close_log(ordinal)
        for policy in self.policies:
            policy.close()

    def _execute(self, order: Order) -> None:
        if isinstance(order, Fail):
            replicas = [self._running[n] for n in order.replicas if n in self._running]
            containers = [replica.container for replica in replicas]
            docker_cancel.end_all(self._engine, containers, mark_of(order.reason), self._grace)
        elif isinstance(order, Cancel):
            with suppress(StateError):
                docker_cancel.cancel(self._engine, self._app_id)

    # --- output ----------------------------------------------------------------------------------

    def _read_kept(self) -> None:
        """Reads the output since the last call for the policies that do not follow it."""
        wanted = {n: self._interest(n, KEPT) for n in self._running}
        running = [replica for n, replica in self._running.items() if wanted[n]]
        found = in_parallel(lambda each: self._lines(each.container, wanted[each.ordinal]), running)
        for replica, lines in zip(running, found, strict=True):
            if isinstance(lines, Exception):
                # an unreadable log counts as output, to be safe
                lines = [(b"", (replica.container.id, 1), b"\n")]
            self._report(replica.ordinal, lines, KEPT)

    def _interest(self, ordinal: int, kinds: Collection[Interest]) -> Interest:
        """Returns the largest of these interests that a policy has in a replica."""
        interests = {policy.interest(ordinal) for policy in self.policies}
        return max(interests.intersection(kinds), default=Interest.NOTHING)

    def _lines(self, container: Container, interest: Interest) -> list[Line]:
        """Returns the lines of a container since the last call, or only the last one."""
        seen = self._seen.get(container.id, b"")
        query = LogQuery(tail=1)
        if interest is Interest.LATER:
            since = container.started or 0.0
            if seen:
                since = seconds_of(seen)
            query = LogQuery(since=datetime.fromtimestamp(since, timezone.utc))
        return [line for line in read_log(self._engine, container, query) if line[0] > seen]

    def _report(self, ordinal: int, lines: Sequence[Line], kinds: Collection[Interest]) -> None:
        """Reports lines to the policies with one of these interests."""
        policies = [policy for policy in self.policies if policy.interest(ordinal) in kinds]
        now, wall = time.monotonic(), self._engine.clock.now()
        for at, (container, stream), data in lines:
            age = 0.0
            if at:
                age = max(wall - seconds_of(at), 0.0)
                if kinds is KEPT:
                    self._seen[container] = max(at, self._seen.get(container, b""))
            for policy in policies:
                policy.output(ordinal, stream, data, now - age)


def _run_of(container: Container) -> tuple[str, float | None]:
    """Returns the identity of a run of a container, which an engine may restart."""
    return container.id, container.started


def mark_of(reason: Reason) -> str:
    """Returns the mark of a container that is ended as a failed one."""
    if reason.cause is EndCause.STALLED:
        return STALLED
    return forced(reason.text)
