"""Runs Python as if the system were no Linux: names that others lack are removed before torchx is imported.

`python hidden.py -c CODE ...`, `-m MODULE ...`: as Python takes them. Programs that this Python starts by
`sys.executable`, such as the supervisor of containers, run the same way.
"""

from __future__ import annotations

import errno
import fcntl
import os
import runpy
import select
import signal
import socket
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

NAMES: dict[types.ModuleType, tuple[str, ...]] = {
    os: (
        *("pidfd_open", "P_PIDFD", "sched_getaffinity", "sched_setaffinity", "memfd_create", "eventfd"),
        *("pipe2", "waitid", "P_ALL", "P_PID", "P_PGID", "WNOWAIT", "copy_file_range", "splice", "fdatasync"),
        *("O_TMPFILE", "O_PATH", "O_NOATIME", "O_DIRECT", "posix_fadvise", "posix_fallocate", "getrandom"),
        *("getxattr", "listxattr", "setxattr", "removexattr", "getresuid", "setresuid", "setns", "unshare"),
    ),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo", "SIGRTMIN", "SIGRTMAX", "SIGPWR"),
    select: ("epoll", "EPOLLIN", "EPOLLOUT"),
    socket: ("SO_PEERCRED", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "AF_NETLINK", "AF_VSOCK", "TCP_USER_TIMEOUT"),
    fcntl: ("F_SETPIPE_SZ", "F_GETPIPE_SZ", "F_OFD_SETLK", "F_OFD_SETLKW", "F_ADD_SEALS", "F_NOTIFY"),
}
"""Names of standard modules that macOS does not have, in some Python that this project runs on."""

HERE = str(Path(__file__).resolve())
OPTIONS_WITH_A_VALUE = ("-X", "-W")


def hide(executable: str) -> None:
    """Takes away what other systems lack; `executable` is given out as this Python."""
    for module, names in NAMES.items():
        for name in names:
            vars(module).pop(name, None)
    sys.addaudithook(_refuse)
    stat = os.stat

    def stat_without_proc(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        _refuse("os.stat", (path,))
        return stat(path, *args, **kwargs)

    os.stat = stat_without_proc
    sysconfig.get_config_vars()  # reads a file that is named after the system
    sys.platform = "darwin"
    sys.executable = executable
    proxies = types.ModuleType("_scproxy")  # urllib looks there for the proxies of macOS
    vars(proxies).update(_get_proxy_settings=dict, _get_proxies=dict)
    sys.modules["_scproxy"] = proxies


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir", "os.stat") and args:
        path = os.fsdecode(args[0]) if isinstance(args[0], (str, bytes, os.PathLike)) else ""
        if path == "/proc" or path.startswith(("/proc/", "/sys/")):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    elif event == "socket.bind":
        address = args[1]
        if isinstance(address, (str, bytes)) and address[:1] in ("\0", b"\0"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    elif event == "ctypes.dlsym" and args[1] in ("prctl", b"prctl"):
        raise AttributeError("prctl")


def wrapper(folder: Path, python: str) -> Path:
    """Writes a program that runs as a Python without Linux."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec "{python}" "{HERE}" "$0" "$@"\n')
    path.chmod(0o755)
    return path


def main(executable: str, args: list[str]) -> None:
    """Runs what the arguments of a Python say."""
    hide(executable)
    sys.path.pop(0)  # the folder of this file
    while args and args[0] not in ("-c", "-m"):
        del args[: 2 if args[0] in OPTIONS_WITH_A_VALUE else 1]
    how, what, *rest = args
    if how == "-m":
        sys.argv = [what, *rest]
        sys.path.insert(0, "")
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv = ["-c", *rest]
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})  # as Python does with -c


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
