"""A program for the tests of the start of supervisors; it reports its flags and the session it runs in."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from torchx.errors import StateError
from torchx.supervisor.process import report_ready, separate


def main(argv: list[str]) -> None:
    folder, behaviour, ready = Path(argv[0]), argv[1], int(argv[2])
    if behaviour == "fails":
        raise ValueError("no such thing")
    if behaviour == "explains":
        raise StateError("the record is damaged", hint="remove it")
    separate()
    if behaviour == "hangs":
        (folder / "pid").write_text(str(os.getpid()))
        time.sleep(600)
    flags = {"utf8": sys.flags.utf8_mode, "isolated": sys.flags.isolated, "site": "site" in sys.modules}
    pids = {"pid": os.getpid(), "session": os.getsid(0)}
    (folder / "report.json").write_text(json.dumps({**flags, **pids}))
    report_ready(ready)
