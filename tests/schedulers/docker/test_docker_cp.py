"""Files of containers, running and ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from containers import Jobs, ended, scheduler, sh, until_logged
from copies import MAKE, cp, same
from program import torchx

from torchx.errors import UsageError
from torchx_cli.contexts.members import Log, walk
from torchx_cli.contexts.places import Programs

pytestmark = pytest.mark.docker


def test_files_of_containers(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = f"cd /tmp; {MAKE} ln -s out latest; echo up"
    ended_id = jobs.submit(sh(script))
    running_id = jobs.submit(sh(f"{script}; exec sleep 100"))
    ended(ended_id)
    until_logged(running_id, "up\n")
    for app_id in (ended_id, running_id):
        handle = f"local_docker://torchx/{app_id}"
        copy, again = f"copy-{app_id}", f"again-{app_id}"
        cp(f"{handle}:/tmp/out", copy)
        assert (tmp_path / copy / "sub/a").stat().st_mode & 0o777 == 0o751
        assert (tmp_path / copy / "link").is_symlink()
        cp(f"{handle}:/tmp/latest", f"latest-{app_id}")
        assert same(tmp_path / copy, tmp_path / f"latest-{app_id}")
        cp(copy, f"{handle}:/tmp/in")
        cp(copy, f"{handle}:/tmp/in")
        cp(f"{handle}:/tmp/in/{copy}", again)
        assert same(tmp_path / copy, tmp_path / again)
        cp(f"{copy}/big", f"{handle}:/tmp/one")
        cp(f"{handle}:/tmp/one", f"one-{app_id}")
        assert (tmp_path / f"one-{app_id}").read_bytes() == (tmp_path / copy / "big").read_bytes()
        done = torchx("cp", f"{handle}:/tmp/missing", ".")
        assert (done.returncode, "missing" in done.stderr) == (1, True)


def test_the_tar_of_busybox(jobs: Jobs, tmp_path: Path) -> None:
    app_id = jobs.submit(sh("echo up; exec sleep 100"))
    until_logged(app_id, "up\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a b").write_text("x")
    place = Programs(lambda command, streams: scheduler().execute(app_id, "w", 0, command, streams), "w/0")
    place.write(walk(tmp_path / "in", Log()), "/tmp/to", "", Log())
    place.write(walk(tmp_path / "in/a b", Log()), "/tmp/to", "one", Log())
    with place.read("/tmp/to", Log()) as found:
        assert sorted(member.info.name for member in found) == ["", "a b", "one"]
    with pytest.raises(UsageError, match="no such file or folder"), place.read("/no", Log()) as found:
        list(found)
