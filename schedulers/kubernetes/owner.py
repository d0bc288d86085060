"""Ownership of applications: protects those of other users from being ended or deleted by accident."""

from __future__ import annotations

import shlex

from torchx.errors import OwnershipError
from torchx.schedulers.kubernetes.api.objects import annotation, short
from torchx.schedulers.kubernetes.manifests.names import PREFIX
from torchx.schedulers.kubernetes.objects import Facts

USER = f"{PREFIX}user"
"""Annotation of the submitted objects: the login name of the submitter."""


class ForeignAppError(OwnershipError):
    """An application was submitted by another user.

    Args:
        app_id: the application.
        owner: the submitter.
        caller: the user of this process.
    """

    def __init__(self, app_id: str, owner: str, caller: str) -> None:
        super().__init__(
            f"{app_id} was submitted by `{owner}`, and you are `{caller}`: nothing was changed",
            hint=f"to end or delete it anyway, act as its owner: LOGNAME={shlex.quote(owner)} torchx ...",
        )
        self.owner, self.caller = owner, caller


def current_user() -> str:
    """Returns the login name of the caller, or an empty string if unknown, as in some containers."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


def owner_of(facts: Facts) -> str:
    """Returns the submitter of an application, or an empty string if its objects do not record one."""
    return next((short(user) for main in facts.mains if (user := annotation(main, USER))), "")


def is_foreign(facts: Facts) -> bool:
    """Returns True if an application was submitted by another user."""
    owner, caller = owner_of(facts), current_user()
    return bool(owner and caller) and owner != caller


def is_own(facts: Facts) -> bool:
    """Returns True if an application was certainly submitted by the caller."""
    return bool(owner_of(facts)) and owner_of(facts) == current_user()


def require_own(facts: Facts) -> None:
    """Checks that an application may be changed by the caller.

    Raises:
        ForeignAppError: it belongs to another user.
    """
    if is_foreign(facts):
        raise ForeignAppError(facts.app_id, owner_of(facts), current_user())
