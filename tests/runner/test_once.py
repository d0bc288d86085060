"""Idempotent submission: one application for a name, whatever happens to those who submit it."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from engine import IMAGE
from memory_scheduler import MemoryScheduler
from program import answer, environment, start, torchx

from torchx import settings
from torchx.errors import StateError, UsageError
from torchx.runner import Runner, get_runner
from torchx.runner.once import marked
from torchx.specs.app import AppDef, Role

SCRIPT = "echo run >> runs; exit 3"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def app(*args: str) -> AppDef:
    return AppDef("job", [Role("w", "", entrypoint="echo", args=list(args))])


def entry(name: str) -> Path:
    return Path(os.environ["TORCHX_HOME"]) / "once" / f"{name}.json"


def test_a_command_that_is_repeated_gets_the_same_application(folder: Path) -> None:
    first = torchx("run", "--once", "nightly", "utils.sh", SCRIPT)
    again = torchx("run", "--once", "nightly", "utils.sh", SCRIPT)
    assert (first.stdout, first.returncode) == (again.stdout, again.returncode)
    assert again.returncode == 3
    app_id = first.stdout.strip().rpartition("/")[2]
    assert f"note: nothing was submitted: {app_id} has the name `nightly` and is FAILED" in again.stderr
    assert (folder / "runs").read_text() == "run\n"
    data = json.loads(torchx("run", "--json", "-d", "--once", "nightly", "utils.sh", SCRIPT).stdout)
    assert (data["existed"], data["app_id"]) == (True, app_id)

    rerun = torchx("rerun", "--json", "-d", "@last", "--once", "second")
    assert json.loads(rerun.stdout)["existed"] is False
    assert json.loads(torchx("rerun", "--json", "-d", app_id, "--once", "second").stdout)["existed"] is True
    assert torchx("rerun", "-d", app_id).stdout != first.stdout  # without the flag, not by the old name
    assert len(answer("list", "-o", "json")) == 3
    torchx("run", "-d", "--name", "nightly-eval", "utils.echo")
    assert answer("status", "nightly", "-o", "json")["app_id"] == app_id, "not one whose id begins like that"


def test_other_arguments_under_the_name_are_an_error() -> None:
    handle = torchx("run", "-d", "--once", "nightly", "utils.echo", "--msg", "a").stdout.strip()
    done = torchx("run", "-d", "--once", "nightly", "utils.echo", "--msg", "b")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: the name `nightly` belongs to {handle}, which was submitted with other arguments: "
        f"role echo: args was `a`, now `b`\n  use another name; to free this one: torchx delete {handle}\n"
    )
    with_secret = torchx(
        "run", "-d", "--once", "nightly", "--env", "KEY=s3cret-value", "utils.echo", "--msg", "a"
    )
    assert "role echo: variable KEY was absent, now `set`" in with_secret.stderr
    other = torchx("run", "-d", "-cfg", "grace_period=3", "--once", "nightly", "utils.echo", "--msg", "a")
    assert "run option grace_period was `10.0`, now `3.0`" in other.stderr
    assert len(answer("list", "-o", "json")) == 1
    torchx("wait", handle)
    torchx("delete", handle)  # frees the name
    assert torchx("run", "-d", "--once", "nightly", "utils.echo", "--msg", "b").returncode == 0


@pytest.mark.parametrize(
    ("first", "second", "part"),
    [
        (["--secret", "TOK=@one"], ["--secret", "TOK=@two"], "role sh: variable TOK was set, now set to an"),
        ([], ["--env", "Q="], "role sh: variable Q was absent, now `set`"),
        (["--env", "Q=a"], ["--env", "Q="], "role sh: variable Q was set, now set to another value"),
        (["--env", "TORCHX_Z=1"], ["--env", "TORCHX_Z=2"], "role sh: variable TORCHX_Z was set, now set to"),
        (["--parent_run_id", "a"], ["--parent_run_id", "b"], "role sh: variable TORCHX_PARENT_RUN_ID was"),
        (["--tag", "team=a"], ["--tag", "team=b"], "metadata torchx/tag.team was `a`, now `b`"),
        (["--note", "a"], [], "metadata torchx/note was `a`, now absent"),
        (["--notify", "cmd:true a"], ["--notify", "cmd:true b"], "notifications was set, now set to another"),
    ],
)
def test_any_other_input_is_an_error(folder: Path, first: list[str], second: list[str], part: str) -> None:
    (folder / "one").write_text("first-secret")
    (folder / "two").write_text("second-secret")
    assert torchx("run", "--once", "nightly", *first, "utils.sh", "true").returncode == 0
    done = torchx("run", "--once", "nightly", *second, "utils.sh", "true")
    assert (done.returncode, part in done.stderr) == (2, True), done.stderr
    assert torchx("run", "--once", "nightly", *first, "utils.sh", "true").returncode == 0
    assert len(answer("list", "-o", "json")) == 1


def test_equal_content_from_other_files_is_the_same(folder: Path) -> None:
    (folder / "a.env").write_text("A=1\nB=2\n")
    (folder / "b.env").write_text("# a copy\nexport B='2'\nA=1\n")
    for name in ("one", "two", "other"):
        (folder / name).write_text("a-secret-value\n")
    words = ("utils.sh", "true")
    for given in (
        ["--env-file", "a.env", "--secret", "S=@one", "--secret", "T=@other"],
        ["--secret", "T=@other", "--secret", "S=@two", "--env-file", "b.env"],
        ["--env", "B=2", "--secret", "T=@one", "--secret", "S=@two", "--env", "A=1"],
    ):
        assert torchx("run", "--once", "nightly", *given, *words).returncode == 0
    assert len(answer("list", "-o", "json")) == 1


def test_a_digest_needs_the_key_of_the_state_home(folder: Path) -> None:
    (folder / "pin").write_text("1234")
    words = ("run", "--once", "nightly", "--secret", "PIN=@pin", "utils.sh", "true")
    first = torchx(*words)
    found = json.loads(entry("nightly").read_text())
    key = entry("nightly").parent / ".key"
    assert (key.stat().st_mode & 0o777, len(key.read_bytes())) == (0o600, 32)
    digests = [digest for digest, _ in found["parts"].values()]
    text = f'{found["salt"]}"1234"'.encode()
    assert hmac.digest(key.read_bytes(), text, "sha256").hex() in digests
    assert hashlib.sha256(text).hexdigest()[:32] not in "".join(digests)

    key.unlink()  # as in an entry of an older version: the engine's record is compared
    del found["key"]
    entry("nightly").write_text(json.dumps(found))
    assert torchx(*words).stdout == first.stdout
    (folder / "pin").write_text("4321")
    assert "variable PIN was set, now set to another value" in torchx(*words).stderr


def test_several_at_the_same_time_submit_one() -> None:
    words = ("run", "-d", "--once", "nightly", "utils.echo")
    commands = [start(*words) for _ in range(3)]
    handles = {process.communicate(timeout=120)[0] for process in commands}
    assert len(handles) == 1
    assert len(answer("list", "-o", "json")) == 1
    with get_runner() as runner, ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: runner.run(app("a"), "local_cwd", once="threads"), range(4)))
        assert len(found) == 1
        runner.wait(found.pop())


KILLED = """
import os, signal, sys
from torchx.runner import get_runner
from torchx.specs.app import AppDef, Role
with get_runner() as runner:
    engine = runner.scheduler("local_cwd")
    schedule = engine.schedule
    def killed(info):
        if sys.argv[1] == "after":
            print(schedule(info), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    engine.schedule = killed
    runner.run(AppDef("job", [Role("w", "", entrypoint="echo", args=["a"])]), "local_cwd", once="nightly")
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_submission_blocks_no_name_and_is_not_repeated(when: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, when], env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert json.loads(entry("nightly").read_text())["handle"] == ""
    with get_runner() as runner:
        handle = runner.run(app("a"), "local_cwd", once="nightly")
        assert [listed.app_handle for listed in runner.list("local_cwd")] == [handle]
        if when == "after":
            assert handle.endswith(f"/{done.stdout.strip()}")
            with pytest.raises(UsageError, match="role w: args was `a`, now `b`"):
                runner.run(app("b"), "local_cwd", once="nightly")
        runner.wait(handle)


@pytest.mark.docker
def test_application_from_another_machine_is_found_on_its_engine() -> None:
    role = Role("w", IMAGE, entrypoint="echo", args=["a"])
    with get_runner() as runner:
        handle = runner.run(AppDef("once-job", [role]), "local_docker", once="nightly")
        try:
            entry("nightly").unlink()  # the other machine has another state home
            assert runner.run(AppDef("once-job", [role]), "local_docker", once="nightly") == handle
            entry("nightly").unlink()
            role.args = ["b"]
            with pytest.raises(UsageError, match="role w: args was `a`, now `b`"):
                runner.run(AppDef("once-job", [role]), "local_docker", once="nightly")
            role.args = ["a"]
            assert runner.run(AppDef("once-job", [role]), "local_docker", once="other") != handle
        finally:
            for listed in runner.list("local_docker"):
                if listed.name == "once-job":
                    runner.delete(listed.app_handle)


def test_a_request_says_whether_the_application_existed() -> None:
    with Runner("s", {"memory": MemoryScheduler}) as runner:
        handles = []
        for existed in (False, True):
            info = runner.dryrun(marked(app("a"), "nightly"), "memory")
            handles.append(runner.schedule(info))
            assert info.existed is existed
        assert handles[0] == handles[1]
        assert runner.run(app("a"), "memory") != handles[0]


@pytest.mark.parametrize("name", ["a/b", "..", "-a", "a" * 64, "a b", "ä", ".json"])
def test_an_invalid_name_is_an_error(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a submission"):
        marked(app(), name)


def test_the_name_is_replaced_and_removed() -> None:
    named = marked(marked(app(), "a"), "b")
    assert named.metadata == {settings.ONCE: "b"}
    assert marked(named, "").metadata == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '{"salt": "", "at": "x", "parts": {}, "handle": ""}',
        '{"salt": "", "at": "2026-01-01T00:00:00", "parts": {}, "handle": ""}',
        '{"salt": "", "at": "0001-01-01T00:00:00+00:00", "parts": {}, "handle": ""}',
        '{"salt": 1, "at": "2026-01-01T00:00:00+00:00", "parts": {}, "handle": ""}',
        '{"salt": "", "at": "2026-01-01T00:00:00+00:00", "parts": {}, "handle": 1}',
        '{"salt": "", "at": "2026-01-01T00:00:00+00:00", "parts": {"a": [1, 2]}, "handle": ""}',
    ],
)
def test_damaged_entry_is_error_that_names_file(text: str) -> None:
    entry("nightly").parent.mkdir(parents=True, mode=0o700)
    os.chmod(entry("nightly").parents[1], 0o700)
    entry("nightly").write_text(text)
    with get_runner() as runner, pytest.raises(StateError, match=r"nightly\.json is damaged"):
        runner.run(app("a"), "local_cwd", once="nightly")


def test_files_are_private_and_contain_no_values_of_variables() -> None:
    torchx("run", "-d", "--once", "nightly", "--env", "KEY=a-value-of-a-variable", "utils.echo")
    for path in (entry("nightly"), entry("nightly").with_suffix(".lock")):
        assert path.stat().st_mode & 0o777 == 0o600
        assert "a-value-of-a-variable" not in path.read_text()
    torchx("wait", "@last")
