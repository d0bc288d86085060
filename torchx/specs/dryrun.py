"""The result of a dry-run: the request, and the application and options it was made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from torchx.specs.app import AppDef
    from torchx.specs.run_options import CfgVal

T = TypeVar("T")


@runtime_checkable
class Manifests(Protocol):
    """A request (a dataclass) of several documents, which the engine's own tool accepts as YAML."""

    manifests: list[dict[str, Any]]


class AppDryRunInfo(Generic[T]):
    """A request as a scheduler would send it; its ``repr`` is readable.

    Args:
        request: the scheduler's own request object.
        fmt: formats the request.

    Attributes:
        request: the scheduler's own request object; ``Role.pre_proc`` may change it.
        notes: warnings about parts of the application that the scheduler does not honour, one line each.
        tell: called from any thread with a line about the progress of a submission; callers that display
            progress set it. A :class:`torchx.scheduling.progress.Follows` receives measured progress too.

    The scheduler's interface fills in the application, the run options and the scheduler's name.

    >>> AppDryRunInfo(["sbatch", "--parsable"], " ".join)
    sbatch --parsable
    """

    def __init__(self, request: T, fmt: Callable[[T], str]) -> None:
        self.request = request
        self.notes: list[str] = []
        self.tell: Callable[[str], None] = _discard
        self._fmt = fmt
        self._app: AppDef | None = None
        self._cfg: Mapping[str, CfgVal] = {}
        self._scheduler: str | None = None

    @property
    def app(self) -> AppDef | None:
        """The application at the time of the request; None before the scheduler has set it."""
        return self._app

    @property
    def cfg(self) -> Mapping[str, CfgVal]:
        """The run options with defaults filled in."""
        return self._cfg

    def __repr__(self) -> str:
        return self._fmt(self.request)


def _discard(line: str) -> None:
    """Discards a line."""
