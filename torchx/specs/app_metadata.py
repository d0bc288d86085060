"""Keys of this project's own entries in the metadata of an application."""

from __future__ import annotations

from torchx import settings

CONTEXT = "torchx/context"
"""The launcher of the application, e.g. ``cli_run``."""

VERSION = "torchx/version"
"""The version of this project that launched it."""

SCHEDULER = "torchx/scheduler"
"""The scheduler it was launched on."""

ROLES_PREFIX = "torchx/roles."
"""The prefix of the keys of one role."""

NA = "<<NA>>"
"""The value of a key without a known value."""

TORCHX_CONTEXT_NAME = settings.TORCHX_CONTEXT_NAME
"""Name of the environment variable with the launcher's name."""
