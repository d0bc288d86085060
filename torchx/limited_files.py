"""Files of other people and programs: read within limits, never waited for."""

from __future__ import annotations

import errno
import os
import stat


class NotAFileError(OSError):
    """A path leads to a pipe, a device or a socket, and reading it might never end."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EINVAL, "is not a regular file", path)


class TooLargeError(OSError):
    """A file has more bytes than are read."""

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(errno.EFBIG, f"has more than {limit:,} bytes", path)


def read_limited(path: str | os.PathLike[str], limit: int) -> bytes:
    """Returns the content of a regular file.

    Args:
        path: the file; links are followed.
        limit: the most bytes that it may have.

    Raises:
        NotAFileError: it is something that reading might wait for.
        TooLargeError: it has more bytes than that.
        OSError: it cannot be read.
    """
    name = os.fspath(path)
    if not stat.S_ISREG(mode := os.stat(name).st_mode) and not stat.S_ISDIR(mode):  # noqa: PTH116
        raise NotAFileError(name)  # opening a device may do something already
    # a pipe may stand in its place by now: this does not wait for one
    opened = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with open(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise NotAFileError(name)
        data = file.read(limit + 1)
    if len(data) > limit:
        raise TooLargeError(name, limit)
    return data
