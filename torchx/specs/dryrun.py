"""What a dry-run gives back: the request that would be sent, with what it was made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from torchx.specs.app import AppDef
    from torchx.specs.run_options import CfgVal

T = TypeVar("T")


@runtime_checkable
class Manifests(Protocol):
    """A request (a dataclass) that is a number of documents, which the engine's own tool takes as YAML."""

    manifests: list[dict[str, Any]]


class AppDryRunInfo(Generic[T]):
    """A request as a scheduler would send it; printing it shows it to a person.

    Args:
        request: the scheduler's own request object.
        fmt: turns the request into text.

    Attributes:
        request: the scheduler's own request object; ``Role.pre_proc`` may change it.
        notes: what the scheduler will not do of what the application asks for, a line each.
        tell: called with a line about what a submission is waiting for, from any thread; set by those who
            can show it. One that :class:`torchx.progress.Follows` learns how far it is.

    The scheduler's interface fills in the application, the run options and the scheduler's name.

    >>> AppDryRunInfo(["sbatch", "--parsable"], " ".join)
    sbatch --parsable
    """

    def __init__(self, request: T, fmt: Callable[[T], str]) -> None:
        self.request = request
        self.notes: list[str] = []
        self.tell: Callable[[str], None] = _tell_nobody
        self._fmt = fmt
        self._app: AppDef | None = None
        self._cfg: Mapping[str, CfgVal] = {}
        self._scheduler: str | None = None

    @property
    def app(self) -> AppDef | None:
        """The application as it was when the request was made; None before a scheduler told."""
        return self._app

    @property
    def cfg(self) -> Mapping[str, CfgVal]:
        """The run options with defaults filled in."""
        return self._cfg

    def __repr__(self) -> str:
        return self._fmt(self.request)


def _tell_nobody(line: str) -> None:
    """Takes a line and does nothing with it."""
