"""Name of the current user, to recognize the owner of an application on a shared engine."""

from __future__ import annotations

import os


def user_name() -> str:
    """Returns the name of the current user, or the user id if it has no name."""
    try:
        import pwd  # on demand: missing on Windows, which can use remote engines

        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
