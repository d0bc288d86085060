"""The limits of users, from a file that only root can write."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from torchx.lazy import lazy_imports
from torchx.leases.holders import Holder, holders, names_in_use
from torchx.queue.order import Quota, excess

with lazy_imports:
    import configparser
    import pwd

FILE = Path("/etc/torchx/limits.ini")
"""The file: a section for each user, and ``[*]`` for all others, with ``max_gpus`` and ``max_jobs``."""

EVERYONE = "*"


def load(path: Path = FILE) -> dict[str, Quota]:
    """Returns the limits by user; empty without the file, or if others than root may write to it.

    Args:
        path: the file.
    """
    try:
        status = os.stat(path)  # noqa: PTH116
        if status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return {}
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    return parse(text)


def parse(text: str) -> dict[str, Quota]:
    """Returns the limits in the text of the file; ignores invalid lines.

    >>> parse("[*]\\nmax_gpus = 4\\n[ann]\\nmax_jobs = 2")
    {'*': Quota(gpus=4, jobs=None), 'ann': Quota(gpus=None, jobs=2)}
    """
    parser = configparser.ConfigParser(interpolation=None, strict=False, default_section="")
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    return {
        name: Quota(_number(section.get("max_gpus")), _number(section.get("max_jobs")))
        for name, section in parser.items()
        if name
    }


def _number(text: str | None) -> int | None:
    if text is not None and text.isascii() and text.isdigit():
        return int(text)
    return None


def usage(held: Mapping[str, Holder]) -> dict[int, Quota]:
    """Returns the resources that users have.

    Args:
        held: the holders of leases, by the names of the leases.

    >>> held = {"gpu-0": Holder(3, 40), "gpu-1": Holder(3, 40), "cpu-0": Holder(3, 50)}
    >>> usage(held)
    {3: Quota(gpus=2, jobs=2)}
    """
    gpus: Counter[int] = Counter()
    jobs: dict[int, set[int | str]] = {}
    for name, holder in held.items():
        if holder.uid is not None:
            gpus[holder.uid] += name.startswith("gpu-")
            # one process holds all leases of a job; it has no pid here in another pid namespace
            jobs.setdefault(holder.uid, set()).add(holder.pid or holder.app)
    return {uid: Quota(gpus[uid], len(held_by)) for uid, held_by in jobs.items()}


def excess_of_caller(gpus: int) -> str:
    """Returns why a job that starts now would exceed the limits of the caller; empty if it would not.

    Args:
        gpus: the GPUs that it needs.
    """
    limits, uid = load(), os.geteuid()
    if not limits:
        return ""
    return excess(gpus, of_user(limits, uid), usage(holders(names_in_use())).get(uid, Quota()))


def of_user(limits: Mapping[str, Quota], uid: int) -> Quota:
    """Returns the limits of a user: those of root are unlimited, unless the file names it."""
    if not limits:
        return Quota()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    named = limits.get(name) or limits.get(str(uid))
    return named or (Quota() if uid == 0 else limits.get(EVERYONE, Quota()))
