"""Whose an application is: on a shared engine everyone may end everything, so this is checked here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from torchx.errors import OwnershipError
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.labels import APP_ID
from torchx.schedulers.shared.owner import user_name


def owner_of(containers: Sequence[Container]) -> str:
    """Returns the user who submitted an application; empty when its containers do not say."""
    return next((c.user for c in containers if c.user), "")


def is_own(containers: Sequence[Container]) -> bool:
    """Returns True unless another user has submitted an application."""
    return owner_of(containers) in ("", user_name())


def require_own(containers: Sequence[Container], verb: str, command: str) -> None:
    """Refuses to change another user's application.

    Args:
        containers: its containers, at least one.
        verb: what is to happen to it: "cancelled".
        command: the command of Docker that does it all the same: "docker stop".

    Raises:
        OwnershipError: another user has submitted it.
    """
    if is_own(containers):
        return
    app_id, owner = containers[0].app_id, owner_of(containers)
    listed = f"docker ps -aqf {shlex.quote(f'label={APP_ID}={app_id}')}"
    raise OwnershipError(
        f"{app_id} was submitted by the user {owner}, and you are {user_name()}: it is not {verb}",
        hint=f"if it is to be all the same: {command} $({listed})",
    )
