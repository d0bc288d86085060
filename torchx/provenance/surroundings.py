"""The Python and the machine of a submission."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torchx import json_shape
from torchx.errors import StateError
from torchx.machine import files
from torchx.masking import mask_text
from torchx.provenance import repository as repositories
from torchx.provenance.git import Deadline, GitError
from torchx.provenance.model import LAUNCHER, PROGRAM, Editable, Machine, Python
from torchx.provenance.source import is_changed

LISTING = Path(__file__).with_name("list_packages.py")
LONGEST_LISTING = 1 << 24
MOST_EDITABLE = 50


def read_python(program: str, folder: Path, deadline: Deadline) -> Python:
    """Returns the Python that a program runs with, else that of torchx.

    Args:
        program: the path of the program; may be empty.
        folder: a folder of our own for temporary files.
        deadline: the time until which files are read.

    Raises:
        StateError: it cannot be run.
    """
    named = python_of(program)
    found = None
    if named:
        with contextlib.suppress(StateError):
            found = _listed(named, deadline)
    data = found or _listed(sys.executable, deadline)
    editable = {}
    for name, path in [*data.editable.items()][:MOST_EDITABLE]:
        editable[name] = _editable(path, folder / "git", deadline)
    return Python(
        version=data.version,
        executable=data.executable,
        origin=PROGRAM if found is not None else LAUNCHER,
        packages=dict(sorted(data.packages.items())),
        editable=editable,
    )


def python_of(program: str) -> str:
    """Returns the Python that a program is, or that its first line names; empty if it is not known."""
    if not program:
        return ""
    name = program.rpartition("/")[2]
    if name.rstrip("0123456789.") in ("python", "pypy"):
        return program
    try:
        with open(files.open_file(program, own=False, follow=True), "rb") as opened:
            first = opened.read(512).split(b"\n")[0]
    except (OSError, ValueError):
        return ""
    words = []
    if first.startswith(b"#!"):
        words = os.fsdecode(first[2:]).split()
    if len(words) == 2 and words[0].endswith("/env"):
        words = [shutil.which(words[1]) or ""]
    known = words and words[0].rpartition("/")[2].rstrip("0123456789.") in ("python", "pypy")
    if known:
        return words[0]
    return ""


class _Listing(NamedTuple):
    """The output of the program in LISTING."""

    version: str
    executable: json_shape.SystemText
    packages: dict[str, str]
    editable: dict[str, json_shape.SystemText]


def _listed(python: str, deadline: Deadline) -> _Listing:
    """Returns the packages of a Python.

    Raises:
        StateError: it cannot be run, or does not list them.
    """
    try:
        listing = subprocess.run(
            [python, "-c", LISTING.read_text(encoding="utf-8")],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            timeout=deadline.left,
            check=True,
        ).stdout
        found: _Listing = json_shape.read(_Listing, json.loads(listing[:LONGEST_LISTING]), "listing")
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, RecursionError) as error:
        raise StateError(f"{python} does not list its packages") from error
    return found


def _editable(path: str, folder: Path, deadline: Deadline) -> Editable:
    repository = repositories.find(path)
    if repository is None:
        return Editable(path)
    commit = repositories.head(repository).commit or ""
    try:
        return Editable(path, commit, is_changed(repository, folder, deadline))
    except (GitError, OSError, ValueError):
        return Editable(path, commit)


def read_machine(env: Mapping[str, str], deadline: Deadline) -> Machine:
    """Returns the name, the user, the system and the GPUs of this machine.

    Args:
        env: the environment.
        deadline: the time until which the GPUs may answer.
    """
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # an id without an entry in the password file
        user = str(os.getuid())
    gpus, driver = _gpus(env, deadline)
    return Machine(
        socket.gethostname(),
        user,
        f"{platform.system()} {platform.release()} {platform.machine()}",
        gpus,
        driver,
    )


def _gpus(env: Mapping[str, str], deadline: Deadline) -> tuple[tuple[str, ...], str]:
    """Returns the names of the GPUs, and the version of their driver."""
    program = shutil.which("nvidia-smi", path=env.get("PATH"))
    if program is None:
        return (), ""
    try:
        listing = subprocess.run(
            [program, "--query-gpu=name,driver_version", "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=min(20, deadline.left),
            check=True,
        ).stdout
    except (OSError, ValueError, subprocess.SubprocessError):
        return (), ""
    rows = [line.rpartition(", ") for line in listing[: 1 << 16].splitlines() if ", " in line]
    return tuple(mask_text(name) for name, _, _ in rows), rows[0][2] if rows else ""
