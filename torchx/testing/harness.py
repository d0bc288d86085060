"""What the conformance tests stand on: applications of shell commands, and waiting for what becomes true."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from typing import Any, ClassVar, TypeVar

import pytest

from torchx.errors import TorchxError
from torchx.scheduling.base import DescribeAppResponse, Scheduler
from torchx.specs.app import AppDef, Role
from torchx.specs.resources import Resource
from torchx.specs.run_options import CfgVal
from torchx.specs.status import AppState, is_terminal

T = TypeVar("T")


class Ability(str, Enum):
    """What a scheduler may lack, when its tests declare it: what it is asked for then, it has to refuse."""

    STREAMS = "streams"
    """Logs of stdout and of stderr apart."""

    TIMES = "times"
    """Logs of a span of time: since, until."""

    FOLLOW = "follow"
    """Logs as they are written."""

    EARLIER_LOGS = "earlier logs"
    """Logs of a replica's earlier attempts."""

    ATTEMPT = "attempt"
    """The number of a replica's attempt in its environment, as ``TORCHX_ATTEMPT``."""

    GANG = "gang"
    """The end of all replicas when one has failed for good; where it is lacking a note says so."""

    WAITS = "Waits"
    """The protocol of that name, as those below."""

    KILLS = "Kills"
    LOG_CHUNKS = "LogChunks"

    def __str__(self) -> str:
        return self.value


class Meaning(str, Enum):
    """What a scheduler does with a field that a role has set."""

    HONOURED = "honoured"
    """It does as asked; a request changes with the field, or what runs shows it."""

    TOLD = "told"
    """It cannot, and says so: a note of the dry-run or of the submission."""

    REFUSED = "refused"
    """It cannot, and takes no such application: a ``UsageError`` at the dry-run."""

    UNUSED = "not used"
    """It is not for the scheduler, but for others, such as the component; its page says so."""

    def __str__(self) -> str:
        return self.value


class Harness:
    """How one scheduler is tested; a test class inherits from it and fills in what differs.

    Attributes:
        factory: makes a scheduler; a function of a module (or a static method), so that another process can
            call it too.
        image: an image with a POSIX shell, for schedulers that have images.
        cfg: run options to submit with.
        patience: seconds that anything may take before a test fails.
        begins_within: seconds in which a replica mostly starts once it is submitted.
        lacks: what the scheduler cannot do.
        fields: the fields of a role that it does not honour, and what it does in place of that; see
            :class:`FieldConformance`.
    """

    factory: ClassVar[Callable[[], Scheduler[Any]]]
    image: ClassVar[str] = ""
    cfg: ClassVar[Mapping[str, CfgVal]] = {}
    patience: ClassVar[float] = 60.0
    begins_within: ClassVar[float] = 2.0
    lacks: ClassVar[Collection[Ability]] = ()
    fields: ClassVar[Mapping[str, Meaning]] = {}

    @pytest.fixture
    def scheduler(self) -> Iterator[Scheduler[Any]]:
        """A scheduler; what a test has submitted by :meth:`submit` is removed afterwards."""
        self._submitted: list[str] = []
        scheduler = type(self).factory()
        yield scheduler
        for app_id in self._submitted:
            scheduler.delete(app_id)
        scheduler.close()

    def meaning(self, field: str) -> Meaning:
        """Returns what a field of a role is declared to mean."""
        return self.fields.get(field, Meaning.HONOURED)

    def role(self, command: str, name: str = "worker", **changes: Any) -> Role:
        """Returns a role that runs a shell command."""
        settings: dict[str, Any] = {"image": self.image, "entrypoint": "sh", "args": ["-c", command]}
        settings["resource"] = Resource(cpu=1, gpu=0, memMB=256)
        return Role(name=name, **{**settings, **changes})

    def app(self, *roles: Role, **changes: Any) -> AppDef:
        """Returns an application of these roles."""
        return AppDef(**{"name": "conformance", "roles": list(roles), **changes})

    def own_name(self) -> str:
        """Returns a name for an application that no other has: others may use the same engine."""
        return f"conf{secrets.token_hex(4)}"

    def listed(self, scheduler: Scheduler[Any], name: str) -> list[str]:
        """Returns the ids of the applications of a name."""
        return [line.app_id for line in scheduler.list(self.cfg) if line.name == name or name in line.app_id]

    def submit(self, scheduler: Scheduler[Any], app: AppDef | str) -> str:
        """Submits an application, or a shell command as one, and returns its id."""
        app_id = scheduler.submit(self.app(self.role(app)) if isinstance(app, str) else app, self.cfg)
        self._submitted.append(app_id)
        return app_id

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        """Returns the first true value of a condition; fails when it takes too long."""
        end = time.monotonic() + self.patience
        while True:
            value = condition()
            if value:
                return value
            assert time.monotonic() < end, f"after {self.patience} s still not: {what}"
            time.sleep(0.02)

    def until_state(self, scheduler: Scheduler[Any], app_id: str, *states: AppState) -> DescribeAppResponse:
        """Waits until an application is in one of some states; fails when it has ended in another."""

        def reached() -> DescribeAppResponse | None:
            told = scheduler.describe(app_id)
            assert told is not None, f"{app_id} is not known"
            ended_otherwise = is_terminal(told.state) and told.state not in states
            assert not ended_otherwise, f"{app_id} is {told.state}: {told.msg}"
            return told if told.state in states else None

        return self.until(reached, f"{app_id} is {' or '.join(map(str, states))}")

    def until_ended(self, scheduler: Scheduler[Any], app_id: str) -> DescribeAppResponse:
        """Waits for the end of an application, and brings it to its due state meanwhile, as `wait` does."""

        def ended() -> DescribeAppResponse | None:
            scheduler.reconcile(app_id)
            told = scheduler.describe(app_id)
            assert told is not None, f"{app_id} is not known"
            return told if is_terminal(told.state) else None

        return self.until(ended, f"{app_id} has ended")

    def run(self, scheduler: Scheduler[Any], app: AppDef | str) -> DescribeAppResponse:
        """Submits an application and waits for its end."""
        return self.until_ended(scheduler, self.submit(scheduler, app))

    def log(self, scheduler: Scheduler[Any], app_id: str, replica: int = 0, **asked: Any) -> list[str]:
        """Returns the log lines of a worker."""
        return list(scheduler.log_iter(app_id, asked.pop("role", "worker"), replica, **asked))

    def refuses(self, ability: Ability, ask: Callable[[], object]) -> None:
        """Holds that what is asked of a scheduler that lacks an ability is refused, not answered wrongly."""
        try:
            answer = ask()
        except (TorchxError, NotImplementedError):
            return
        raise AssertionError(
            f"`{ability}` is declared as lacking; to ask for it has to be an error, and gave {answer!r}"
        )
