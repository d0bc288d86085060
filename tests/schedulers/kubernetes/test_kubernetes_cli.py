"""The commands as a person uses them on a cluster: what waits says why, what is not set up is passed over."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from fakecluster import FakeCluster
from kubejobs import role, submit, until_all_run
from program import answer, start, torchx
from support import wait_until
from sweepruns import check_runs_are_names

from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.scheduling.logs import LogQuery

TOO_LARGE = """
import torchx.specs as specs


def big(replicas: int = 1) -> specs.AppDef:
    \"\"\"Asks for more than any node has.\"\"\"
    resource = specs.Resource(cpu=1000, gpu=0, memMB=100)
    role = specs.Role("worker", "img", entrypoint="true", num_replicas=replicas, resource=resource)
    return specs.AppDef("big", [role])
"""


@pytest.fixture
def big(tmp_path: Path) -> str:
    (tmp_path / "big.py").write_text(TOO_LARGE)
    return f"{tmp_path}/big.py:big"


def heard(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Interrupts a command and returns what it said."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    return out, err


def test_a_job_from_its_submission_to_its_deletion(cluster: FakeCluster) -> None:
    done = torchx("run", "-s", "kubernetes", "--log", "utils.sh", "sh", "-c", "echo hi; exit 4")
    assert done.returncode == 4, done.stderr
    handle = done.stdout.strip()
    assert handle.startswith("kubernetes://torchx/default:sh-")
    assert "sh/0 │ hi" in done.stderr
    assert "sh/0 failed first: exit 4" in done.stderr
    short = handle.rpartition(":")[2]
    data = answer("status", short, "-o", "json")
    assert (data["handle"], data["state"]) == (handle, "FAILED")
    assert torchx("log", "--no-prefix", short).stdout == "hi\n"
    assert "timestamps" not in torchx("log", "--timestamps", handle).stderr
    (line,) = answer("list", "-s", "kubernetes", "-o", "json")
    assert (line["handle"], line["exit_code"]) == (handle, 4)
    (line,) = answer("list", "-o", "json")
    assert line["handle"] == handle, "a configured cluster is queried by default"
    assert torchx("delete", handle).returncode == 0
    assert answer("list", "-s", "kubernetes", "-o", "json") == []
    assert torchx("status", handle).returncode == 1


def test_runs_of_a_sweep_are_names(cluster: FakeCluster, tmp_path: Path) -> None:
    check_runs_are_names(tmp_path, "-s", "kubernetes", arguments=["--image", "img"])


def test_a_run_says_why_it_waits(cluster: FakeCluster, big: str) -> None:
    process = start("run", "-s", "kubernetes", "--log", big, "--replicas", "2")
    wait_until(lambda: len(cluster.objects("pods")) == 2, "its pods")
    known = time.monotonic()
    assert process.stderr is not None
    line = process.stderr.readline()
    assert time.monotonic() - known < 30
    assert line == (
        "waiting: no node can run it: 0/1 nodes are available: 1 Insufficient cpu (2 of 2 replicas)\n"
    )
    _, err = heard(process)
    assert process.returncode == 130
    assert "CANCELLED" in err


def test_log_that_is_followed_says_why_there_is_none(cluster: FakeCluster, big: str) -> None:
    handle = torchx("run", "-s", "kubernetes", big).stdout.strip()
    process = start("log", "-f", handle)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("waiting: no node can run it")
    assert torchx("cancel", handle).returncode == 0
    out, _ = process.communicate(timeout=120)
    assert (out, process.returncode) == ("", 0)


def test_the_status_shows_the_reason_of_each_replica(cluster: FakeCluster, big: str) -> None:
    handle = torchx("run", "-s", "kubernetes", big, "--replicas", "2").stdout.strip()
    result = wait_until(
        lambda: text if "Insufficient cpu" in (text := torchx("status", handle).stdout) else "", "the reason"
    )
    reasons = [line for line in result.splitlines() if "waiting: no node can run it" in line]
    assert [line.split()[:2] for line in reasons] == [["0", "PENDING"], ["1", "PENDING"]]
    assert result.count("Insufficient cpu") == 2, "one line for each"


SERVED = """
import torchx.specs as specs


