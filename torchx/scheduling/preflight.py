"""Preflight: checks of the place of each replica before its program starts.

The command of a replica becomes that of a small program, which runs the checks with the Python of the replica
and then executes the original command in its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path, PurePosixPath

from torchx.errors import RunOptionError
from torchx.json_limits import Data, Object
from torchx.lazy import lazy_imports
from torchx.scheduling.stalls import parse_duration
from torchx.specs.app import RetryPolicy, Role

with lazy_imports:
    import base64
    import shlex
    import zlib

SHARED_FILE = "file"
"""All replicas share the folder of their logs, in which they meet."""

PORT = 29491
"""The port at which replicas in containers meet."""

COMMAND_LIMIT = 600.0
"""Maximum seconds of a command."""
_PLAIN: dict[str, Object] = {"gpu": {}, "disk": {"least": 1e9}, "collective": {"limit": 300.0}}
"""The checks that need no value: bytes of disk space that must be free, seconds of a collective operation."""

EXPECTED = "expected gpu[:SIZE], disk[:SIZE], collective[:TIME] or cmd:COMMAND"

_UNITS = {"": 1e9, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_SIZE = r"(?i)(\d+(?:\.\d+)?) ?([kmgt]?)b?"
_PYTHON = r"python(3(\.\d+)?)?"
_BOOT = (
    "import sys; sys.path[:] = [folder for folder in sys.path if folder]; "  # whose modules could hide others
    "import base64, zlib; exec(zlib.decompress(base64.b64decode('{data}')))"
)
_HERE = (
    "import sys; sys.path[:] = [folder for folder in sys.path if folder]; "
    "exec('from __future__ import annotations' + chr(10) + "
    "''.join(line for name in {} "
    "for line in open({!r} + '/' + name, encoding='utf-8') "
    "if not line.startswith(('from torchx.', 'from __future__'))))"
)
_CHECKS = ("handover.py", "preflight_gpus.py", "preflight_program.py")
_SETUP = ("handover.py", "setup_once/program.py")
"""The files of the programs, of which the last one calls its function ``main``."""
_MARK = "  # torchx preflight"
"""The end of the texts for ``python -c``, by which they are recognized."""
_OURS = r"(?m)^(from __future__|from torchx\.).*\n"


def checks_of(cfg: Data) -> list[Object]:
    """Returns the checks of run options.

    Raises:
        RunOptionError: one is invalid.

    >>> checks_of({"preflight": ["disk:2GB", "cmd:test 'a b'"]})
    [{'kind': 'disk', 'least': 2000000000.0}, {'kind': 'cmd', 'command': ['test', 'a b'], 'limit': 600.0}]
    >>> checks_of({"preflight": ["gpu", "collective:2m"]}), checks_of({})
    ([{'kind': 'gpu'}, {'kind': 'collective', 'limit': 120.0}], [])
    """
    value = cfg.get("preflight") or []
    return [_check(str(text).strip()) for text in ([value] if isinstance(value, str) else value)]


def _check(text: str) -> Object:
    kind, _, rest = text.partition(":")
    if kind == "cmd":
        try:
            command = shlex.split(rest)
        except ValueError as error:
            raise RunOptionError("preflight", f"has `{text}`: {error}") from None
        if command:
            return {"kind": kind, "command": command, "limit": COMMAND_LIMIT}
    elif text in _PLAIN:
        return {"kind": kind, **_PLAIN[text]}
    elif kind in ("gpu", "disk"):
        size = re.fullmatch(_SIZE, rest)
        if size:
            return {"kind": kind, "least": float(size[1]) * _UNITS[size[2].lower()]}
    elif kind == "collective":
        limit = parse_duration(rest)
        if limit:
            return {"kind": kind, "limit": limit}
    raise RunOptionError("preflight", f"has `{text}`, {EXPECTED}")


def with_checks(
    command: Sequence[str], role: Role, cfg: Data, meet: str = "", *, here: bool = False
) -> list[str]:
    """Returns the command of a replica that runs the checks and then the set-up first, if there are any.

    Args:
        command: the program and its arguments.
        role: its role.
        cfg: the run options.
        meet: the host of the first replica (default: ``TORCHX_RANK0_HOST``), or :data:`SHARED_FILE`.
        here: the replica runs on this machine, so that it can read the files of this package.
    """
    if cfg.get("setup_once"):
        command = ["python3", "-c", _text(_SETUP, here), str(cfg["setup_once"]), "--", *command]
    checks = checks_of(cfg)
    if not checks:
        return list(command)
    request = {
        "checks": checks,
        "gpus": max(0, role.resource.gpu),
        "replicas": role.num_replicas,
        "together": role.retry_policy is not RetryPolicy.REPLICA,
        "meet": meet,
        "port": PORT,
    }
    python = "python3"
    if re.fullmatch(_PYTHON, PurePosixPath(command[0]).name):
        python = command[0]
    return [python, "-c", _text(_CHECKS, here), json.dumps(request), "--", *command]


def without_checks(command: Sequence[str]) -> list[str]:
    """Returns the command of a replica without the checks and the set-up.

    >>> role = Role("w", "", entrypoint="sh")
    >>> without_checks(with_checks(["sh", "-c", "date"], role, {"preflight": ["disk"], "setup_once": "make"}))
    ['sh', '-c', 'date']
    """
    while len(command) > 5 and (command[1], command[4]) == ("-c", "--") and command[2].endswith(_MARK):
        command = command[5:]
    return list(command)


@cache
def _text(names: Sequence[str], here: bool) -> str:
    """Returns a program as a text for ``python -c``: it has the files, or reads those of this package."""
    folder = str(Path(__file__).parent)
    if here:
        return _HERE.format(names, folder) + _MARK
    parts = [Path(folder, name).read_text("utf-8") for name in names]
    text = "from __future__ import annotations\n" + "\n".join(re.sub(_OURS, "", part) for part in parts)
    data = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return _BOOT.format(data=data) + _MARK
