"""The limits of users, from a file that only root can write."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from torchx.lazy import lazy_imports
from torchx.waiting.order import Quota

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
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


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
