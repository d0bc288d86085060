"""Commands on another machine: the same output, exit codes, terminal and files as there."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from copies import MAKE, cp, same
from engine import IMAGE
from program import COMMAND, answer, environment, on_terminal, start, torchx
from sshmachines import IS_ROOT, Machine, add
from support import wait_until

from torchx.version import __version__

HANDLE = re.compile(r"lab\+local_cwd://torchx/(\S+)\n")


def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return torchx("--context", "lab", "run", *words, **options)  # type: ignore[arg-type]


def submit(script: str, *flags: str) -> str:
    """Submits a script, and returns its handle."""
    done = run("-d", *flags, "utils.sh", script)
    assert done.returncode == 0, done.stderr
    assert HANDLE.fullmatch(done.stdout), done.stdout
    return done.stdout.strip()


def test_a_run_is_as_it_is_there(lab: Machine) -> None:
    done = run("utils.sh", "echo out; id -u; pwd; exit 7")
    assert done.returncode == 7
    app_id = HANDLE.fullmatch(done.stdout)[1]  # type: ignore[index]
    assert app_id in lab.jobs()
    lines = done.stderr.splitlines()
    uid = lab.home.stat().st_uid
    assert lines[:3] == ["sh/0 │ out", f"sh/0 │ {uid}", f"sh/0 │ {lab.home}"]
    assert f"torchx --context lab log {app_id}/sh/0" in done.stderr


def test_queries_answer_as_there(lab: Machine) -> None:
    handle = submit("echo hello; exit 3")
    app_id = handle.rpartition("/")[2]
    assert torchx("wait", handle).returncode == 3
    for words in (["status"], ["log"], ["describe"], ["events"], ["status", "-o", "json"], ["why"]):
        there = lab.there(words[0], app_id, *words[1:])
        for done in (torchx(words[0], handle, *words[1:]), torchx(*words, app_id, "--context", "lab")):
            assert done.returncode == there.returncode
            assert ageless(done.stdout) == ageless(there.stdout)
    rows = answer("list", "--context=lab", "-o", "json")
    assert handle in [row["handle"] for row in rows]


def ageless(text: str) -> str:
    """Returns an output without the context and without times before now."""
    return re.sub(r"\d+ (s|min) ago", "ago", text.replace("lab+", "").replace("--context lab ", ""))


def test_a_context_from_the_environment(lab: Machine, tmp_path: Path) -> None:
    submit("true", "--name", "mine")
    assert "mine" in torchx("list", env={"TORCHX_CONTEXT": "lab"}).stdout
    (tmp_path / ".torchxconfig").write_text("[torchx]\ncontext = lab\n")
    assert "mine" in torchx("list", cwd=tmp_path).stdout
    assert "mine" not in torchx("list", "--context", "local", cwd=tmp_path).stdout


def test_the_component_is_evaluated_here(lab: Machine, tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text(
        "import torchx.specs as specs\n"
        "def job(text: str) -> specs.AppDef:\n"
        "    '''A job.'''\n"
        "    return specs.AppDef('job', [specs.Role('r', '', entrypoint='echo', args=[text])])\n"
    )
    done = torchx("--context", "lab", "run", "c.py:job", "--text", "hi", cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, "r/0 │ hi")
    done = torchx("--context", "lab", "run", "c.py:job", "--txt", "hi", cwd=tmp_path)
    assert done.returncode == 2
    assert "did you mean `--text`" in done.stderr


def test_errors_there_are_errors_here(lab: Machine) -> None:
    done = torchx("status", "lab+local_cwd://torchx/nothing-here")
    assert done.returncode == 1
    assert "no application `lab+local_cwd://torchx/nothing-here`" in done.stderr
    done = torchx("--context", "lab", "status", "-o", "json", "local_cwd://torchx/nothing-here")
    assert json.loads(done.stdout)["error"]["code"] == "unknown_application"
    done = torchx("--context", "nolab", "list")
    assert (done.returncode, "did you mean `lab`?" in done.stderr) == (2, True)
    done = torchx("diff", "lab+local_cwd://torchx/a", "other+local_cwd://torchx/b")
    assert done.returncode != 0


def test_a_sweep_runs_there(lab: Machine, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("of the workspace")
    secret = {"TOKEN": "s3cret"}
    words = ("--context", "lab", "run", "--each", "x=1,2", "--workspace", ".", "--secret", "TOKEN")
    words = (*words, "utils.sh", "echo {x} {run} $(cat data) ${#TOKEN}; exit {x}")
    done = torchx(*words, cwd=tmp_path, env=secret)
    assert (done.returncode, "2 runs: 2 failed" in done.stderr) == (1, True), done.stderr
    handle = done.stdout.strip()
    assert handle.startswith("lab+sweep://torchx/")
    assert f"torchx --context lab results {handle.rpartition('/')[2]}" in done.stderr
    logs = torchx("log", handle).stdout
    assert sorted(line.partition("│ ")[2] for line in logs.splitlines()) == [
        "1 1 of the workspace 6",
        "2 2 of the workspace 6",
    ]
    again = torchx(*words, cwd=tmp_path, env=secret)
    assert again.stdout.strip() == handle  # the same command is the same sweep, with its failed runs again
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(tmp_path / "data", other)
    assert torchx(*words, cwd=other, env=secret).stdout.strip() != handle
    done = torchx(*words[:3], "--dryrun", *words[3:], cwd=tmp_path, env=secret)
    assert "2 runs; the request of the first one (x=1):" in done.stderr
    done = run("--each", "y=1,2", "utils.sh", "echo {x}")
    assert (done.returncode, "y" in done.stderr) == (2, True)


def test_an_application_waits_for_another_there(lab: Machine) -> None:
    first = submit("exit 3")
    done = run("--log", "--after", f"{first}:failed", "utils.sh", "echo later")
    assert (done.returncode, "sh/0 │ later" in done.stderr) == (0, True), done.stderr
    done = run("--after", first, "utils.sh", "echo never")
    assert (done.returncode, "not started" in done.stderr) == (1, True), done.stderr


# --- secrets and workspaces --------------------------------------------------------------------------


def test_a_secret_is_in_no_argument(lab: Machine) -> None:
    secret = f"s3cret-{os.urandom(8).hex()}"
    command = start(
        "--context", "lab", "run", "--secret", "TOKEN", "--env", f"OTHER={secret}", "utils.sh",
        'echo "up $(printf %s "$TOKEN" | wc -c)"; sleep 100', env={"TOKEN": secret},
    )  # fmt: skip
    assert command.stderr is not None
    assert command.stderr.readline() == f"sh/0 │ up {len(secret)}\n"
    own = {command.pid}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) not in own:
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            assert secret.encode() not in words, words
    described = torchx("describe", "@last", "--context", "lab", "-o", "json").stdout
    assert secret not in described
    command.send_signal(signal.SIGINT)
    command.communicate(timeout=60)
    assert command.returncode != 0


def test_only_missing_files_are_sent(lab: Machine, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/run.sh").write_text('cat data; cat "sub/link"')
    (tmp_path / "sub/run.sh").chmod(0o750)
    (tmp_path / "sub/link").symlink_to("../data")
    (tmp_path / "data").write_text("one\n")
    (tmp_path / "secret.key").write_text("not sent")
    (tmp_path / ".torchxignore").write_text("*.key\n")
    store = lab.home / ".torchx/contexts/files"
    before = {path.name for path in store.iterdir()}
    words = ("--context", "lab", "run", "--workspace", ".", "utils.sh", "sub/run.sh; ls *.key; pwd")
    done = torchx(*words, cwd=tmp_path)
    assert "sh/0 │ one\nsh/0 │ one\n" in done.stderr
    first = {path.name for path in store.iterdir()}
    assert len(first - before) >= 2
    (tmp_path / "data").write_text("two\n")
    assert "sh/0 │ two\n" in torchx(*words, cwd=tmp_path).stderr
    assert len({path.name for path in store.iterdir()} - first) == 1
    for folder in (lab.home / ".torchx", lab.home / ".torchx/contexts", store):
        assert folder.stat().st_mode & 0o077 == 0


# --- terminal and signals ----------------------------------------------------------------------------


def test_a_terminal_there(lab: Machine) -> None:
    handle = submit("sleep 100")
    shown, code = on_terminal("exec", handle, "sh", "-c", "test -t 0 && test -t 1 && stty size; exit 5")
    assert (shown.strip(), code) == ("40 80", 5)
    done = torchx("exec", "-i", handle, "wc", "-c", stdin="x" * 300_000)
    assert done.stdout.strip() == "300000"
    shown, code = on_terminal("--context", "lab", "list")
    assert "\x1b[" in shown
    torchx("cancel", handle)


def test_ctrl_c_on_a_terminal_cancels(lab: Machine) -> None:
    master, slave = pty.openpty()
    words = [*COMMAND, "--context", "lab", "run", "utils.sh", "echo up; sleep 100"]
    command = subprocess.Popen(
        words,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment({"TERM": "xterm"}),
        start_new_session=True,
    )
    os.close(slave)
    shown = b""
    while b"up\r" not in shown:
        shown += os.read(master, 4096)
    os.write(master, b"\x03")
    reader = threading.Thread(target=drain, args=(master,), daemon=True)
    reader.start()
    assert command.wait(60) != 0
    app_id = re.search(rb"torchx/(\S+)", shown)[1].decode()  # type: ignore[index]
    assert "CANCELLED" in torchx("status", "--context", "lab", app_id).stdout


def drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except OSError:
        pass


def test_a_signal_reaches_the_command(lab: Machine) -> None:
    command = start("--context", "lab", "run", "utils.sh", "echo up; sleep 100")
    assert command.stderr is not None
    assert command.stderr.readline() == "sh/0 │ up\n"
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert command.returncode != 0
    assert "CANCELLED" in err


def test_a_closed_pipe_ends_the_command(lab: Machine) -> None:
    handle = submit("seq 100000; sleep 100")
    line = f"{sys.executable} -m torchx_cli log -f {handle} | head -n 3"
    done = subprocess.run(["bash", "-c", line], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.stdout == "sh/0 │ 1\nsh/0 │ 2\nsh/0 │ 3\n"
    torchx("cancel", handle)


def test_a_full_disk_here_ends_the_command(lab: Machine) -> None:
    handle = submit("seq 1000; sleep 100")
    with Path("/dev/full").open("w") as full:
        words = [*COMMAND, "log", "-f", handle]
        done = subprocess.run(
            words, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert (done.returncode, "the output cannot be written: No space left" in done.stderr) == (1, True)
    torchx("cancel", handle)


# --- lost connections ----------------------------------------------------------------------------------


def test_cuts_lose_and_repeat_no_line(lab: Machine) -> None:
    handle = submit("i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; sleep 0.02; done")
    command = start("log", "-f", handle)
    rng = random.Random(3)
    assert command.stdout is not None
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(command.stdout or ()), daemon=True)
    reader.start()
    wait_until(lambda: lines, "the first line is there")
    cuts = 0
    while command.poll() is None and cuts < 10:
        time.sleep(rng.random())
        cuts += lab.cut() > 0
    assert command.wait(120) == 0
    reader.join()
    command.communicate()
    assert lines == [f"sh/0 │ line {number}\n" for number in range(1, 401)]
    assert cuts > 2


def test_a_cut_submission_is_not_repeated(lab: Machine) -> None:
    rng = random.Random(5)
    for number in range(6):
        before = set(lab.jobs())
        command = start("--context", "lab", "run", "--wait", "utils.sh", f"echo {number}; exit 4")
        time.sleep(rng.random() * 2)
        lab.cut()
        _, err = command.communicate(timeout=90)
        new = set(lab.jobs()) - before
        assert len(new) <= 1, new
        if command.returncode != 69:  # it was cut before the first answer: nothing was submitted
            assert (command.returncode, len(new)) == (4, 1), err


def test_a_machine_that_is_gone(lab: Machine, tmp_path: Path) -> None:
    add("gone", "ssh://127.0.0.1:1")
    done = torchx("--context", "gone", "list")
    assert (done.returncode, done.stderr.count("\n")) == (69, 2)
    assert "gone cannot be reached: " in done.stderr
    submit("true", "--name", "mine")
    done = torchx("list", "--context", "lab,gone,local")
    assert done.returncode == 0
    assert "mine" in done.stdout
    assert "not reached: gone: " in done.stderr
    rows = json.loads(torchx("list", "--context", "lab,gone", "-o", "json").stdout)
    assert any(row["name"] == "mine" for row in rows)


@pytest.mark.long
def test_a_hundred_cuts(lab: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is lost or repeated, nothing is submitted twice, and a copy is continued."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHX_RECONNECT", "300")
    torchx("wait", submit("head -c 100000000 /dev/urandom > large"))
    printing = "i=0; until [ -e stop ]; do i=$((i+1)); echo line $i; sleep 0.05; done; exit 5"
    handle = submit(printing)
    before = set(lab.jobs())
    commands = {
        start("log", "-f", handle): 0,
        start("--context", "lab", "run", "utils.sh", printing): 5,
        start("wait", handle): 5,
    }
    follower, attached, _ = commands
    printed: tuple[list[str], list[str]] = ([], [])
    readers = [
        threading.Thread(target=lines.extend, args=(stream,), daemon=True)
        for lines, stream in zip(printed, (follower.stdout, attached.stderr), strict=True)
    ]
    for reader in readers:
        reader.start()
    rng, cuts, copies, copy = random.Random(7), 0, 0, start("cp", f"{handle}:large", "copy")

    def counts() -> list[int]:
        return [sum(" line " in line for line in lines) for lines in printed]

    def go_on(seen: list[int]) -> bool:
        return all(count > before for count, before in zip(counts(), seen, strict=True))

    while cuts < 100:
        wait_until(partial(go_on, counts()), "both print more lines")
        time.sleep(rng.random() / 2)
        cuts += lab.cut() > 0
        if copy.poll() is not None:
            copies += 1
            copy.communicate()
            copy = start("cp", f"{handle}:large", "copy")
    (lab.home / "stop").touch()
    for command, code in commands.items():
        assert command.wait(300) == code
    for reader in readers:
        reader.join()
    for command in commands:
        command.communicate()
    for lines in printed:
        numbered = [line for line in lines if " line " in line]
        assert numbered == [f"sh/0 │ line {number}\n" for number in range(1, len(numbered) + 1)]
        assert not [line for line in lines if "\\x" in line]
    assert len(set(lab.jobs()) - before) == 1
    assert copies > 0
    copy.communicate(timeout=300)
    cp(f"{handle}:large", "copy")
    assert Path("copy").read_bytes() == (lab.home / "large").read_bytes()


# --- files -----------------------------------------------------------------------------------------


def test_files_there_and_back(lab: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    handle = submit(MAKE)
    torchx("wait", handle)
    assert cp(f"{handle}:out", "copy").endswith("copied 3 files\n")
    assert same(lab.home / "out", tmp_path / "copy")
    cp("copy", f"{handle}/sh/0:in")
    assert same(lab.home / "in", tmp_path / "copy")
    cp("copy", f"{handle}/sh/0:in")
    assert same(lab.home / "in/copy", tmp_path / "copy")
    done = torchx("cp", f"{handle}:missing", "x")
    assert (done.returncode, "lab: no such file or folder" in done.stderr) == (1, True)


def test_a_cut_copy_continues(lab: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    handle = submit("head -c 60000000 /dev/urandom > big")
    torchx("wait", handle)
    command = start("cp", f"{handle}:big", "copy")
    wait_until(lambda: any(p.stat().st_size for p in tmp_path.glob(".torchx-part*")), "a part is there")
    lab.cut()
    command.communicate(timeout=60)
    cp(f"{handle}:big", "copy")
    assert (tmp_path / "copy").read_bytes() == (lab.home / "big").read_bytes()
    assert not list(tmp_path.glob(".torchx-part*"))


# --- engines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("local_docker", marks=pytest.mark.docker),
        pytest.param("slurm", marks=pytest.mark.slurm),
    ],
)
def test_an_engine_there(engine: str, lab: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole life of an application; this user's, as an engine admits few others."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    (tmp_path / "work/data").write_text("of the workspace")
    lab.configure(is_other_user=False)
    home = lab.folder / f"{engine}-home"
    try:
        add("engine", "lab", "--home", str(home))
        words = ("--context", "engine", "run", "-s", engine)
        script = ("utils.sh", "--image", IMAGE)
        done = torchx(*words, "--log", "--workspace", "work", *script, "cat data; exit 4")
        assert (done.returncode, "sh/0 │ of the workspace" in done.stderr) == (4, True), done.stderr
        done = torchx(*words, "-d", *script, "echo out > out; echo up; sleep 600")
        handle = done.stdout.strip()
        assert handle.startswith(f"engine+{engine}://torchx/"), done.stderr
        assert torchx("wait", "--for", "log:up", handle).returncode == 0
        assert torchx("exec", handle, "cat", "out").stdout == "out\n"
        cp(f"{handle}:out", "copy")
        assert Path("copy").read_text() == "out\n"
        cp("copy", f"{handle}:in")
        assert torchx("exec", handle, "cat", "in").stdout == "out\n"
        assert torchx("cancel", "--yes", handle).returncode == 0
        assert torchx("wait", handle).returncode != 0
        assert "CANCELLED" in torchx("status", handle).stdout
        done = torchx(*words, "--each", "x=1,2", "--wait", *script, "exit {x}")
        assert "2 runs: 2 failed" in done.stderr
        for own in (handle, done.stdout.strip()):
            assert torchx("delete", "--yes", own).returncode == 0
    finally:
        lab.configure(is_other_user=IS_ROOT)


# --- odd and hostile machines ------------------------------------------------------------------------


@pytest.fixture
def odd(lab: Machine) -> Machine:
    """The machine before torchx was found there; its shell and home may be changed."""
    shutil.rmtree(lab.home / ".torchx", ignore_errors=True)
    add("odd", "lab")
    return lab


ODD = {
    "banner": {"first": "yes welcome to the lab | head -n 2000"},
    "bash": {"shell": "/bin/bash"},
    "fish": {"shell": "/usr/bin/fish"},
    "tcsh": {"shell": "/usr/bin/tcsh"},
    "csh": {"shell": "/usr/bin/csh"},
    "zsh": {"shell": "/usr/bin/zsh"},
}


@pytest.mark.parametrize("kind", ODD)
def test_shells_that_differ(kind: str, odd: Machine) -> None:
    changes = ODD[kind]
    if not Path(changes.get("shell", "/bin/sh")).exists():
        pytest.skip(f"needs {kind}: .ci/packages installs it")
    odd.configure(**changes)
    try:
        done = torchx("--context", "odd", "run", "utils.echo", "--msg", "hi")
        assert (done.returncode, done.stderr) == (0, "echo/0 │ hi\n"), done.stderr
    finally:
        odd.configure(first="", shell="/bin/sh")


BROKEN = {
    "no python": ({"path": "/nowhere"}, "has no Python 3.10 or newer"),
    "exits": ({"first": "exit 3"}, "cannot be reached"),
    "noise": ({"first": "exec head -c 3000000 /dev/zero"}, "cannot be reached"),
    "escapes": (
        {"first": 'printf \'\\000torchx-host 1 {"error":"a\\\\u001b]0;title\\\\u0007b"}\\n\'; exec cat'},
        "error: odd: a\\x1b]0;title\\x07b",
    ),
    "lies": ({"first": "printf '\\000torchx-host 1 [1]\\n'; exec cat"}, "cannot be reached"),
    "python in a bad place": (
        {"first": 'printf \'\\000torchx-host 1 {"python":"a; rm -rf x"}\\n\'; exec cat'},
        "is not supported",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_machines_are_errors(kind: str, odd: Machine) -> None:
    changes, message = BROKEN[kind]
    odd.configure(**changes)
    try:
        done = torchx("--context", "odd", "list")
        assert message in done.stderr
        assert (done.returncode in (1, 69), len(done.stderr.splitlines()) <= 2) == (True, True), done.stderr
        assert "\x1b" not in done.stderr + done.stdout
    finally:
        odd.configure(first="", path=f"{Path(sys.executable).resolve().parent}:/usr/bin:/bin")


def test_a_user_without_a_home(odd: Machine) -> None:
    odd.configure(variables="LANG=C")
    try:
        done = torchx("--context", "odd", "list")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert "HOME is not set there" in done.stderr
        assert (
            torchx("context", "add", "--replace", "odd", "lab", "--home", str(odd.home / "t")).returncode == 0
        )
        done = torchx("--context", "odd", "run", "utils.echo", "--msg", "hi")
        assert (done.returncode, done.stderr) == (0, "echo/0 | hi\n"), done.stderr
    finally:
        odd.configure(variables=f"HOME={odd.home}")


LIAR = """
import json, os, select, sys
data = b""
while select.select([0], [], [], 1)[0] and (piece := os.read(0, 1 << 20)):
    data += piece
    if data.endswith(b"}\\n"):
        break
