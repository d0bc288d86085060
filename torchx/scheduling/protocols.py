"""What not every engine can do: small protocols, each of which a scheduler may have or not.

``torchx.scheduling.base`` hands them on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from torchx.errors import StateError

if TYPE_CHECKING:
    from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
    from torchx.scheduling.findings import Finding
    from torchx.scheduling.logs import LogChunk, LogQuery
    from torchx.scheduling.query import AppQuery, Pruned
    from torchx.scheduling.streams import Streams
    from torchx.specs.app import AppDef, Role
    from torchx.specs.run_options import CfgVal, runopts


class AwayError(StateError):
    """An engine does not answer.

    Attributes:
        left: what is known of the application without it, enough to read the log that it has left; None
            when nothing is.
    """

    left: DescribeAppResponse | None = None


@runtime_checkable
class BuildsWorkspaces(Protocol):
    """A scheduler that builds workspaces as plugins for TorchX do: at the dry-run, role by role."""

    def workspace_opts(self) -> runopts:
        """Returns the run options that workspaces add to those of the scheduler."""
        ...

    def build_workspaces(self, roles: list[Role], cfg: Mapping[str, CfgVal]) -> None:
        """Lays the workspace of each role over its image, and sets ``role.image`` to the result."""
        ...


@runtime_checkable
class BuildsImages(Protocol):
    """A scheduler that plans images for workspaces at a dry-run, and can build them without a submission."""

    def build_planned_images(self, app: AppDef) -> None:
        """Builds the images that a dry-run has planned for an application, and pushes those that are to be.

        Sets ``role.image`` to what each is from then on, and takes the workspace off the role.
        """
        ...


@runtime_checkable
class Waits(Protocol):
    """A scheduler that wakes when an application ends, in place of being asked again and again."""

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Blocks until the application has ended; False when ``timeout`` seconds passed before."""
        ...


@runtime_checkable
class Glances(Protocol):
    """A scheduler that can tell how an application fares without telling what it is."""

    def glance(self, app_id: str) -> DescribeAppResponse | None:
        """As :meth:`Scheduler.describe`, but roles and metadata may be left out."""
        ...


@runtime_checkable
class Kills(Protocol):
    """A scheduler that can end an application at once, with no time to clean up."""

    def kill(self, app_id: str) -> None:
        """Kills all of an application; nothing happens when it has ended already."""
        ...


@runtime_checkable
class Executes(Protocol):
    """A scheduler that can run a program in a replica, beside what runs there."""

    def execute(self, app_id: str, role_name: str, k: int, command: Sequence[str], streams: Streams) -> int:
        """Runs a program in a replica to its end.

        Args:
            app_id: the application.
            role_name: name of the role.
            k: id of the replica within the role.
            command: the program and its arguments; no shell.
            streams: what it reads and prints to.

        Returns:
            Its exit code.

        Raises:
            StateError: the replica does not run, or has no such program.
        """
        ...


@runtime_checkable
class Selects(Protocol):
    """A scheduler that finds applications without reading all that it knows of the others."""

    def select(self, query: AppQuery) -> Iterator[ListAppResponse]:
        """Yields the wanted ones of :meth:`Scheduler.list`, newest first, each as it is asked for."""
        ...


@runtime_checkable
class Prunes(Protocol):
    """A scheduler that keeps ended applications until they are removed."""

    def prune(self, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
        """Removes ended applications, then leftovers, and yields each; never touches what runs."""
        ...


@runtime_checkable
class Diagnoses(Protocol):
    """A scheduler that can say how its engine is, and what keeps applications from running there."""

    def diagnose(self) -> Iterable[Finding]:
        """Looks at the engine, and changes nothing there; what is wrong is a finding, not an error."""
        ...


@runtime_checkable
class Shared(Protocol):
    """A scheduler that other people use, too: nothing is removed there unless the scheduler is named.

    Attributes:
        shared_by: who shares it, for people.
    """

    shared_by: str


@runtime_checkable
class LogChunks(Protocol):
    """A scheduler that gives the log of all replicas as one stream, in the order of time."""

    def log_chunks(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Returns the wanted lines; ends when they are told, with ``follow`` when the job has ended."""
        ...
