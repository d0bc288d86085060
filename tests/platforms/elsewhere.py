"""Running torchx on a system that is no Linux: as a process of its own, made by `hidden.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from program import environment

from platforms.hidden import wrapper

RUN_ALL = """
import contextlib, io, json, os, sys
assert sys.platform == "darwin" and not hasattr(os, "pidfd_open") and not os.path.exists("/proc/self/stat")
from torchx_cli.main import main
results = []
for args in json.loads(sys.argv[1]):
    out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(args)
        out.flush(), err.flush()
    results.append([code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()])
print(json.dumps(results))
"""


class Result(NamedTuple):
    """What a command line of torchx came to."""

    code: int
    stdout: str
    stderr: str


def torchx_elsewhere(
    folder: Path, *lines: str | Sequence[str], env: Mapping[str, str] | None = None
) -> list[Result]:
    """Runs command lines of torchx, one after the other, in one process of a system that is no Linux."""
    lists = [line.split() if isinstance(line, str) else list(line) for line in lines]
    done = subprocess.run(
        [str(wrapper(folder, sys.executable)), "-c", RUN_ALL, json.dumps(lists)],
        env=environment(env),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    results = [Result(*each) for each in json.loads(done.stdout.splitlines()[-1])]
    for result in results:
        assert "bug in torchx" not in result.stderr, result.stderr
    return results