header = json.loads(data[data.rindex(b"\\n{") :] if b"\\n{" in data else data[data.rindex(b"\\0{") + 1 :])
if header["op"] == "info":
    answer = {"python": "/usr/bin/python3", "home": "/x", "torchx": %r}
else:
    answer = {"state": "new", "received": 0, **%r}
sys.stdout.write("\\0torchx-host 1 " + json.dumps(answer) + "\\n" + %r)
sys.stdout.flush()
while os.read(0, 1 << 20):
    pass
"""
LIES: dict[str, tuple[dict[str, object], str, list[str]]] = {
    "no count": ({"received": "x"}, "", ["list"]),
    "a count of the future": ({"received": 10**9}, "", ["list"]),
    "a wrong error": ({"error": [1]}, "", ["list"]),
    "no frames": ({}, "\xff" * 100, ["list"]),
    "a path outside": ({"missing": ["../../etc/passwd"]}, "", ["run", "--workspace", ".", "utils.echo"]),
    "no list": ({"missing": 5}, "", ["run", "--workspace", ".", "utils.echo"]),
    "a folder that is none": ({"missing": []}, "[1]\n", ["run", "--workspace", ".", "utils.echo"]),
    "no archive": ({}, "x" * 2000, ["cp", "app:out", "copy"]),
    "an archive without an end": ({}, "", ["cp", "app:out", "copy"]),
    "files that it has": ({}, '{"a": "b"}\n', ["cp", "file", "app:out"]),
    "a port": ({}, "127.0.0.1:22 ; x\n", ["port", "app", "0", "22"]),
}


@pytest.mark.parametrize("kind", LIES)
def test_a_machine_that_lies(kind: str, odd: Machine, tmp_path: Path) -> None:
    fields, rest, words = LIES[kind]
    (tmp_path / "file").write_text("content")
    (odd.folder / "liar.py").write_text(LIAR % (__version__, fields, rest))
    odd.configure(first=f"exec {sys.executable} {odd.folder}/liar.py")
    try:
        done = torchx("--context", "odd", *words, cwd=tmp_path, env={"TORCHX_RECONNECT": "1"})
        assert done.returncode not in (0, None)
        assert (len(done.stderr.splitlines()) <= 2, "bug in torchx" in done.stderr) == (True, False), (
            done.stderr
        )
        assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
    finally:
        odd.configure(first="")


@pytest.mark.parametrize("size", ["200k", "80m"])
def test_a_full_disk_there(size: str, odd: Machine, tmp_path: Path) -> None:
    """The smaller one has no room for torchx, the other none for the workspace."""
    full = odd.home / "full"
    full.mkdir()
    options = f"size={size},uid={odd.home.stat().st_uid},mode=700"
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(full)], capture_output=True
    ).returncode:
        full.rmdir()
        pytest.skip("needs root, to mount a small file system")
    try:
        (tmp_path / "large").write_bytes(bytes(90_000_000))
        add("full", "lab", "--home", str(full))
        done = torchx("--context", "full", "run", "--workspace", ".", "utils.echo", cwd=tmp_path)
        assert (done.returncode, "No space left on device" in done.stderr) == (1, True), done.stderr
        assert len(done.stderr.splitlines()) <= 2
        assert list((full / "contexts/files").iterdir()) == []
        assert [path.name for path in (full / "contexts/apps").iterdir() if path.name.startswith(".")] == []
    finally:
        subprocess.run(["umount", str(full)], check=True)
        full.rmdir()


def test_a_clock_of_another_day(lab: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are compared there, and files are compared by the times that they have there."""
    monkeypatch.chdir(tmp_path)
    (lab.home / "site").mkdir()
    shift = "import time; now = time.time; time.time = lambda: now() + 86_400\n"
    (lab.home / "site/sitecustomize.py").write_text(shift)
    lab.configure(variables=f"HOME={lab.home} PYTHONPATH={lab.home}/site")
    try:
        handle = submit("echo a > a; touch -d 2030-01-01 a; sleep 0.1")
        assert torchx("wait", handle).returncode == 0
        assert "(1 d" not in torchx("list", "--context", "lab").stdout
        cp(f"{handle}:a", "a")
        assert cp("a", f"{handle}:a") == "copied 1 file\n"
        assert (tmp_path / "a").stat().st_mtime == (lab.home / "a").stat().st_mtime
    finally:
        lab.configure(variables=f"HOME={lab.home}")


