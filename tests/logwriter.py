"""A writer of the logs of a job, as a supervisor writes them, for the tests of what is read back."""

from __future__ import annotations

from pathlib import Path

from torchx.jobs.events import Clock
from torchx.jobs.log_index import STDOUT
from torchx.jobs.log_reader import JobLog, Member
from torchx.jobs.paths import LogPaths
from torchx.scheduling.logs import LogQuery
from torchx.supervisor.output import AttemptOutput, Index
from torchx.supervisor.replicas import set_aside

START = 1_700_000_000
MEMBERS = [Member("w", 0), Member("w", 1), Member("ps", 0)]


class SteppedClock(Clock):
    """A clock that goes on by one second at each look."""

    def __init__(self) -> None:
        self.seconds = START

    def ns(self) -> int:
        self.seconds += 1
        return self.seconds * 10**9


class Writer:
    """Writes the log of some replicas as a supervisor does."""

    def __init__(self, folder: Path, members: list[Member] = MEMBERS) -> None:
        self.members = members
        folder.mkdir(parents=True, exist_ok=True)
        self.paths = LogPaths(folder)
        self.index = Index(self.paths.index)
        self.clock = SteppedClock()
        self.attempts = [1] * len(members)
        self.outputs = [self._output(n) for n in range(len(members))]
        self.lives = True

    def _output(self, replica: int) -> AttemptOutput:
        folder = self.paths.replica(*self.members[replica])
        return AttemptOutput(folder, replica, self.attempts[replica], self.index, self.clock)

    def put(self, replica: int, data: bytes, stream: int = STDOUT) -> None:
        self.outputs[replica].feed(stream, data)
        self.index.flush()

    def retry(self, replica: int) -> None:
        self.outputs[replica].close()
        set_aside(self.paths.replica(*self.members[replica]), self.attempts[replica])
        self.attempts[replica] += 1
        self.outputs[replica] = self._output(replica)

    def end(self) -> None:
        for output in self.outputs:
            output.close()
        self.index.flush()
        self.lives = False

    def log(self) -> JobLog:
        return JobLog(self.paths, self.members, lambda: self.lives)

    def text(self, **query: object) -> str:
        return b"".join(c.data for c in self.log().read(LogQuery(**query))).decode()  # type: ignore[arg-type]
