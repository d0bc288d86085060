"""Base of the conformance tests: declarations, applications of shell commands, and waiting."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from typing import Any, ClassVar, TypeVar

import pytest

from torchx.errors import TorchxError
from torchx.json_limits import Object
from torchx.scheduling.base import (
    AnyScheduler,
    DescribeAppResponse,
    Executes,
    Kills,
    LogChunks,
    Measures,
    SubmitsMany,
    Waits,
)
from torchx.specs.app import AppDef, Role
from torchx.specs.resources import Resource
from torchx.specs.run_options import CfgVal, RunOptions
from torchx.specs.status import AppState, FirstFailure, is_terminal

T = TypeVar("T")
Submittable = AppDef | Role | str
"""An application, a role, or the shell command of a role."""

NAMED = "$TORCHX_REPLICA $TORCHX_ROLE $TORCHX_REPLICA_ID $TORCHX_NUM_REPLICAS"
"""The variables that name a replica, for a shell."""


class Ability(str, Enum):
    """An ability that a scheduler may lack if its tests declare it; its use is an error then."""

    STREAMS = "streams"
    """Separate logs of stdout and stderr."""

    TIMES = "times"
    """Logs of a period: since, until."""

    FOLLOW = "follow"
    """Following a growing log."""

    EARLIER_LOGS = "earlier logs"
    """Logs of a replica's earlier attempts."""

    ATTEMPT = "attempt"
    """The number of the attempt in ``TORCHX_ATTEMPT``, in the replica's environment."""

    GANG = "gang"
    """The end of all replicas after the final failure of one; a note says if it is lacking."""

    TIME_LIMIT = "time limit"
    """Time limits, notices and requeues, by the run options ``time_limit``, ``notice`` and ``requeue_on``."""

    WAITS = "Waits"
    """The protocol of this name, as those below."""

    KILLS = "Kills"
    LOG_CHUNKS = "LogChunks"
    EXECUTES = "Executes"
    SUBMITS_MANY = "SubmitsMany"

    def __str__(self) -> str:
        return self.value


PROTOCOLS: Mapping[Ability, type[Any]] = {
    Ability.WAITS: Waits,
    Ability.KILLS: Kills,
    Ability.LOG_CHUNKS: LogChunks,
    Ability.EXECUTES: Executes,
    Ability.SUBMITS_MANY: SubmitsMany,
}
"""The protocols of the abilities that have one."""


class Meaning(str, Enum):
    """The effect of a field of a role on a scheduler."""

    HONOURED = "honoured"
    """It affects the request or the running replicas."""

    WARNED = "warned"
    """It has no effect, and a note of the dry-run or of the submission says so."""

    REJECTED = "rejected"
    """It causes a ``UsageError`` at the dry-run."""

    IGNORED = "ignored"
    """It is not meant for the scheduler, but, for example, for the component; the page says so."""

    # names of earlier versions, to be removed in the next release
    TOLD = WARNED
    REFUSED = REJECTED
    UNUSED = IGNORED

    def __str__(self) -> str:
        return self.value

    @classmethod
    def _missing_(cls, value: object) -> Meaning | None:
        return FORMER_VALUES.get(str(value))


FORMER_VALUES = {"told": Meaning.WARNED, "refused": Meaning.REJECTED, "not used": Meaning.IGNORED}
"""Meanings by their values in earlier versions."""


