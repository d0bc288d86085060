"""Output of replicas, of any kind and speed: nothing is lost, memory stays flat, no replica waits."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from local import describe, ended, run, scheduler, sh, submit, supervision_of, text
from program import COMMAND, environment
from support import wait_until

from torchx.scheduling.logs import LogChunk, LogQuery, Stream
from torchx.specs.app import Role
from torchx.specs.status import AppState

MB = 1 << 20


def python(code: str, *args: str, replicas: int = 1) -> Role:
    return Role("w", image="", entrypoint=sys.executable, args=["-c", code, *args], num_replicas=replicas)


def kept(app_id: str, stream: Stream = Stream.COMBINED, replica: int = 0) -> bytes:
    query = LogQuery(stream=stream, replicas={"w": frozenset([replica])})
    return b"".join(chunk.data for chunk in scheduler().log_chunks(app_id, query))


def peak_mb(pid: int) -> float:
    """The most memory a process has held at a time."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def test_binary_output_is_kept_and_can_be_read() -> None:
    app_id = run(sh(r"printf 'a\377\376\000b\303\n\302'; printf 'caf\351\n' >&2")).app_id
    assert kept(app_id, Stream.STDOUT) == b"a\xff\xfe\x00b\xc3\n\xc2"
    assert kept(app_id, Stream.STDERR) == b"caf\xe9\n"
    words = [*COMMAND, "log", app_id, "--streams", "stderr"]
    shown = subprocess.run(words, capture_output=True, env=environment(), check=True).stdout
    assert shown.removeprefix("w/0 │ ".encode()) == b"caf\xe9\n"


def test_line_of_100_mb_needs_no_memory_of_supervisor() -> None:
    code = "import os, time\nfor n in range(100): os.write(1, b'x' * (1 << 20))\nos.write(1, b'end\\n')\n"
    code += "time.sleep(600)"
    app_id = submit(python(code))
    log = Path(str(describe(app_id).log_dir), "w/0/stdout.log")
    wait_until(lambda: log.exists() and log.stat().st_size == 100 * MB + 4, "all of it is kept")
    supervisor, guard = supervision_of(app_id)
    assert peak_mb(supervisor.pid) < 25
    assert peak_mb(guard.pid) < 25
    scheduler().cancel(app_id)
    ended(app_id)
    data = kept(app_id)
    assert len(data) == 100 * MB + 4
    assert data.endswith(b"xend\n")


def test_fast_writer_loses_nothing() -> None:
    # three at once, both streams, in pieces of any size; each says at the end what it has written
    code = """
import hashlib, os, random, sys
sums = {1: hashlib.sha256(), 2: hashlib.sha256()}
pieces = random.Random(int(sys.argv[1]))
block = bytes(pieces.randrange(256) for _ in range(1 << 16))
for n in range(300):
    for stream in (1, 2):
        piece = block[: pieces.randrange(1, 1 << 16)]
        sums[stream].update(piece)
        left = memoryview(piece)
        while left:
            left = left[os.write(stream, left):]
open(sys.argv[2] + sys.argv[1], "w").write(" ".join(s.hexdigest() for s in sums.values()))
"""
    home = Path(os.environ["TORCHX_HOME"]).parent
    done = run(python(code, "${replica_id}", f"{home}/sums-", replicas=3))
    assert done.state is AppState.SUCCEEDED
    for replica in range(3):
        sums = (home / f"sums-{replica}").read_text().split()
        for stream, written in zip((Stream.STDOUT, Stream.STDERR), sums, strict=True):
            assert hashlib.sha256(kept(done.app_id, stream, replica)).hexdigest() == written
            raw = Path(str(done.log_dir), "w", str(replica), f"{stream}.log").read_bytes()
            assert hashlib.sha256(raw).hexdigest() == written


@pytest.mark.parametrize("words", [["run", "-s", "local_cwd", "utils.sh"], ["log", "-f"]])
def test_a_reader_that_has_stopped_reading_blocks_no_replica(words: list[str]) -> None:
    script = "echo ready; while [ ! -e go ]; do sleep 0.02; done; yes some line | head -c 3000000; touch done"
    home = Path(os.environ["HOME"])
    if words[0] == "log":
        words = [*words, submit(sh(f"cd {home}; {script}"))]
    else:
        words = [*words, f"cd {home}; {script}"]
    reader = subprocess.Popen(
        [*COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    try:
        app_id = wait_until(lambda: [line.app_id for line in scheduler().list()], "it is on record")[0]
        wait_until(lambda: "ready" in text(app_id), "it is ready")
        (home / "go").touch()
        # 3 MB do not fit into a pipe, which has no reader
        wait_until((home / "done").exists, "all is printed")
        assert ended(app_id).state is AppState.SUCCEEDED
        assert len(text(app_id)) == 3000000 + len("ready\n")
        assert reader.poll() is None
    finally:
        reader.kill()
        reader.communicate()


def test_job_that_is_deleted_while_its_log_is_followed() -> None:
    app_id = submit(sh("echo ready; sleep 600"))
    chunks: list[LogChunk] = []
    errors: list[BaseException] = []

    def follow() -> None:
        try:
            for chunk in scheduler().log_chunks(app_id, LogQuery(follow=True)):
                chunks.append(chunk)
        except BaseException as error:
            errors.append(error)

    reader = threading.Thread(target=follow)
    reader.start()
    wait_until(lambda: chunks, "the reader has come so far")
    scheduler().delete(app_id)
    reader.join(30)
    assert not reader.is_alive()
    assert errors == []
    assert b"".join(chunk.data for chunk in chunks) == b"ready\n"


def test_component_file_that_is_deleted_while_job_runs(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import torchx.specs as specs\n\n\ndef app() -> specs.AppDef:\n"
        "    role = specs.Role('w', image='', entrypoint='sh', args=['-c', 'echo ready; sleep 600'])\n"
        "    return specs.AppDef('mine', [role])\n"
    )
    words = [*COMMAND, "run", "-d", "-s", "local_cwd", f"{file}:app"]
    said = subprocess.run(words, capture_output=True, text=True, env=environment(), check=True).stdout
    app_id = said.strip().rsplit("/", 1)[-1]
    wait_until(lambda: text(app_id) == "ready\n", "it is ready")
    file.unlink()
    assert describe(app_id).roles[0].args[1] == "echo ready; sleep 600"
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED


def test_removed_log_folder_does_not_end_a_job(tmp_path: Path) -> None:
    app_id = submit(
        sh(f"cd {tmp_path}; echo ready; while [ ! -e go ]; do sleep 0.02; done; echo more; exit 3")
    )
    wait_until(lambda: text(app_id) == "ready\n", "it is ready")
    shutil.rmtree(str(describe(app_id).log_dir))
    (tmp_path / "go").touch()
    done = ended(app_id)
    assert done.first_failure is not None
    assert done.first_failure.exit_code == 3
    assert text(app_id) == ""
