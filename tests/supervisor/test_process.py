"""The start of a supervisor: the same for local jobs and for containers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from project.sources import ROOT, all_imported, modules
from support import wait_until

from torchx.errors import StateError
from torchx.machine import processes
from torchx.supervisor import process

SAMPLE = "tests.supervisor.sample_supervisor"


def start(folder: Path, behaviour: str = "reports") -> None:
    process.start(SAMPLE, [str(folder), behaviour], folder / "log")


@pytest.mark.parametrize("utf8", [0, 1])
def test_it_encodes_paths_as_its_starter_does(utf8: int, tmp_path: Path) -> None:
    folder = tmp_path / "höme"
    folder.mkdir()
    code = "import sys; from pathlib import Path; from torchx.supervisor import process\n"
    code += f"process.start({SAMPLE!r}, [sys.argv[1], 'reports'], Path(sys.argv[1], 'log'))"
    subprocess.run([sys.executable, "-X", f"utf8={utf8}", "-c", code, str(folder)], check=True)
    report = json.loads((folder / "report.json").read_text())
    assert (report["utf8"], report["isolated"], report["site"]) == (utf8, 1, False)


def test_it_does_not_load_inspect_for_data_classes() -> None:
    """From Python 3.12 on, they load it for each class."""
    data = "import dataclasses\n@dataclasses.dataclass\nclass A:\n    'A class.'\n    x: int"
    lazily = "from torchx import lazy\nlazy.postpone('inspect')"
    least = f"import sys\nsys.path.append(sys.argv[1])\n{lazily}\n{data}"
    begin = process.BOOTSTRAP.partition("from {module}")[0]
    print_loaded = "print(sorted({'ast', 'dis', 'tokenize'} & set(sys.modules)))"
    outputs = [
        subprocess.check_output([sys.executable, "-I", "-S", "-c", f"{code}\n{print_loaded}", str(ROOT)])
        for code in (least, f"{begin}import torchx.supervisor.__main__")
    ]
    assert outputs[0] == outputs[1]


def test_nothing_of_it_stays_with_its_starter(tmp_path: Path) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    start(tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["session"] not in (os.getsid(0), report["pid"]), "another session, and not its leader"
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert str(report["session"]) not in children, "the started process is reaped"
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_failed_start_has_last_line_of_its_output(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="the supervisor did not start: ValueError: no such thing"):
        start(tmp_path, "fails")


def test_a_failed_start_has_the_error_before_its_hint(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"did not start: the record is damaged$"):
        start(tmp_path, "explains")


def test_a_supervisor_that_does_not_get_ready_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = process._is_ready

    def not_ready(reader: int) -> bool:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "it hangs")
        monkeypatch.setattr(process, "READY_WITHIN", 0.0)
        return wait(reader)

    monkeypatch.setattr(process, "_is_ready", not_ready)
    with pytest.raises(StateError, match="the supervisor did not start: no answer"):
        start(tmp_path, "hangs")
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: (entry := processes.look_up(pid)) is None or entry.zombie, "it has ended")


def test_supervisors_are_started_in_one_place() -> None:
    starters = {
        name
        for name, path in modules().items()
        if "sys.executable" in (text := path.read_text(encoding="utf-8")) and '"-S"' in text
    }
    assert starters == {"torchx.supervisor.process"}
    for engine in ("torchx.supervisor.launch", "torchx.schedulers.docker.supervisor_launch"):
        assert "torchx.supervisor" in {target for _, target in all_imported(engine)}