def served() -> specs.AppDef:
    \"\"\"A client that fails, and a server that runs for ever.\"\"\"
    resource = specs.Resource(cpu=1, gpu=0, memMB=100)
    scripts = {"server": "echo serving; exec sleep 600", "client": "exit 3"}
    return specs.AppDef("served", [
        specs.Role(name, "img", entrypoint="sh", args=["-c", script], resource=resource)
        for name, script in scripts.items()
    ])
"""


def test_attached_run_ends_server_after_failure_of_client(cluster: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(SERVED)
    done = torchx("run", "-s", "kubernetes", "--log", f"{tmp_path}/served.py:served")
    assert done.returncode == 3, done.stderr
    assert "client/0 failed first: exit 3" in done.stderr
    handle = done.stdout.strip()
    assert "on node-1" in torchx("status", handle).stdout


def test_a_terminal_is_not_needed_to_wait(cluster: FakeCluster) -> None:
    handle = torchx("run", "-s", "kubernetes", "utils.sh", "sleep", "1").stdout.strip()
    done = torchx("wait", handle)
    assert done.returncode == 0
    assert "SUCCEEDED" in done.stderr


def test_what_is_not_set_up_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = torchx("list")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "no applications")
    assert "kubernetes" not in done.stderr
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nosuch"))
    listed = torchx("list")
    assert listed.returncode == 0
    assert "kubernetes" in listed.stderr.partition("not reached: ")[2]
    result = torchx("list", "-s", "kubernetes")
    assert result.returncode == 1
    assert "no kubeconfig at" in result.stderr


def test_cluster_that_is_away_does_not_hold_up_listing(cluster: FakeCluster) -> None:
    cluster.close()
    listed = torchx("list")
    assert listed.returncode == 0
    assert "kubernetes" in listed.stderr.partition("not reached: ")[2]
    done = torchx("status", "kubernetes://torchx/default:train-b1")
    assert done.returncode == 69
    assert done.stderr.startswith("error: no cluster answers at http://127.0.0.1")
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("command", [("log", "-n", "1"), ("exec",)])
def test_a_command_lists_the_pods_once(
    cluster: FakeCluster, scheduler: KubernetesScheduler, command: tuple[str, ...]
) -> None:
    app_id = submit(scheduler, role("echo hi; sleep 60", num_replicas=2))
    until_all_run(scheduler, app_id)
    wait_until(lambda: len(list(scheduler.log_chunks(app_id, LogQuery()))) == 2, "each has written")
    cluster.asked.clear()
    program = ("echo", "hi") if command == ("exec",) else ()
    done = torchx(*command, f"kubernetes://torchx/{app_id}", *program)
    assert (done.returncode, "hi\n" in done.stdout) == (0, True), done.stderr
    lists = [each for each in cluster.asked if each.split("?")[0] == "GET /api/v1/namespaces/default/pods"]
    assert len(lists) == 1, cluster.asked
    unknown = torchx("log", f"kubernetes://torchx/{app_id}/nosuch")
    assert "has no role `nosuch`" in unknown.stderr


def test_a_description_shows_the_id_and_no_internal_variables(cluster: FakeCluster) -> None:
    done = torchx("run", "-d", "-s", "kubernetes", "utils.sh", "--image", "img", "echo", "${app_id}")
    handle = done.stdout.strip()
    shown = torchx("describe", handle).stdout
    assert f"'{handle.rpartition('/')[2]}'" in shown.replace("\\\n", "")
    for hidden in ("${app_id}", "TORCHX_JOB_ID", "TORCHX_INTERNAL_SESSION_ID"):
        assert hidden not in shown.replace("echo '${app_id}'", "", 1), "only in the command line of the user"
    role = answer("describe", "-o", "json", handle)["app"]["roles"][0]
    assert "${app_id}" in role["args"][-1], "as submitted"
