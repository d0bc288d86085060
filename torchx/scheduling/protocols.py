"""Optional protocols of schedulers; ``torchx.scheduling.base`` re-exports them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from torchx.errors import UnreachableError

if TYPE_CHECKING:
    from pathlib import Path
    from socket import socket

    from torchx.scheduling.events import AppEvent
    from torchx.scheduling.findings import Finding
    from torchx.scheduling.logs import LogChunk, LogQuery
    from torchx.scheduling.measurement import AppUsage
    from torchx.scheduling.query import AppQuery, Pruned
    from torchx.scheduling.responses import DescribeAppResponse, ListAppResponse
    from torchx.scheduling.stacks import AppStacks
    from torchx.scheduling.streams import Input, Streams
    from torchx.specs.app import AnyDryRunInfo, AppDef, Role
    from torchx.specs.run_options import RunOptions, runopts


class UnavailableError(UnreachableError):
    """An engine does not answer.

    Attributes:
        last_known: the description of the application from local records, sufficient to read its log, or
            None.
    """

    last_known: DescribeAppResponse | None = None


@runtime_checkable
class BuildsWorkspaces(Protocol):
    """A scheduler that builds workspaces at the dry-run, role by role, as plugins for TorchX do."""

    def workspace_opts(self) -> runopts:
        """Returns the run options for workspaces."""

    def build_workspaces(self, roles: list[Role], cfg: RunOptions) -> None:
        """Overlays the workspace of each role on its image, and sets ``role.image`` to the result."""


@runtime_checkable
class BuildsImages(Protocol):
    """A scheduler that plans images at the dry-run, and can build them without a submission."""

    def build_planned_images(self, dryrun_info: AnyDryRunInfo) -> None:
        """Builds the images that a request plans, and pushes them if required.

        In the application of the request, sets ``role.image`` to the result, and removes the workspace from
        the role.
        """


@runtime_checkable
class Waits(Protocol):
    """A scheduler that can block until an application ends, without polling by the caller."""

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Blocks until the application has ended; returns False after ``timeout`` seconds."""


@runtime_checkable
class NeedsWatcher(Protocol):
    """A scheduler whose engine does not carry out all rules of an application itself."""

    def needs_watcher(self, dryrun_info: AnyDryRunInfo) -> bool:
        """Returns True if a process must call :meth:`Scheduler.reconcile` until the application has ended.

        The runner starts it after the submission; without it, commands that wait for the end do the same.
        """


