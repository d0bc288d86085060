"""Check that Slurm is installed and its controller is reachable, faster than Slurm's own programs do."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from torchx.errors import AbsentError
from torchx.lazy import lazy_imports

with lazy_imports:
    import socket


PORT = 6817
"""Default port of a controller."""
_CONFIG_FILES = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf")
_LINE = re.compile(r"^\s*(SlurmctldHost|SlurmctldPort|ControlMachine|ControlAddr)\s*=\s*(\S+)", re.IGNORECASE)


def require_slurm(program: str) -> None:
    """Checks that a Slurm program is installed.

    Raises:
        AbsentError: the program is not on PATH, or the file in ``SLURM_CONF`` does not exist.
    """
    path = os.environ.get("SLURM_CONF")
    if path and not Path(path).exists():  # Slurm's programs would wait a minute for it
        raise AbsentError(f"Slurm is not configured: SLURM_CONF={path} does not exist")
    if shutil.which(program) is None:
        raise AbsentError(
            f"Slurm is not installed: `{program}` is not on PATH",
            hint="use a login node of the cluster",
        )


def refusing_addresses() -> str:
    """Returns the addresses of the configured controllers if all of them refuse connections.

    Returns an empty string if one accepts a connection, or if the addresses or their state are unknown.
    """
    try:
        addresses = list(_controllers(_configuration()))
    except (OSError, ValueError):
        return ""
    for host, port in addresses:
        try:
            socket.create_connection((host, port), 1.0).close()
        except ConnectionRefusedError:
            continue
        except OSError:
            return ""
        return ""
    return ", ".join(f"{host}:{port}" for host, port in addresses)


def _configuration() -> str:
    path = os.environ.get("SLURM_CONF") or next((p for p in _CONFIG_FILES if Path(p).exists()), "")
    return Path(path).read_text(encoding="utf-8", errors="replace") if path else ""


def _controllers(text: str) -> Iterator[tuple[str, int]]:
    """Yields the addresses of all controllers.

    >>> list(_controllers("SlurmctldHost=a(10.0.0.1)\\nSlurmctldHost=b\\nSlurmctldPort=6820-6822\\n"))
    [('10.0.0.1', 6820), ('b', 6820)]
    """
    settings: dict[str, list[str]] = {}
    for line in text.splitlines():
        if match := _LINE.match(line.partition("#")[0]):
            settings.setdefault(match[1].lower(), []).append(match[2])
    port = int(settings.get("slurmctldport", [str(PORT)])[-1].partition("-")[0])
    hosts = (
        settings.get("slurmctldhost") or settings.get("controladdr") or settings.get("controlmachine") or []
    )
    for host in hosts:
        name, _, address = host.partition("(")
        yield address.rstrip(")") or name, port
