"""Whether there is a Slurm here, and its controller listens: its programs try for 20 s before they say no."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from torchx.errors import AbsentError

PORT = 6817
"""Where a controller listens unless told."""
_PLACES = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf")
_LINE = re.compile(r"^\s*(SlurmctldHost|SlurmctldPort|ControlMachine|ControlAddr)\s*=\s*(\S+)", re.IGNORECASE)


def require_slurm(program: str) -> None:
    """Looks whether there is a Slurm, which costs less than loading what speaks to it.

    Raises:
        AbsentError: there is no such program on PATH, or ``SLURM_CONF`` names no file.
    """
    named = os.environ.get("SLURM_CONF")
    if named and not Path(named).exists():  # its programs would wait a minute for it
        raise AbsentError(f"there is no Slurm: SLURM_CONF names {named}, and there is no such file")
    if shutil.which(program) is None:
        raise AbsentError(
            f"there is no Slurm on this machine: no program `{program}` on PATH",
            hint="use a login node of the cluster",
        )


def refused() -> str:
    """Returns where nobody listens, when that is so for all controllers of this machine's configuration.

    Empty when one listens, or it cannot be told: the configuration comes from elsewhere, or a connection
    neither comes about nor is refused.
    """
    import socket  # on demand: nobody is late most of the time

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
    path = os.environ.get("SLURM_CONF") or next((p for p in _PLACES if Path(p).exists()), "")
    return Path(path).read_text(encoding="utf-8", errors="replace") if path else ""


def _controllers(text: str) -> Iterator[tuple[str, int]]:
    """Yields the addresses of all controllers.

    >>> list(_controllers("SlurmctldHost=a(10.0.0.1)\\nSlurmctldHost=b\\nSlurmctldPort=6820-6822\\n"))
    [('10.0.0.1', 6820), ('b', 6820)]
    """
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if match := _LINE.match(line.partition("#")[0]):
            found.setdefault(match[1].lower(), []).append(match[2])
    port = int(found.get("slurmctldport", [str(PORT)])[-1].partition("-")[0])
    hosts = found.get("slurmctldhost") or found.get("controladdr") or found.get("controlmachine") or []
    for told in hosts:
        name, _, address = told.partition("(")
        yield address.rstrip(")") or name, port