def test_a_home_that_others_may_write(odd: Machine) -> None:
    (odd.home / ".torchx").mkdir(mode=0o777)
    (odd.home / ".torchx").chmod(0o777)
    done = torchx("--context", "odd", "list")
    assert (done.returncode, "others may write to this folder" in done.stderr) == (1, True)
    shutil.rmtree(odd.home / ".torchx")


def test_torchx_there_is_sent_again(lab: Machine) -> None:
    shutil.rmtree(lab.home / ".torchx/contexts/apps", ignore_errors=True)
    done = run("utils.echo", "--msg", "again")
    assert (done.returncode, done.stderr) == (0, "echo/0 │ again\n")


def test_a_socket_folder_of_others(lab: Machine, tmp_path: Path) -> None:
    own = tmp_path / f"torchx-ssh-{os.geteuid()}"
    own.mkdir()
    own.chmod(0o777)
    done = torchx("--context", "lab", "list", env={"XDG_RUNTIME_DIR": str(tmp_path)})
    assert (done.returncode, "is not a private folder" in done.stderr) == (1, True)


# --- the list of contexts, and the rest without them ---------------------------------------------------


def test_contexts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    add("a.b", "ssh://me@box:2222")
    assert "a.b" in torchx("context", "list").stdout
    assert "address: ssh://me@box:2222" in torchx("context", "show", "a.b").stdout
    for words, message in (
        (["a b", "x"], "cannot be the name"),
        (["local", "x"], "cannot be the name"),
        (["a.b", "x"], "to replace it: --replace"),
        (["x", "ssh://-oProxyCommand=x"], "is not an address"),
        (["x", "ssh://me:password@box"], "is not an address"),
        (["x", "http://box"], "is not an address"),
        (["x", "box", "--python", "/a b"], "--python takes a path"),
    ):
        done = torchx("context", "add", *words)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert torchx("context", "remove", "a.b").returncode == 0
    assert torchx("context", "list").stdout == ""


def test_a_command_without_contexts_loads_none() -> None:
    code = (
        "import sys; from torchx_cli.main import main; main(['list']); main(['run', 'utils.echo']);"
        "sys.exit(any(name.startswith('torchx_cli.contexts') for name in sys.modules))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True).returncode == 0
    )
