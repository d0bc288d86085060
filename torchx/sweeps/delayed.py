"""Single applications that wait for others: to users they are applications of their scheduler.

Each is kept as a sweep of one run. Its handle has the id of the sweep. After the start, the engine has the
application, under the same id if it can.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from torchx.errors import StateError, TorchxError
from torchx.lazy import lazy_imports
from torchx.specs.handles import make_app_handle, parse_app_handle
from torchx.sweeps.paths import BACKEND, is_delayed, paths_of

with lazy_imports:
    from torchx.sweeps import view

if TYPE_CHECKING:
    from torchx.scheduling.base import EngineOf
    from torchx.sweeps.view import Sweep


class Delayed(NamedTuple):
    """A single application that waits for others, or waited.

    Attributes:
        sweep: its sweep.
        app_id: the id on its engine; empty before the start.
    """

    sweep: Sweep
    app_id: str

    @property
    def handle(self) -> str:
        """Its handle: that on the engine after the start."""
        header = self.sweep.header
        return make_app_handle(header.scheduler, header.session, self.app_id or header.sweep)

    @property
    def sweep_handle(self) -> str:
        """The handle of its sweep."""
        return make_app_handle(BACKEND, self.sweep.header.session, self.sweep.header.sweep)


def find(handle: str, engine_of: EngineOf) -> Delayed | None:
    """Returns the application of a handle, if it was submitted to wait for others.

    Args:
        handle: the handle.
        engine_of: returns the scheduler of a name.
    """
    backend, _, app_id = parse_app_handle(handle)
    try:
        if backend == BACKEND or not is_delayed(app_id):
            return None
        sweep = view.find(paths_of(app_id))
    except (StateError, OSError):  # no state home
        return None
    if sweep is None or sweep.header.scheduler != backend:
        return None
    return Delayed(sweep, started(sweep, engine_of))


def started(sweep: Sweep, engine_of: EngineOf) -> str:
    """Returns the id of the application of a sweep of one run; empty if its engine does not have it yet."""
    run = sweep.runs[0]
    if run.ended is not None and run.started is not None:
        return run.app_id
    with suppress(TorchxError, OSError):  # its engine does not answer, or rejected it
        if run.app_id and engine_of(sweep.header.scheduler).exists(run.app_id):
            return run.app_id
    return ""
