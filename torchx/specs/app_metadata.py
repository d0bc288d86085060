"""Keys under which this project itself notes things in the metadata of an application."""

from __future__ import annotations

from torchx import settings

CONTEXT = "torchx/context"
"""Who launched the application, e.g. ``cli_run``."""

VERSION = "torchx/version"
"""The version of this project that launched it."""

SCHEDULER = "torchx/scheduler"
"""The scheduler it was launched on."""

ROLES_PREFIX = "torchx/roles."
"""Begins the keys of what is noted of one role."""

NA = "<<NA>>"
"""The value of a key that nothing is known for."""

TORCHX_CONTEXT_NAME = settings.TORCHX_CONTEXT_NAME
"""Name of the environment variable that says who launches."""
