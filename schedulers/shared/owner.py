"""The user of this process, to whom the applications on a shared engine are compared."""

from __future__ import annotations

import os


def user_name() -> str:
    """Returns the name of the user of this process; the user's number if it has no name."""
    try:
        import pwd  # loaded on demand: Windows has none, and needs none for remote engines

        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
