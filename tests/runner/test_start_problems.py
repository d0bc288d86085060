"""Scripts that cannot be started, and those that can: each verdict is compared with a real start."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from torchx.machine.programs import defect_of_script

ENV = shutil.which("env")


@pytest.mark.parametrize(
    ("first", "defect"),
    [
        (b"#!/bin/sh\n", ""),
        (b"#! \t/bin/sh \n", ""),
        (b"#!/bin/sh\0 -x\n", ""),
        (b"#!sub/sh\n", ""),
        (f"#!{ENV} -S sh -e\r\n".encode(), ""),
        (b"#!/bin/sh -" + b"e" * 300 + b"\n", ""),
        (b"#!/bin/sh\r\n", "Windows"),
        (f"#!{ENV} sh\r\n".encode(), "Windows"),
        (b"#!/no/such/sh\n", "/no/such/sh, which does not exist"),
        (b"#!/bin/sh/sh\n", "/bin/sh/sh, which does not exist"),
        (b"#! \t\n", "without an interpreter"),
    ],
)
def test_script_is_rejected_only_if_it_cannot_be_started(first: bytes, defect: str, tmp_path: Path) -> None:
    script = tmp_path / "run"
    script.write_bytes(first + b"true\n")
    script.chmod(0o755)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/sh").symlink_to("/bin/sh")
    try:
        started = subprocess.run([script], cwd=tmp_path, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        started = False
    found = defect_of_script(script)
    assert (defect in found, bool(found)) == (True, bool(defect))
    assert started is not bool(defect)


def test_interpreter_that_cannot_be_looked_up_is_no_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "run"
    script.write_text("#!/closed/python\n")
    assert "does not exist" in defect_of_script(script)
    real = os.stat

    def closed(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if os.fspath(path) == "/closed/python":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", closed)
    assert defect_of_script(script) == ""
