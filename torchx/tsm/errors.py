"""Errors of sessions: handles of other sessions, incomplete applications."""

from __future__ import annotations

from torchx.errors import StateError, UsageError
from torchx.specs.handles import AppHandle, UnknownAppException


class SessionMismatchException(UsageError):
    """A handle does not belong to this session.

    Args:
        app_handle: the handle.
        session_name: the session of the call.
    """

    code = "other_session"

    def __init__(self, app_handle: AppHandle, session_name: str) -> None:
        super().__init__(
            f"`{app_handle}` does not belong to the session `{session_name}`",
            hint="take it over first: session.attach(app_handle)",
        )
        self.app_handle = app_handle
        self.session_name = session_name


class AppNotReRunnableException(StateError):
    """An application read back from its scheduler is too incomplete to run again.

    Args:
        name: the application.
        missing: the unknown part.
    """

    code = "not_repeatable"

    def __init__(self, name: str, missing: str) -> None:
        super().__init__(
            f"application `{name}` cannot be run again: its scheduler does not report {missing}",
            hint="fill it in, or run the application that it was made from",
        )
        self.name = name
        self.missing = missing


SessionMismatch = SessionMismatchException
"""The same, by its shorter name."""

AppNotReRunnable = AppNotReRunnableException
"""The same, by its shorter name."""

UnknownApp = UnknownAppException
"""The same as ``torchx.specs.UnknownAppException``, by its shorter name."""
