"""Events of the runner: calls of schedulers, with their duration and errors.

They are records of ``logging``: the message is the event as a line of JSON, each field of it is an attribute
of the record, and ``record.torchx_event`` is the event itself. They are off by default. There are two ways to
receive them: set the level of the logger ``torchx.events`` to INFO and add handlers as for any other logger;
or name a destination in ``TORCHX_EVENTS``.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING

from torchx import settings
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.masking import mask, mask_text
from torchx.suggestions import did_you_mean

with lazy_imports:
    import json
    import logging
    import traceback

    from torchx import plugins as torchx_plugins

if TYPE_CHECKING:
    from types import TracebackType

    from torchx.specs.run_options import RunOptions

BUILT_IN = ("null", "console")
"""Built-in destinations: none, or stderr."""

LOGGER = "torchx.events"
"""The logger of all events, active once its level is INFO."""

_making = threading.Lock()
_made: dict[str, logging.Handler] = {}


class SourceType(str, Enum):
    """The origin of a call; every call of this package's runner is UNKNOWN."""

    UNKNOWN = "<unknown>"
    INTERNAL = "INTERNAL"
    EXTERNAL = "EXTERNAL"


@dataclass
class TorchxEvent:
    """One call of the runner.

    Attributes:
        session: the name of the runner.
        scheduler: the called scheduler; may be empty.
        api: the method of the runner.
        app_id: the application concerned.
        app_image: the image of its first role.
        app_metadata: the metadata of the application.
        runcfg: the run options, as JSON text.
        raw_exception: the error with its traceback.
        source: the origin of the call.
        cpu_time_usec: processor time of this process, microseconds.
        wall_time_usec: elapsed time, microseconds.
        start_epoch_time_usec: its start, microseconds since the epoch.
        workspace: the workspace.
        exception_type: the class of the error.
        exception_message: its text.
    """

    session: str
    scheduler: str
    api: str
    app_id: str | None = None
    app_image: str | None = None
    app_metadata: dict[str, str] | None = None
    runcfg: str | None = None
    raw_exception: str | None = None
    source: SourceType = SourceType.UNKNOWN
    cpu_time_usec: int | None = None
    wall_time_usec: int | None = None
    start_epoch_time_usec: int | None = None
    workspace: str | None = None
    exception_type: str | None = None
    exception_message: str | None = None

    def __str__(self) -> str:
        return self.serialize()

    def serialize(self) -> str:
        """Returns the event as one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def deserialize(data: str | TorchxEvent) -> TorchxEvent:
        """Restores an event from :meth:`serialize`; returns an event unchanged.

        >>> TorchxEvent.deserialize(TorchxEvent("s", "local_cwd", "run").serialize()).api
        'run'
        """
        if isinstance(data, TorchxEvent):
            return data
        values = json.loads(data)
        return TorchxEvent(**{**values, "source": SourceType(values.get("source", SourceType.UNKNOWN))})


class log_event:
    """Context manager that records a call; the caller may add to ``event``.

    Args:
        api: the method of the runner.
        scheduler: the called scheduler.
        app_id: the application concerned.
        app_image: the image of its first role.
        app_metadata: the metadata of the application.
        runcfg: the run options, as JSON text.
        workspace: the workspace.
        session: the name of the runner.
    """

    def __init__(
        self,
        api: str,
        scheduler: str | None = None,
        app_id: str | None = None,
        app_image: str | None = None,
        app_metadata: dict[str, str] | None = None,
        runcfg: str | None = None,
        workspace: str | None = None,
        session: str | None = None,
    ) -> None:
        session = session or os.environ.get(settings.TORCHX_INTERNAL_SESSION_ID, "")
        self.event = TorchxEvent(
            session, scheduler or "", api, app_id, app_image, app_metadata, runcfg, workspace=workspace
        )

    @property
    def _torchx_event(self) -> TorchxEvent:
        """The former name of `event`, which derived runners of other packages use."""
        return self.event

    def __enter__(self) -> log_event:
        if _destination() != "null":
            get_events_logger(_destination())  # reports an unknown destination before the call
        self.event.start_epoch_time_usec = time.time_ns() // 1000
        self._wall, self._cpu = time.perf_counter_ns(), time.process_time_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not heard():
            return
        if self.event.app_metadata:
            self.event.app_metadata = mask(self.event.app_metadata)
        self.event.wall_time_usec = (time.perf_counter_ns() - self._wall) // 1000
        self.event.cpu_time_usec = (time.process_time_ns() - self._cpu) // 1000
        if kind is not None:
            self.event.raw_exception = mask_text("".join(traceback.format_exception(kind, error, trace)))
            self.event.exception_type = kind.__name__
            self.event.exception_message = mask_text(str(error))
        record(self.event, _destination())


def heard() -> bool:
    """Returns True if events have a receiver."""
    return _destination() != "null" or _listening() is not None


def record(event: TorchxEvent, destination: str = "null") -> None:
    """Sends an event to the logger ``torchx.events``, if active, and to a destination.

    Args:
        event: the event.
        destination: ``null``, ``console``, or the name of a plugin's handler.

    Raises:
        UsageError: the destination is unknown.
    """
    loggers = [_listening(), get_events_logger(destination) if destination != "null" else None]
    for logger in loggers:
        if logger is not None:
            named = {each.name: getattr(event, each.name) for each in fields(event)}
            logger.info("%s", event, extra={**named, "torchx_event": event})


def shown(cfg: RunOptions) -> str:
    """Returns run options as JSON text with masked secrets; only the keys of mappings, such as environments.

    >>> shown({"queue": "gpu", "env": {"HF_TOKEN": "x"}})
    '{"queue": "gpu", "env": ["HF_TOKEN"]}'
    """
    return json.dumps(mask({key: list(val) if isinstance(val, dict) else val for key, val in cfg.items()}))


def _destination() -> str:
    return os.environ.get(settings.TORCHX_EVENTS) or "null"


def _listening() -> logging.Logger | None:
    """Returns the logger of all events; None if it is not active."""
    if "logging" not in sys.modules:  # then no level can have been set
        return None
    logger = logging.getLogger(LOGGER)
    if logger.level and logger.isEnabledFor(logging.INFO):
        return logger
    return None


def get_events_logger(destination: str = "null") -> logging.Logger:
    """Returns the logger of a destination, with one line of JSON for each event.

    Raises:
        UsageError: the destination is unknown.
    """
    logger = logging.getLogger(f"torchx-event.{destination}")
    with _making:  # only one of two concurrent threads adds the handler
        if _made.get(destination) not in logger.handlers:
            _made[destination] = _handler(destination)
            logger.addHandler(_made[destination])
            logger.setLevel(logging.INFO)
            logger.propagate = False
    return logger


def _handler(destination: str) -> logging.Handler:
    plugins = torchx_plugins.registry().get(torchx_plugins.PluginType.EVENT_HANDLER)
    if destination in plugins:
        handler: logging.Handler = plugins[destination]()
        return handler
    if destination not in BUILT_IN:
        known = [*BUILT_IN, *plugins]
        raise UsageError(
            f"unknown destination of events `{destination}` (from ${settings.TORCHX_EVENTS})",
            hint=did_you_mean(destination, known, "destinations: " + ", ".join(known)),
        )
    if destination == "null":
        return logging.NullHandler()
    return logging.StreamHandler()
