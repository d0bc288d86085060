"""The user of this process, and the protection of other users' applications from accidents."""

from __future__ import annotations

import os
from functools import cache

from torchx.errors import OwnershipError
from torchx.lazy import lazy_imports

with lazy_imports:
    import getpass


def user_name() -> str:
    """Returns the name of the current user, or the user id if it has no name.

    It comes from the effective user id, not from variables such as ``USER``, which `sudo` and containers
    set differently.
    """
    if hasattr(os, "geteuid"):
        return _name_of(os.geteuid())
    return getpass.getuser()


@cache
def _name_of(uid: int) -> str:
    try:
        import pwd  # on demand: missing on Windows, which can use remote engines

        return pwd.getpwuid(uid).pw_name
    except ImportError:
        return getpass.getuser()
    except KeyError:
        return str(uid)


def is_foreign(owner: str) -> bool:
    """Returns True if an application belongs to another user.

    Args:
        owner: the name of its owner, or an empty string if the engine does not know it.
    """
    return owner not in ("", user_name())


def is_own(owner: str) -> bool:
    """Returns True if an application certainly belongs to the current user."""
    return owner == user_name()


def require_own(app: str, owner: str, verb: str, hint: str | None) -> None:
    """Checks that an application belongs to the current user.

    Args:
        app: the application, for the message.
        owner: the name of its owner, or an empty string if unknown.
        verb: the operation in the past: "cancelled".
        hint: the command of the engine that does it anyway.

    Raises:
        OwnershipError: it belongs to another user.
    """
    if is_foreign(owner):
        raise OwnershipError(
            f"{app} was not {verb}: it was submitted by the user {owner}, and you are {user_name()}",
            hint=hint,
            facts={"owner": owner},
        )
