"""The result of a dry-run: the request, and the application and options it was made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from torchx.specs.app import AppDef
    from torchx.specs.run_options import CfgVal

T = TypeVar("T")


@runtime_checkable
class Manifests(Protocol):
    """A request (a dataclass) of several documents, which the engine's own tool accepts as YAML."""

    manifests: list[dict[str, Any]]


def _discard(line: str) -> None:
    """Discards a line of progress."""


def _older_name(name: str) -> property:
    """Returns a property that reads and sets an attribute of another name."""
    return property(attrgetter(name), lambda info, value: setattr(info, name, value))


class AppDryRunInfo(Generic[T]):
    """A request as a scheduler would send it; its ``repr`` is readable.

    Args:
        request: the scheduler's own request object.
        fmt: formats the request.

    Attributes:
        request: the scheduler's own request object; ``Role.pre_proc`` may change it.
        notes: warnings about parts of the application that the scheduler does not honour, one line each.
        app: the application at the time of the request; None before the scheduler has set it.
        cfg: the run options with defaults filled in.
        scheduler: the name of the scheduler; None before the scheduler has set it.
        on_progress: called from any thread with a line about the progress of a submission; callers that
            display progress set it. A :class:`torchx.scheduling.progress.Follows` receives measured progress
            too.

    :meth:`torchx.schedulers.api.Scheduler.submit_dryrun` assigns ``app``, ``cfg`` and ``scheduler``.
    ``_app``, ``_cfg``, ``_scheduler`` and ``tell`` are older names of these attributes.

    >>> AppDryRunInfo(["sbatch", "--parsable"], " ".join)
    sbatch --parsable
    """

    def __init__(self, request: T, fmt: Callable[[T], str]) -> None:
        self.request = request
        self.notes: list[str] = []
        self.app: AppDef | None = None
        self.cfg: Mapping[str, CfgVal] = {}
        self.scheduler: str | None = None
        self.on_progress: Callable[[str], None] = _discard
        self._fmt = fmt

    _app = _older_name("app")
    _cfg = _older_name("cfg")
    _scheduler = _older_name("scheduler")
    tell = _older_name("on_progress")

    def __repr__(self) -> str:
        return self._fmt(self.request)
