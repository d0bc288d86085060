"""The output of `torchx cancel`, `delete` and `prune`, as types."""

from __future__ import annotations

from typing import Annotated, TypedDict

from torchx_cli.schemas.applications import Identity
from torchx_cli.schemas.errors import ErrorData
from torchx_cli.schemas.keys import AppState, EndedAt, State


class PrunedApp(Identity):
    """A removed application."""

    state: AppState
    ended_at: EndedAt
    bytes: Annotated[int, "the size of its files"]


class Cancelled(Identity):
    """An application in the output of `torchx cancel`."""

    state: Annotated[State, "the state when the command ends"]
    cancelled: Annotated[bool, "false if it had ended before, or cannot be cancelled"]
    error: Annotated[ErrorData | None, "why it cannot be cancelled"]


class Deleted(Identity):
    """An application in the output of `torchx delete`."""

    state: Annotated[State, "the last state of the application"]
    deleted: Annotated[bool, "false if it cannot be deleted"]
    error: Annotated[ErrorData | None, "why it cannot be deleted"]


class Leftover(TypedDict):
    """A leftover file or image."""

    path: Annotated[str, "the path or name"]
    bytes: Annotated[int, "the size"]


class PruneResult(TypedDict):
    """The output of `torchx prune`."""

    dryrun: Annotated[bool, "whether this was a dry-run"]
    applications: Annotated[list[PrunedApp], "the removed applications"]
    leftovers: Annotated[list[Leftover], "the removed leftovers"]
    freed: Annotated[int, "total bytes"]
