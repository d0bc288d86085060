"""The files that run on the nodes of a job, some with copies of modules of torchx."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torchx

_ROOT = Path(torchx.__file__).parent
_HERE = "schedulers/shared/batch/node"
_COPIES = {
    "steps.py": ("stragglers/slots.py",),
    "stragglers.py": ("stragglers/rule.py", "stragglers/watch.py"),
    "agent.py": (f"{_HERE}/program.py", "schedulers/shared/batch/measurement/meter.py"),
    "judge.py": ("scheduling/patterns.py", "scheduling/failure_causes.py", "scheduling/retry_rules.py"),
    "readiness.py": (
        "services/__init__.py",
        "services/probe.py",
        "scheduling/patterns.py",
        "supervisor/services/probes.py",
        "supervisor/services/watch.py",
    ),
}
"""The modules of torchx that a program on a node imports, which its file begins with."""


@cache
def node_file(name: str, engine: str = "shared/batch") -> str:
    """Returns the content of a file for the nodes; a program has copies of the modules that it imports.

    Args:
        name: the name of the file.
        engine: the folder of the engine that it belongs to.
    """
    text = _read(f"schedulers/{engine}/node/{name}")
    if name not in _COPIES:
        return text
    lines = "".join([*map(_read, _COPIES[name]), text]).splitlines()
    imports = ("from torchx.", "from __future__ ")
    future = [line for line in text.splitlines() if line.startswith(imports[1])]
    return "\n".join([*future, *(line for line in lines if not line.startswith(imports)), ""])


def _read(path: str) -> str:
    return (_ROOT / path).read_text(encoding="utf-8")
