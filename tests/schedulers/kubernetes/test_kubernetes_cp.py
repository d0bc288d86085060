"""Files of running pods."""

from __future__ import annotations

from pathlib import Path

import pytest
from copies import MAKE, cp, same
from kubejobs import role, submit, until_all_run, until_ended
from program import torchx

from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler


def test_files_of_a_pod(
    scheduler: KubernetesScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app_id = submit(scheduler, role(f"cd {tmp_path} && {MAKE} exec sleep 100"))
    until_all_run(scheduler, app_id)
    handle = f"kubernetes://torchx/{app_id}"
    cp(f"{handle}:{tmp_path}/out", "copy")
    assert same(tmp_path / "out", tmp_path / "copy")
    cp("copy", f"{handle}:{tmp_path}/in")
    assert same(tmp_path / "copy", tmp_path / "in")
    cp("copy/sub/a", f"{handle}:{tmp_path}/in/file")
    assert (tmp_path / "in/file").read_text() == "hi\n"
    cp(f"{handle}:{tmp_path}/in/file", "one")
    assert (tmp_path / "one").read_text() == "hi\n"
    done = torchx("cp", f"{handle}:{tmp_path}/missing", ".")
    assert (done.returncode, done.stderr.startswith("error: no such file")) == (2, True)
    done = torchx("cp", "one", f"{handle}:{tmp_path}/no/such/file")
    assert (done.returncode, "`tar` in worker/0 failed" in done.stderr) == (1, True)
    assert not list(tmp_path.glob(".torchx-part*"))


def test_files_end_with_a_pod(scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, role("true"))
    until_ended(scheduler, app_id)
    done = torchx("cp", f"kubernetes://torchx/{app_id}:out", ".")
    assert (done.returncode, "has ended, and the files" in done.stderr) == (1, True)
