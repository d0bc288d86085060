"""`--env`, `--env-file` and `--secret`: the variables reach the replicas, and a secret nothing else."""

from __future__ import annotations

import base64
import io
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from canary import Watched, canary, files_for_others
from containers import containers
from engine import IMAGE
from fakecluster import FakeCluster
from program import torchx

from torchx.errors import UsageError
from torchx.masking import SecretValue, forget_values
from torchx.specs import AppDef, Role, macros
from torchx_cli.environment import Environment, read_env_file
from torchx_cli.main import main
from torchx_cli.terminal.masking import mask_text

FILE = """
# a comment
A=1
export B = two words # a comment
C="quoted # text\\n\\"x\\""
D='single $HOME # text'

FROM_HERE
NOT_SET_HERE
E=
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    forget_values()


def test_the_lines_of_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_HERE", "here")
    (folder / ".env").write_text(FILE)
    assert dict(read_env_file(".env")) == {
        "A": "1",
        "B": "two words",
        "C": 'quoted # text\n"x"',
        "D": "single $HOME # text",
        "FROM_HERE": "here",
        "E": "",
    }


def test_variables_are_set_in_all_roles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".env").write_text("A=file\nB=$$x ${app_id}\n")
    (folder / "token").write_text("from file $$\n")
    monkeypatch.setenv("TOKEN", "from here ${app_id}")
    app = AppDef("a", [Role("x", "", env={"A": "component", "Z": "z"}), Role("y", "")])
    Environment(["A=${app_id}", "TOKEN"], [".env"], ["TOKEN", "OTHER=@token"]).apply(app)
    values = macros.Values(img_root="", app_id="id-1", replica_id="0", rank0_env="")
    for role in app.roles:
        env = values.apply(role).env
        assert (env["A"], env["B"]) == ("id-1", "$$x ${app_id}"), "a file has no macros"
        assert (env["TOKEN"], env["OTHER"]) == ("from here ${app_id}", "from file $$"), "nor has a secret"
        assert isinstance(env["TOKEN"], SecretValue)
    assert app.roles[0].env["Z"] == "z"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (Environment(["1A=x"]), "--env takes the name of a variable, got `1A`"),
        (Environment(["NOT_SET"]), "the variable NOT_SET of --env is not set here"),
        (Environment([], ["nowhere"]), "nowhere (from --env-file) cannot be read: No such file"),
        (Environment([], ["bad"]), "bad line 2: expected NAME=VALUE"),
        (Environment([], ["zero"]), "zero (from --env-file) contains a zero byte"),
        (Environment([], [], ["A=value"]), "--secret takes NAME or NAME=@FILE, as other users"),
        (Environment([], [], ["NO_TOKEN"]), "the variable NO_TOKEN of --secret is not set here"),
        (Environment([], [], ["A=@nowhere"]), "nowhere (from --secret) cannot be read"),
    ],
)
def test_invalid_variables(environment: Environment, message: str, folder: Path) -> None:
    (folder / "bad").write_text("A=1\nnot a variable\n")
    (folder / "zero").write_bytes(b"A=\0")
    with pytest.raises(UsageError) as error:
        environment.apply(AppDef("a", [Role("x", "")]))
    assert error.value.message.startswith(message)
    assert "A=value" not in str(error.value)
    assert mask_text(str(error.value)) == str(error.value), "no part of the message looks like a secret"


class Job:
    """One application with a secret, run in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(threading, "excepthook", threading.excepthook)  # a session sets its own
        self.value = canary()
        Path("secret").write_text(self.value + "\n")
        self.outputs: list[str] = []

    def call(self, *args: str, stdin: str = "", code: int = 0) -> str:
        self._monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        with Watched(self.value) as watched:
            result = main(args)
        shown = self._capsys.readouterr()
        assert result == code, shown.err
        assert watched.seen == [], "the arguments of a process have it"
        self.outputs.append(shown.out + shown.err)
        return shown.out

    def life(self, scheduler: str, *args: str) -> str:
        """Dry-runs, runs and describes the application; returns its handle.

        The program succeeds only if it has the value, whose name does not look secret.
        """
        digest = base64.b64encode(self.value.encode()).decode()
        script = f'test "$(printf %s "$PLAIN" | base64 -w0)" = "{digest}"'
        command = ["run", "-s", scheduler, "--secret", "PLAIN=@secret"]
        component = ["utils.sh", *args, "--num_replicas", "2", script.replace("$", "$$")]
        for form in ([], ["-o", "json"], ["-o", "yaml"]):
            self.call(*command, "--dryrun", *form, *component)
        handle = self.call(*command, "--wait", *component).strip()
        described = self.call("describe", "-o", "json", handle)
        assert {role["env"]["PLAIN"] for role in json.loads(described)["app"]["roles"]} == {"********"}
        for line in (["describe", handle], ["status", handle], ["list", "-s", scheduler, "-o", "json"]):
            self.call(*line)
        self.call("rerun", handle, code=1)
        self.call("rerun", "--dryrun", "--secret", "PLAIN=@secret", handle)
        again = self.call("run", "--stdin", "--secret", "PLAIN=@secret", "--wait", stdin=described).strip()
        self.call("delete", "--force", again)
        assert [text for text in self.outputs if self.value in text] == []
        assert files_for_others(Path(os.environ["TORCHX_HOME"]).parent, self.value) == []
        return handle


