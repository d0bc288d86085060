"""What the commands of one command line share: the flags before the command, config and runner."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torchx import settings
from torchx.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from threading import ExceptHookArgs

    from typer import Context

    from torchx.config import Config
    from torchx.runner.api import Runner

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
SESSION = "torchx"
"""The session part of the handles that the command line makes."""


class Session:
    """The flags before the command, and what is made from them on demand.

    Args:
        profile: the profile of the configuration, None for none.
        log_level: the level of the project's own log messages; empty for `$LOGLEVEL`.
    """

    def __init__(self, profile: str | None = None, log_level: str = "") -> None:
        self.profile = profile
        self._config: Config | None = None
        level = (log_level or os.environ.get(settings.LOGLEVEL, "")).upper()
        if log_level and level not in LEVELS:
            raise UsageError(f"--log_level takes one of {', '.join(LEVELS)}, got `{log_level}`")
        if level in LEVELS:
            _show_log(level)

    @property
    def config(self) -> Config:
        """The configuration that counts."""
        if self._config is None:
            from torchx.config import load_config

            self._config = load_config(profile=self.profile)
            found = self._config.found
            for path, why in zip(found.passed_over, found.reasons, strict=True):
                from torchx_cli.terminal.output import note

                note(f"note: {passed_over(path, why)}")
        return self._config

    @contextmanager
    def runner(self, *, check_home: bool = True) -> Iterator[Runner]:
        """Opens the runner, and closes it at the end.

        Args:
            check_home: refuse a state home of another user; else whoever uses it does.

        Raises:
            StateError: the state home belongs to another user, or others may write to it.
        """
        import threading

        from torchx.runner import get_runner

        if check_home:
            from torchx.jobs.paths import check_user_home

            check_user_home()
        threading.excepthook = _tell_of_thread
        with get_runner(SESSION) as runner:
            yield runner


def passed_over(path: Path, why: str) -> str:
    """Returns one line about a configuration file that is not used, with the way to use it."""
    import shlex

    from torchx.config import shown_path

    name = shown_path(path)
    return f"{name} is not used: {why}; to use it: torchx config trust {shlex.quote(name)}"


def _tell_of_thread(failed: ExceptHookArgs) -> None:
    """Reports in one line what a thread has failed of; commands report what matters to them on their own."""
    from torchx_cli.terminal.output import note

    error = failed.exc_value
    if error is None or isinstance(error, SystemExit):
        return
    name = failed.thread.name if failed.thread is not None else "a thread"
    note(f"note: {name} has failed: {str(error).partition(chr(10))[0] or type(error).__name__}")


def _show_log(level: str) -> None:
    """Shows the messages of loggers on stderr, printable and without secrets."""
    import logging  # on demand: without a level nothing is set up

    from torchx_cli.terminal.masking import mask_text
    from torchx_cli.terminal.output import shown

    class Shown(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return shown(mask_text(super().format(record)))

    handler = logging.StreamHandler()
    handler.setFormatter(Shown("torchx %(asctime)s %(levelname)-8s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def session_of(ctx: Context) -> Session:
    """Returns what the commands of this command line share."""
    found = ctx.find_object(Session)
    return found if found is not None else Session()
