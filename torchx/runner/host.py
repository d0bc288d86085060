"""The part of a runner that the files beside it call; those do not import the runner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from torchx.config import Config
    from torchx.scheduling.base import AnyScheduler, DescribeAppResponse, ListAppResponse
    from torchx.scheduling.query import AppQuery
    from torchx.specs.status import AppStatus
    from torchx.sweeps.delayed import Delayed


class Host(Protocol):
    """See :class:`torchx.runner.Runner`."""

    default_scheduler: str
    load_config: Callable[[], Config]
    report_completed: Callable[[str, str], object]
    _name: str
    _component_defaults: dict[str, dict[str, str]]

    def scheduler(self, name: str) -> AnyScheduler:
        """Returns the scheduler of a name."""

    def scheduler_of(self, app_handle: str) -> AnyScheduler:
        """Returns the scheduler of an application."""

    def _find_delayed(self, app_handle: str) -> Delayed | None:
        """Returns an application that was submitted to wait for others; None for any other one."""

    def listed_backends(self) -> list[str]:
        """Returns the names of the schedulers that may have applications."""

    def has(self, scheduler: str, ability: type) -> bool:
        """Returns True if a scheduler implements an optional protocol."""

    def select(self, scheduler: str, query: AppQuery) -> Iterator[ListAppResponse]:
        """Yields the matching applications of a scheduler."""

    def _sends_notifications(self, app_handle: str) -> bool:
        """Returns True if the scheduler of an application sends its notifications."""

    def exists(self, app_handle: str) -> bool:
        """Returns True if the scheduler knows an application."""

    def description(self, app_handle: str, *, brief: bool = False) -> DescribeAppResponse | None:
        """Returns the scheduler's description of an application, None if it is unknown."""

    def status(self, app_handle: str) -> AppStatus | None:
        """Returns the status of an application, None if it is unknown."""

    def _notifications_folder(self, app_handle: str) -> Path:
        """Returns the folder of an application's notifications, which may not exist."""

    def _provenance_folder(self, app_handle: str) -> Path | None:
        """Returns the folder of an application's provenance, which may not exist; None if it is unknown."""
