"""The former place of the id that the events of a process share."""

from __future__ import annotations

import os
import uuid

from torchx import settings


def get_torchx_session_id() -> str | None:
    """Returns the id of the session this process belongs to, or None."""
    return os.environ.get(settings.TORCHX_INTERNAL_SESSION_ID)


def get_session_id_or_create_new() -> str:
    """Returns the id of the session, which also processes started from here belong to."""
    return os.environ.setdefault(settings.TORCHX_INTERNAL_SESSION_ID, str(uuid.uuid4()))