@pytest.fixture
def job(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(capsys, monkeypatch)


def test_a_secret_reaches_processes(job: Job) -> None:
    job.life("local_cwd")


@pytest.mark.long
@pytest.mark.docker
def test_a_secret_reaches_containers(job: Job) -> None:
    handle = job.life("local_docker", "--image", IMAGE)
    made = containers(handle.rpartition("/")[2])
    assert made and all(job.value not in json.dumps(each["Config"]["Labels"]) for each in made)
    for path in Path(os.environ["TORCHX_HOME"]).rglob("jobs/*/job.json"):
        path.unlink()  # as on another machine
    assert job.value not in job.call("describe", handle)
    job.call("delete", handle)


def test_a_secret_reaches_pods(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        handle = job.life("kubernetes")
        having = [c for c in cluster.store.collections() if job.value in json.dumps(cluster.store.list(c))]
        assert [collection.rpartition("/")[2] for collection in having] == ["secrets"]
        job.call("delete", handle)
        assert cluster.objects("secrets") == []


@pytest.mark.slurm
def test_a_secret_reaches_a_batch_job(job: Job) -> None:
    job.call("delete", job.life("slurm"))


@pytest.mark.parametrize("flag", ["--env", "--secret"])
@pytest.mark.parametrize("form", ["text", "json", "yaml"])
@pytest.mark.parametrize("scheduler", ["local_cwd", "local_docker", "slurm", "kubernetes"])
def test_bytes_that_are_not_utf8(
    scheduler: str, form: str, flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environb, b"BAD", b"a\xff\xfeb")
    words = [
        "run",
        "-s",
        scheduler,
        "--dryrun",
        "-o",
        form,
        flag,
        "BAD",
        "utils.sh",
        "--image",
        "i",
        "true",
    ]
    done = torchx(*words)
    if scheduler == "kubernetes":
        shown = " ".join((done.stderr + done.stdout).split())
        assert done.returncode == 2
        assert "has variable BAD, which is not valid text for a cluster" in shown
        assert "dcff" not in shown, "the value may be secret"
        return
    assert done.returncode == 0, done.stderr
    noted = (
        "note: Docker replaces the bytes that are not UTF-8: variable BAD\n" if "docker" in scheduler else ""
    )
    assert done.stderr == noted
    assert ("\\udcff\\udcfe" in done.stdout) is (flag == "--env"), "a secret is in no request that is printed"


@pytest.mark.docker
def test_a_container_gets_what_its_engine_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"BAD", b"a\xff\xfeb")
    words = ("--env", "BAD", "utils.sh", "--image", IMAGE, "printf %s $BAD 1>&2; exit 3")
    done = torchx("run", "-s", "local_docker", *words)
    try:
        assert done.returncode == 3, done.stderr
        assert "note: Docker replaces the bytes that are not UTF-8: variable BAD\n" in done.stderr
        assert "a\ufffd\ufffdb" in done.stderr
    finally:
        torchx("delete", done.stdout.strip())
