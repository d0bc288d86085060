"""`rerun`, and `describe -o json | run --stdin`: a job again, from its record, on every engine."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from engine import IMAGE
from fakecluster import FakeCluster
from program import answer, torchx

from torchx.schedulers.docker import image_plan
from torchx_cli import resubmission
from torchx_cli.main import main

SECRET = "s3cr3t-of-the-test"
ENV = f"A=1,DB_PASSWORD={SECRET}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Program:
    """The program, called in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch
        monkeypatch.setattr(threading, "excepthook", threading.excepthook)  # a session sets its own

    def __call__(self, *args: str, stdin: str = "", code: int = 0) -> tuple[str, str]:
        self._monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        result = main(args)
        shown = self._capsys.readouterr()
        assert result == code, shown.err
        return shown.out, shown.err

    def app_of(self, handle: str) -> dict[str, Any]:
        """Returns an application as recorded, without what differs for each run."""
        data = json.loads(self("describe", "-o", "json", handle)[0])
        for role in data["app"]["roles"]:
            role["env"].pop("TORCHX_INTERNAL_SESSION_ID", None)
        return {"app": data["app"], "cfg": data["cfg"], "scheduler": data["scheduler"]}

    def again_both_ways(self, handle: str) -> None:
        """Runs an application again with both commands, and compares the records."""
        described, _ = self("describe", "-o", "json", handle)
        assert SECRET not in described
        for args, stdin in ((["rerun", "-d", handle], ""), (["run", "--stdin", "-d"], described)):
            out, err = self(*args, stdin=stdin)
            assert self.app_of(out.strip()) == self.app_of(handle)
            assert SECRET not in out + err
            self("delete", "--force", out.strip())


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(capsys, monkeypatch)


@pytest.mark.parametrize("code", [0, 3])
def test_a_local_job_runs_again_with_its_result(code: int, folder: Path) -> None:
    script = f'echo "$A ${{DB_PASSWORD}}" >> seen; exit {code}'
    assert torchx("run", "utils.sh", "--num_replicas", "2", "--env", ENV, script).returncode == code
    done = torchx("rerun", "@last")
    assert done.returncode == code
    assert done.stdout.startswith("local_cwd://torchx/sh-")
    piped = torchx("run", "--stdin", "--json", stdin=json.dumps(answer("describe", "-o", "json", "@last")))
    assert json.loads(piped.stdout)["exit_code"] == code
    assert set((folder / "seen").read_text().splitlines()) == {f"1 {SECRET}"}
    shown = torchx("rerun", "@last", "--dryrun")
    assert (shown.returncode, SECRET in shown.stdout, "num_replicas: 2" in shown.stdout) == (0, False, True)


def test_a_workspace_is_that_of_the_earlier_job(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "name").write_text("first")
    assert torchx("run", "--workspace", "src", "utils.sh", "cat name >&2").returncode == 0
    (folder / "src" / "name").write_text("second")
    done = torchx("rerun", "@last")
    assert done.returncode == 0, done.stderr
    assert "first" in done.stderr
    assert "is copied from the earlier application" in done.stderr


@pytest.mark.parametrize(
    ("path", "key", "message"),
    [
        ([], "metdata", "`app.metdata` is not known: did you mean `metadata`?"),
        (
            ["roles", 0],
            "num_replica",
            "`app.roles[0].num_replica` is not known: did you mean `num_replicas`?",
        ),
        (["roles", 0], "environment", "`app.roles[0].environment` is not known"),
        (["roles", 0, "resource"], "mem", "`app.roles[0].resource.mem` is not known: did you mean `memMB`?"),
    ],
)
def test_a_misspelled_key_is_rejected(folder: Path, path: list[Any], key: str, message: str) -> None:
    assert torchx("run", "utils.sh", "true").returncode == 0
    described = answer("describe", "-o", "json", "@last")
    place = described["app"]
    for step in path:
        place = place[step]
    place[key] = {}
    done = torchx("run", "--stdin", "--dryrun", stdin=json.dumps(described))
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"error: {message} (from --stdin)")


def test_what_was_not_kept_is_named(folder: Path) -> None:
    assert torchx("run", "utils.sh", "--env", ENV, "true").returncode == 0
    described = answer("describe", "-o", "json", "@last")
    torchx("delete", "@last")
    gone = torchx("run", "--stdin", stdin=json.dumps(described))
    assert (gone.returncode, gone.stderr.splitlines()[0]) == (
        1,
        "error: the record lacks the secret value of DB_PASSWORD of role `sh`",
    )
    described["app"]["roles"][0]["env"]["DB_PASSWORD"] = "x"
    described["cfg"]["removed_option"] = 1
    done = torchx("run", "--stdin", "--dryrun", stdin=json.dumps(described))
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: unknown run option `removed_option` for local_cwd (from --stdin)\n  all options: "
    )
    bad = torchx("run", "--stdin", stdin='{"app": {}}')
    assert (bad.returncode, bad.stderr.partition(":")[0]) == (2, "error")


def test_the_repository_of_built_images_is_known() -> None:
    assert resubmission.BUILT == image_plan.NAME


@pytest.mark.docker
def test_containers(program: Program) -> None:
    args = ["--image", IMAGE, "--env", ENV, "--num_replicas", "2", "test $$A = 1"]
    handle = program("run", "-s", "local_docker", "-d", "utils.sh", *args)[0].strip()
    program.again_both_ways(handle)
    program("delete", "--force", handle)


def test_pods(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        args = ["--num_replicas", "2", "--env", ENV, 'echo "$A" ${app_id} $$HOME']
        handle = program("run", "-s", "kubernetes", "utils.sh", *args)[0].strip()
        program.again_both_ways(handle)


@pytest.mark.slurm
def test_a_batch_job(program: Program) -> None:
    args = ["--num_replicas", "2", "--env", ENV, 'echo "$A" ${app_id} $$HOME']
    handle = program("run", "-s", "slurm", "utils.sh", *args)[0].strip()
    program.again_both_ways(handle)
    program("delete", "--force", handle)
