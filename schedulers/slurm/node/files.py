"""The files that run on the nodes of a job, some with copies of modules of torchx."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torchx

_HERE = Path(__file__).parent


@cache
def node_file(name: str) -> str:
    """Returns the content of a file in this folder."""
    return (_HERE / name).read_text(encoding="utf-8")


@cache
def judge_file() -> str:
    """Returns the program that decides about retries."""
    return _bundle(["scheduling/failure_causes.py", "scheduling/retry_rules.py"], "judge.py")


@cache
def readiness_file() -> str:
    """Returns the module that checks whether a replica of a service is ready."""
    folder = "supervisor/services"
    modules = ["services/__init__.py", "services/probe.py", f"{folder}/probes.py", f"{folder}/watch.py"]
    return "from __future__ import annotations\n" + _bundle(modules, "readiness.py")


def _bundle(modules: list[str], last: str) -> str:
    """Returns a file with copies of the modules that it imports from torchx, without these imports."""
    folder = Path(torchx.__file__).parent
    parts = [*((folder / name).read_text(encoding="utf-8") for name in modules), node_file(last)]
    imports = ("from torchx.", "from __future__ ")
    return (
        "\n".join(line for part in parts for line in part.splitlines() if not line.startswith(imports)) + "\n"
    )