class Harness:
    """Base of the test classes of one scheduler, which set its attributes.

    Attributes:
        factory: creates a scheduler; a function of a module or a static method, since other processes call
            it too.
        image: an image with a POSIX shell, for schedulers that use images.
        cfg: run options of every submission.
        patience: maximum seconds of any operation.
        begins_within: seconds in which a replica usually starts after submission.
        shortest_limit: a short time limit that the scheduler takes; empty if it takes minutes to be reached.
        lacks: the abilities that the scheduler lacks.
        fields: the meaning of each field of a role that it does not honour; see
            :class:`FieldConformance`.
    """

    factory: ClassVar[Callable[[], AnyScheduler]]
    image: ClassVar[str] = ""
    cfg: ClassVar[RunOptions] = {}
    patience: ClassVar[float] = 60.0
    begins_within: ClassVar[float] = 2.0
    shortest_limit: ClassVar[str] = "5s"
    lacks: ClassVar[Collection[Ability]] = ()
    fields: ClassVar[Mapping[str, Meaning]] = {}

    @pytest.fixture
    def scheduler(self) -> Iterator[AnyScheduler]:
        """A scheduler; applications of :meth:`submit` are deleted afterwards."""
        self._submitted: list[str] = []
        scheduler = type(self).factory()
        yield scheduler
        for app_id in self._submitted:
            scheduler.delete(app_id)
        scheduler.close()

    def meaning(self, field: str) -> Meaning:
        """Returns the declared meaning of a field of a role."""
        return self.fields.get(field, Meaning.HONOURED)

    def role(self, command: str, name: str = "worker", **changes: Any) -> Role:
        """Returns a role that runs a shell command."""
        settings: Object = {"image": self.image, "entrypoint": "sh", "args": ["-c", command]}
        settings["resource"] = Resource(cpu=1, gpu=0, memMB=256)
        return Role(name=name, **{**settings, **changes})

    def app(self, *roles: Role, **changes: Any) -> AppDef:
        """Returns an application of these roles."""
        return AppDef(**{"name": "conformance", "roles": list(roles), **changes})

    def own_name(self) -> str:
        """Returns a unique name for an application, since other users may share the engine."""
        return f"conf{secrets.token_hex(4)}"

    def listed(self, scheduler: AnyScheduler, name: str) -> list[str]:
        """Returns the ids of the applications with a name."""
        return [line.app_id for line in scheduler.list(self.cfg) if line.name == name or name in line.app_id]

    def submit(self, scheduler: AnyScheduler, app: Submittable, **options: CfgVal) -> str:
        """Submits an application, a role or a shell command, with further run options; returns its id."""
        if isinstance(app, str):
            app = self.role(app)
        if isinstance(app, Role):
            app = self.app(app)
        app_id = scheduler.submit(app, {**self.cfg, **options})
        self._submitted.append(app_id)
        return app_id

    def until(self, condition: Callable[[], T | None], what: str, found: Callable[[], str] = str) -> T:
        """Returns the first true value of a condition; fails after ``patience`` seconds.

        Args:
            condition: called again and again.
            what: describes the condition.
            found: returns more for the message of a failure.
        """
        end = time.monotonic() + self.patience
        while True:
            begin = time.monotonic()
            value = condition()
            if value:
                return value
            now = time.monotonic()
            assert now < end, f"not within {self.patience} s: {what}{found()}"
            time.sleep(min(max(0.02, 2 * (now - begin)), 0.2))  # a slow query is repeated less often

    def _described(self, scheduler: AnyScheduler, app_id: str) -> DescribeAppResponse:
        status = scheduler.describe(app_id)
        assert status is not None, f"{app_id} is not known"
        return status

    def _seen(self, scheduler: AnyScheduler, app_id: str) -> str:
        """Returns the state of an application and of its replicas, for the message of a failed test."""
        status = self._described(scheduler, app_id)
        return f", but is {status.state} ({status.msg}): {status.replicas}"

    def until_state(self, scheduler: AnyScheduler, app_id: str, *states: AppState) -> DescribeAppResponse:
        """Waits until an application is in one of some states; fails if it ends in another one."""

        def reached() -> DescribeAppResponse | None:
            status = self._described(scheduler, app_id)
            ended_otherwise = is_terminal(status.state) and status.state not in states
            assert not ended_otherwise, f"{app_id} is {status.state}: {status.msg}"
            if status.state in states:
                return status
            return None

        wanted = " or ".join(map(str, states))
        return self.until(reached, f"{app_id} is {wanted}", lambda: self._seen(scheduler, app_id))

    def until_ended(
        self,
        scheduler: AnyScheduler,
        app_id: str,
        seen: Callable[[DescribeAppResponse], object] = lambda status: None,
    ) -> DescribeAppResponse:
        """Waits for the end of an application; calls `reconcile` meanwhile, as `wait` does.

        Args:
            scheduler: its scheduler.
            app_id: the application.
            seen: called with each status, the last one included.
        """

        def ended() -> DescribeAppResponse | None:
            scheduler.reconcile(app_id)
            status = self._described(scheduler, app_id)
            seen(status)
            if is_terminal(status.state):
                return status
            return None

        return self.until(ended, f"{app_id} has ended", lambda: self._seen(scheduler, app_id))

    def run(self, scheduler: AnyScheduler, app: Submittable, **options: CfgVal) -> DescribeAppResponse:
        """Submits an application, with further run options, and waits for its end."""
        return self.until_ended(scheduler, self.submit(scheduler, app, **options))

    def check_ends(self, scheduler: AnyScheduler, app_id: str, state: AppState) -> None:
        """Waits for the end of an application, and checks its state."""
        status = self.until_ended(scheduler, app_id)
        assert status.state is state, f"{app_id} is {status.state}: {status.msg}"

    def check_cancel(self, scheduler: AnyScheduler, app_id: str) -> None:
        """Cancels an application that begins to run, and checks its end."""
        self.until_state(scheduler, app_id, AppState.RUNNING)
        scheduler.cancel(app_id)
        self.check_ends(scheduler, app_id, AppState.CANCELLED)

    def succeeded(self, scheduler: AnyScheduler, app: Submittable) -> DescribeAppResponse:
        """Submits an application, waits for its end, and checks that it has succeeded."""
        status = self.run(scheduler, app)
        first = status.first_failure
        assert status.state is AppState.SUCCEEDED, f"{status.state}: {status.msg}; {first}"
        return status

    def failure_of(self, status: DescribeAppResponse | None) -> FirstFailure:
        """Returns the first failure of an application; checks that it has failed, and reports one."""
        assert status is not None, "a submitted application is not known"
        assert status.state is AppState.FAILED, f"{status.state}: {status.msg}"
        assert status.first_failure is not None, "the first failure is not reported"
        return status.first_failure

    def log(self, scheduler: AnyScheduler, app_id: str, replica: int = 0, **options: Any) -> list[str]:
        """Returns the log lines of a worker."""
        return list(scheduler.log_iter(app_id, options.pop("role", "worker"), replica, **options))

    def check_usage(self, scheduler: AnyScheduler, app_id: str) -> None:
        """Checks the measurements of an application, if the scheduler has any.

        They belong to its replicas, and unknown values are None.
        """
        usage = None
        if isinstance(scheduler, Measures):
            usage = scheduler.usage(app_id)
        if usage is None:
            return
        status = scheduler.describe(app_id)
        assert status is not None, f"`usage` measures {app_id}, which `describe` does not know"
        known = {(replica.role, replica.id): replica.state for replica in status.replicas}
        for replica in usage.replicas:
            assert (replica.role, replica.replica) in known, f"`usage` measures {replica.name}: no replica"
            ended = is_terminal(known[replica.role, replica.replica])
            assert not (ended and replica.running), f"`usage` reports {replica.name} as running"
            for sample in (replica.total, *replica.samples):
                values = [value for value in sample if value is not None]
                wrong = f"`usage` returns {sample} for {replica.name}"
                assert all(math.isfinite(value) and value >= 0 for value in values), wrong
            assert [s.time for s in replica.samples] == sorted(s.time for s in replica.samples)

    def without(self, scheduler: AnyScheduler, ability: Ability) -> bool:
        """Returns True if an ability is declared as lacking; fails if the declaration is wrong."""
        protocol, lacking = PROTOCOLS[ability], ability in self.lacks
        has = isinstance(scheduler, protocol)
        assert has is not lacking, (
            f"{type(scheduler).__name__} {'implements' if has else 'does not implement'} "
            f"torchx.schedulers.api.{ability}, but `lacks` {'names it' if lacking else 'does not name it'}"
        )
        return lacking

    def refuses(self, ability: Ability, call: Callable[[], object]) -> None:
        """Checks that a call is an error, since it uses an ability that the scheduler lacks."""
        try:
            result = call()
        except (TorchxError, NotImplementedError):
            return
        raise AssertionError(
            f"`{ability}` is declared as lacking, so a call that uses it must fail; it returned {result!r}"
        )
