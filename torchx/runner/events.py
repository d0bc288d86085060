"""Events of the runner: what was asked of which scheduler, how long it took, and how it failed.

They are records of ``logging``: the message is the event as a line of JSON, each field of it is an attribute
of the record, and ``record.torchx_event`` is the event itself. Nobody gets them unasked. There are two ways
to ask: set the level of the logger ``torchx.events`` to INFO and give it handlers as any other logger; or
name a destination in ``TORCHX_EVENTS``.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from torchx import settings
from torchx.errors import UsageError
from torchx.words import did_you_mean

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping
    from types import TracebackType

    from torchx.specs.run_options import CfgVal

BUILT_IN = ("null", "console")
"""Where events can go without a plugin: nowhere, or to stderr."""

LOGGER = "torchx.events"
"""The logger that takes all events once its level is set to INFO."""

_making = threading.Lock()
_made: dict[str, logging.Handler] = {}


@dataclass
class TorchxEvent:
    """One call of the runner.

    Attributes:
        session: the name of the runner.
        scheduler: the scheduler that was called; empty when none was.
        api: the method of the runner.
        app_id: the application it was about.
        app_image: the image of its first role.
        app_metadata: the metadata of the application.
        runcfg: the run options, as JSON text.
        workspace: the workspace.
        raw_exception: how it failed, with traceback.
        exception_type: the class of the error.
        exception_message: its text.
        cpu_time_usec: processor time of this process, microseconds.
        wall_time_usec: time by the clock, microseconds.
        start_epoch_time_usec: when it began, microseconds since the epoch.
    """

    session: str
    scheduler: str
    api: str
    app_id: str | None = None
    app_image: str | None = None
    app_metadata: dict[str, str] | None = None
    runcfg: str | None = None
    workspace: str | None = None
    raw_exception: str | None = None
    exception_type: str | None = None
    exception_message: str | None = None
    cpu_time_usec: int | None = None
    wall_time_usec: int | None = None
    start_epoch_time_usec: int | None = None

    def __str__(self) -> str:
        return self.serialize()

    def serialize(self) -> str:
        """Returns the event as one line of JSON."""
        import json

        return json.dumps(asdict(self))

    @staticmethod
    def deserialize(data: str | TorchxEvent) -> TorchxEvent:
        """Returns the event that :meth:`serialize` gave; an event as it is.

        >>> TorchxEvent.deserialize(TorchxEvent("s", "local_cwd", "run").serialize()).api
        'run'
        """
        if isinstance(data, TorchxEvent):
            return data
        import json

        return TorchxEvent(**json.loads(data))


class log_event:
    """Records a call: put it round the call in a ``with`` statement, and add to ``event`` meanwhile.

    Args:
        api: the method of the runner.
        scheduler: the scheduler that is called.
        app_id: the application it is about.
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
            session, scheduler or "", api, app_id, app_image, app_metadata, runcfg, workspace
        )

    def __enter__(self) -> log_event:
        if _destination() != "null":
            get_events_logger(_destination())  # a wrong one is an error before the call, not after it
        self.event.start_epoch_time_usec = time.time_ns() // 1000
        self._wall, self._cpu = time.perf_counter_ns(), time.process_time_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not heard():
            return
        if self.event.app_metadata:
            from torchx.masking import mask

            self.event.app_metadata = mask(self.event.app_metadata)
        self.event.wall_time_usec = (time.perf_counter_ns() - self._wall) // 1000
        self.event.cpu_time_usec = (time.process_time_ns() - self._cpu) // 1000
        if kind is not None:
            import traceback

            from torchx.masking import mask_text

            self.event.raw_exception = mask_text("".join(traceback.format_exception(kind, error, trace)))
            self.event.exception_type = kind.__name__
            self.event.exception_message = mask_text(str(error))
        record(self.event, _destination())


def heard() -> bool:
    """Tells whether anybody has asked for events."""
    return _destination() != "null" or _listening() is not None


def record(event: TorchxEvent, destination: str = "null") -> None:
    """Sends an event to the logger ``torchx.events``, where that is listened to, and to a destination.

    Args:
        event: what happened.
        destination: ``null``, ``console``, or the name of a plugin's handler.

    Raises:
        UsageError: there is no such destination.
    """
    loggers = [_listening(), get_events_logger(destination) if destination != "null" else None]
    for logger in loggers:
        if logger is not None:
            named = {each.name: getattr(event, each.name) for each in fields(event)}
            logger.info("%s", event, extra={**named, "torchx_event": event})


def shown(cfg: Mapping[str, CfgVal]) -> str:
    """Returns run options as JSON text, secrets masked; of mappings the keys alone, such as of environments.

    >>> shown({"queue": "gpu", "env": {"HF_TOKEN": "x"}})
    '{"queue": "gpu", "env": ["HF_TOKEN"]}'
    """
    import json

    from torchx.masking import mask

    return json.dumps(mask({key: list(val) if isinstance(val, dict) else val for key, val in cfg.items()}))


def _destination() -> str:
    return os.environ.get(settings.TORCHX_EVENTS) or "null"


def _listening() -> logging.Logger | None:
    """Returns the logger of all events; None when its level was not set, or lets none of them pass."""
    if "logging" not in sys.modules:  # then nobody can have set a level
        return None
    import logging

    logger = logging.getLogger(LOGGER)
    return logger if logger.level and logger.isEnabledFor(logging.INFO) else None


def get_events_logger(destination: str = "null") -> logging.Logger:
    """Returns the logger that takes the events of a destination, one line of JSON each.

    Raises:
        UsageError: there is no such destination.
    """
    import logging

    logger = logging.getLogger(f"torchx-event.{destination}")
    with _making:  # of two threads at once, one alone adds the handler
        if _made.get(destination) not in logger.handlers:
            _made[destination] = _handler(destination)
            logger.addHandler(_made[destination])
            logger.setLevel(logging.INFO)
            logger.propagate = False
    return logger


def _handler(destination: str) -> logging.Handler:
    import logging

    from torchx.plugins import PluginType, registry

    plugins = registry().get(PluginType.EVENT_HANDLER)
    if destination in plugins:
        handler: logging.Handler = plugins[destination]()
        return handler
    if destination not in BUILT_IN:
        known = [*BUILT_IN, *plugins]
        raise UsageError(
            f"events cannot go to `{destination}` (from ${settings.TORCHX_EVENTS})",
            hint=did_you_mean(destination, known, "destinations: " + ", ".join(known)),
        )
    return logging.NullHandler() if destination == "null" else logging.StreamHandler()
