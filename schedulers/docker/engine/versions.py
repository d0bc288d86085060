"""The version of the engine's API to use: DOCKER_API_VERSION, or the newest that engine and client know."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from torchx.errors import StateError, UsageError
from torchx.schedulers.docker.engine.address import WITHOUT_DOCKER, Address

OLDEST = (1, 40)
"""The oldest supported version: Docker 19.03."""
NEWEST = (1, 47)
"""The newest version used, unless an engine requires a newer one."""
SETTING = "DOCKER_API_VERSION"

_Version = tuple[int, ...]


def parse_version(text: object) -> _Version:
    """Returns a version as numbers; empty if it is invalid.

    >>> parse_version("1.41"), parse_version("v1"), parse_version(None)
    ((1, 41), (), ())
    """
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", text) if isinstance(text, str) else None
    return (int(match[1]), int(match[2])) if match else ()


def choose_version(address: Address, offered: _Version, minimum: Callable[[], _Version]) -> str:
    """Returns the version to use with an engine.

    Args:
        address: its address.
        offered: the newest version that it supports.
        minimum: returns the oldest version that it supports; called for engines newer than this client.

    Raises:
        StateError: the engine is too old.
        UsageError: DOCKER_API_VERSION is invalid, or not supported.
    """
    if offered < OLDEST:
        raise StateError(
            f"the Docker engine at {address} is too old: its API version is {_text(offered)}, "
            f"{_text(OLDEST)} is needed",
            hint=f"upgrade it to Docker 19.03 or newer; {WITHOUT_DOCKER}",
        )
    setting = os.environ.get(SETTING, "")
    if setting:
        wanted = parse_version(setting.removeprefix("v"))
        if not OLDEST <= wanted <= offered:
            raise UsageError(
                f"{SETTING} is {setting}, expected a version from {_text(OLDEST)} to {_text(offered)}, "
                f"the newest of the engine at {address}",
                hint=f"use the newest version that both support: unset {SETTING}",
            )
        return _text(wanted)
    return _text(offered if offered <= NEWEST else max(NEWEST, minimum()))


def _text(version: _Version) -> str:
    return ".".join(map(str, version))
