"""Checks the owner of an application, as a shared engine lets every user end every container."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from torchx.errors import OwnershipError
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.labels import APP_ID
from torchx.schedulers.shared.owner import user_name


def owner_of(containers: Sequence[Container]) -> str:
    """Returns the name of an application's owner, or an empty string if unknown."""
    return next((c.user for c in containers if c.user), "")


def is_own(containers: Sequence[Container]) -> bool:
    """Returns True unless an application was submitted by another user."""
    return owner_of(containers) in ("", user_name())


def require_own(containers: Sequence[Container], verb: str, command: str) -> None:
    """Refuses to change another user's application.

    Args:
        containers: its containers, at least one.
        verb: the refused change: "cancelled".
        command: the Docker command that makes it anyway: "docker stop".

    Raises:
        OwnershipError: it was submitted by another user.
    """
    if is_own(containers):
        return
    app_id, owner = containers[0].app_id, owner_of(containers)
    listed = f"docker ps -aqf {shlex.quote(f'label={APP_ID}={app_id}')}"
    raise OwnershipError(
        f"{app_id} was not {verb}: it was submitted by the user {owner}, and you are {user_name()}",
        hint=f"to do it anyway: {command} $({listed})",
    )
