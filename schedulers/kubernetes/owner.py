"""The user who submitted an application: another user's is not ended or deleted by accident."""

from __future__ import annotations

import shlex

from torchx.errors import OwnershipError
from torchx.schedulers.kubernetes.api.objects import annotation, short
from torchx.schedulers.kubernetes.manifests.names import PREFIX
from torchx.schedulers.kubernetes.objects import Facts

USER = f"{PREFIX}user"
"""Annotation of the submitted objects: the login name of the user who submitted them."""


class ForeignAppError(OwnershipError):
    """An application was submitted by another user.

    Args:
        app_id: the application.
        owner: the user who submitted it.
        caller: the user who runs this process.
    """

    def __init__(self, app_id: str, owner: str, caller: str) -> None:
        super().__init__(
            f"{app_id} was submitted by `{owner}`, and you are `{caller}`: nothing was changed",
            hint=f"to end or delete it all the same, act for them: LOGNAME={shlex.quote(owner)} torchx ...",
        )
        self.owner, self.caller = owner, caller


def current_user() -> str:
    """Returns the login name of the caller; empty where none is known, as in some containers."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


def owner_of(facts: Facts) -> str:
    """Returns the user who submitted an application; empty when its objects do not say."""
    return next((short(user) for main in facts.mains if (user := annotation(main, USER))), "")


def is_foreign(facts: Facts) -> bool:
    """Returns True if an application is known to be another user's."""
    owner, caller = owner_of(facts), current_user()
    return bool(owner and caller) and owner != caller


def require_own(facts: Facts) -> None:
    """Refuses to change the application of another user.

    Raises:
        ForeignAppError: it is one.
    """
    if is_foreign(facts):
        raise ForeignAppError(facts.app_id, owner_of(facts), current_user())