@runtime_checkable
class Glances(Protocol):
    """A scheduler that can return the status of an application without its roles."""

    def glance(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the same as :meth:`Scheduler.describe`; roles and metadata may be omitted."""


@runtime_checkable
class Summarizes(Protocol):
    """A scheduler that can omit the replicas from a status: its applications may have thousands of them."""

    def summary(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the same as :meth:`Scheduler.describe`; replicas, roles and metadata may be omitted."""


@runtime_checkable
class Outlines(Protocol):
    """A scheduler that can name the replicas of an application without their status."""

    def outline(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the same replicas as :meth:`Scheduler.describe`; everything else may be omitted."""


@runtime_checkable
class Kills(Protocol):
    """A scheduler that can end an application without a grace period."""

    def kill(self, app_id: str) -> None:
        """Kills all replicas of an application; does nothing if it has ended."""


@runtime_checkable
class Executes(Protocol):
    """A scheduler that can run another program in a replica."""

    def execute(self, app_id: str, role_name: str, k: int, command: Sequence[str], streams: Streams) -> int:
        """Runs a program in a replica, and waits for its end.

        Args:
            app_id: the application.
            role_name: name of the role.
            k: id of the replica within the role.
            command: the program and its arguments; no shell.
            streams: its standard streams.

        Returns:
            Its exit code.

        Raises:
            StateError: the replica is not running, or has no such program.
        """


@runtime_checkable
class KeepsFiles(Protocol):
    """A scheduler whose replicas have files that this machine sees too, also after their end."""

    def replica_folder(self, app_id: str, role_name: str, k: int) -> Path | None:
        """Returns the working directory of a replica, running or ended; None if it is not known.

        Raises:
            StateError: the replica does not exist.
        """


@runtime_checkable
class CopiesFiles(Protocol):
    """A scheduler whose engine copies files of replicas, running or ended, as tar archives."""

    def file_kind(self, app_id: str, role_name: str, k: int, path: str) -> str:
        """Returns the kind of a path: ``folder``, ``file``, or empty if it does not exist."""

    def read_files(self, app_id: str, role_name: str, k: int, path: str) -> Input:
        """Returns an archive with a file or folder; a relative path begins at the working directory.

        Raises:
            StateError: the path does not exist, or the engine has removed the replica.
        """

    def write_files(
        self,
        app_id: str,
        role_name: str,
        k: int,
        folder: str,
        send: Callable[[Callable[[bytes], None]], None],
    ) -> None:
        """Unpacks an archive in a folder.

        Args:
            app_id, role_name, k: the replica.
            folder: the folder, which exists.
            send: writes the archive with the function passed to it.

        Raises:
            StateError: the folder does not exist, or the engine has removed the replica.
        """


@runtime_checkable
class ForwardsPorts(Protocol):
    """A scheduler that can connect to ports of replicas."""

    def port_connector(self, app_id: str, role_name: str, k: int, port: str) -> Callable[[], socket]:
        """Returns a function that opens a connection to a port of a running replica; each call opens one.

        It raises StateError if nothing listens on the port or the replica is not running.

        Args:
            app_id: the application.
            role_name: name of the role.
            k: id of the replica within the role.
            port: its number, its name in ``Role.port_map``, or the variable ``TORCHX_PORT_<NAME>``.

        Raises:
            StateError: the replica is not running, or has no such port.
        """


@runtime_checkable
class Selects(Protocol):
    """A scheduler that can filter applications without reading all records."""

    def select(self, query: AppQuery) -> Iterator[ListAppResponse]:
        """Yields the matching applications of :meth:`Scheduler.list`, newest first, lazily."""


@runtime_checkable
class Prunes(Protocol):
    """A scheduler that keeps ended applications until they are removed."""

    def prune(self, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
        """Removes ended applications, then leftovers, and yields each; never a running one."""


@runtime_checkable
class Reports(Protocol):
    """A scheduler that records the events of an application.

    Without it, a runner derives events from :meth:`Scheduler.describe`.
    """

    def app_events(self, app_id: str) -> Iterable[AppEvent | None]:
        """Yields the events of an application in order, until it has ended.

        Yields None at the current end of the record; the caller then pauses, or stops.
        """


@runtime_checkable
class Diagnoses(Protocol):
    """A scheduler that can check its engine."""

    def diagnose(self) -> Iterable[Finding]:
        """Checks the engine without changing it; a problem is a finding, not an error."""


@runtime_checkable
class Shared(Protocol):
    """A scheduler with other users: nothing is removed there unless the user names the scheduler.

    Attributes:
        shared_by: its users, for display.
    """

    shared_by: str


@runtime_checkable
class LogChunks(Protocol):
    """A scheduler that returns the logs of all replicas as one stream, ordered by time."""

    def log_chunks(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Returns the matching lines; with ``follow``, until the application has ended."""


@runtime_checkable
class Measures(Protocol):
    """A scheduler that measures the replicas: CPU, memory, GPUs."""

    def usage(self, app_id: str) -> AppUsage | None:
        """Returns the measurements of an application, running or ended, or None if there are none."""


@runtime_checkable
class KeepsProvenance(Protocol):
    """A scheduler with a folder for each application, which can hold the record of its source.

    Those of other schedulers are in the state home of the submitting machine.
    """

    def provenance_folder(self, app_id: str) -> Path | None:
        """Returns the folder for the provenance of an application, which may not exist; None if unknown."""


@runtime_checkable
class TakesStacks(Protocol):
    """A scheduler that can take the stacks of the processes of all replicas.

    Without it, a runner runs a program in each replica, if the scheduler implements :class:`Executes`.
    """

    def stacks(
        self, app_id: str, replicas: Collection[str] | None, ranks: Collection[int] | None, native: bool
    ) -> AppStacks:
        """Returns the stacks of a running application.

        Args:
            app_id: the application.
            replicas: only these replicas (``role/id``) and roles (default: all).
            ranks: only the processes of these ranks (default: all).
            native: include frames of compiled code.

        Raises:
            StateError: the application is not running.
        """


class ManyRuns(NamedTuple):
    """Runs of a sweep to submit as one object of an engine: a job array, an indexed job.

    Attributes:
        key: names the object; two submissions with the same key are the same object.
        apps: the application of each run, by the number of the run, ready to be submitted. They differ in the
            arguments and the environment of their roles and in their metadata only.
        cfg: the run options.
        at_once: the maximum number of runs at the same time; 0 for no limit.
        after: applications of the same scheduler that have not ended, each with the condition ``ok``, ``any``
            or ``failed``: the runs start when all conditions are met.
        behind: the ids of earlier runs that count for the limit: the runs start when these have ended.
    """

    key: str
    apps: Mapping[int, AppDef]
    cfg: RunOptions = MappingProxyType({})
    at_once: int = 0
    after: Sequence[tuple[str, str]] = ()
    behind: Collection[str] = ()

    @property
    def first(self) -> AppDef:
        """The application of the first run."""
        return next(iter(self.apps.values()))


@runtime_checkable
class SubmitsMany(Protocol):
    """A scheduler that can submit the runs of a sweep as one object of its engine.

    The engine starts the runs, so that a sweep needs no process. Each run is an application with an id of its
    own, which all other methods of the scheduler accept. Without it, a process submits run after run.
    """

    def rejects_many(self, runs: ManyRuns) -> str:
        """Returns why these runs cannot be one object, as a clause; empty if they can. Changes nothing."""

    def submit_many(self, runs: ManyRuns) -> Mapping[int, str]:
        """Submits runs as one object, and returns the id of each by its number.

        A second call with the same key, as after a kill of the first caller, finds the object of the first
        one and returns its ids: no run is submitted twice.

        Raises:
            UsageError: the scheduler cannot run them.
            StateError: the engine rejects them or does not answer; none of them was submitted.
        """

    def glance_many(self, app_ids: Collection[str]) -> Mapping[str, DescribeAppResponse]:
        """Returns the status of runs, without their roles, in few queries; unknown ones are left out.

        Raises:
            UnavailableError: the engine does not answer.
        """

    def usage_many(self, app_ids: Collection[str]) -> Mapping[str, AppUsage]:
        """Returns the measurements of ended runs, in few queries; runs without any are left out."""

    def cancel_many(self, app_ids: Collection[str], *, now: bool = False) -> None:
        """Cancels runs in few calls; ``now`` gives them no grace period. Ended ones are left as they are."""

    def delete_many(self, app_ids: Collection[str]) -> None:
        """Removes ended runs, with their logs and records."""

    def limit_many(self, app_ids: Collection[str], at_once: int) -> None:
        """Changes the maximum number of these runs at the same time; 0 for no limit."""
