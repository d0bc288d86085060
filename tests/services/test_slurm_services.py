"""Services of Slurm jobs, whose steps run on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from slurmscripts import SH, context
from slurmsteps import StepJob, states
from support import wait_until

from torchx.errors import UsageError
from torchx.machine.processes import look_up, read_proc, table
from torchx.schedulers.shared.batch.script import files_of, script_of
from torchx.schedulers.slurm.options import check_options
from torchx.specs import AppDef, RetryPolicy, Role, after, macros, service
from torchx.specs.status import AppState

HELD = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
"""A program that runs until it gets TERM."""


def role(name: str, script: str, **settings: Any) -> Role:
    return Role(name, "", entrypoint=SH, args=["-c", script.replace("$", "$$")], **settings)


def server(script: str, ready: str = "log:is-up", **settings: Any) -> Role:
    options = {name: settings.pop(name) for name in ("within", "after", "critical") if name in settings}
    return service(role("server", script, **settings), ready, **options)


def trainer(script: str, **settings: Any) -> Role:
    return after(role("trainer", script, **settings), ["server"])


def job(home: Path, *roles: Role, **cfg: Any) -> StepJob:
    return StepJob(AppDef("a", list(roles)), home, **{"requeue": False, **cfg})


def log(given: StepJob, name: str, replica: int = 0, attempt: int = 1) -> str:
    return (given.paths.replica(name, replica) / f"attempt-{attempt}" / "stdout.log").read_text()


def notices(given: StepJob) -> bool:
    """Returns True while the notice of the time limit of a job is sent to a program."""
    script = f"{given.folder}/.node/notice.sh".encode()
    return any(script in read_proc(f"/proc/{entry.process.pid}/cmdline") for entry in table())


def test_services_are_ready_before_others_and_end_after_them(tmp_path: Path) -> None:
    go = tmp_path / "go"
    waiting = f"while [ ! -e {go} ]; do sleep 0.05; done; echo is-up; {HELD}"
    given = job(tmp_path, server(waiting, num_replicas=2), trainer(f"echo done; test -e {go}"))
    with given.start() as process:
        wait_until(lambda: states(given.status())["server"] == ["RUNNING"] * 2, "the service has started")
        status = given.status()
        assert [each.ready for each in status.roles_statuses] == [0, None]
        assert states(status)["trainer"] == ["PENDING"]
        go.touch()
        assert process.wait(120) == 0
    status = given.status()
    assert status.state is AppState.SUCCEEDED
    assert states(status) == {"server": ["CANCELLED"] * 2, "trainer": ["SUCCEEDED"]}
    assert status.roles_statuses[0].replicas[0].attempts[-1].msg == "no longer needed"
    assert log(given, "trainer") == "done\n"


@pytest.mark.parametrize(("end", "code"), [("exit 0", 1), ("exit 3", 3), ("kill -9 $$", 137)])
@pytest.mark.parametrize("early", [True, False])
def test_a_service_that_ends_by_itself_has_failed(tmp_path: Path, end: str, code: int, early: bool) -> None:
    started = tmp_path / "started"
    until = f"while [ ! -e {started} ]; do sleep 0.05; done"
    script = end if early else f"echo is-up; {until}; {end}"
    given = job(tmp_path, server(script), trainer(f"touch {started}; {HELD}"))
    assert given.run() == code
    status = given.status()
    assert states(status) == {"server": ["FAILED"], "trainer": ["CANCELLED"]}
    assert started.exists() is not early
    first = status.first_failure
    assert first is not None
    assert (first.role, first.result) == ("server", 0 if end == "exit 0" else code)
    if code != 137:
        assert first.msg == "a service ended by itself while it was needed"


def test_a_service_is_restarted_alone_or_with_all(tmp_path: Path) -> None:
    for number, policy in enumerate(RetryPolicy):
        home = tmp_path / policy
        home.mkdir()
        script = f'[ "$TORCHX_ATTEMPT" != 1 ] || exit 0; echo is-up; {HELD}'
        failing = server(script, max_retries=1, retry_policy=policy)
        given = job(home, failing, trainer("echo done", max_retries=1))
        assert given.run() == 0, policy
        replica = given.status().roles_statuses[0].replicas[0]
        assert [a.state.name for a in replica.attempts] == ["FAILED", "CANCELLED"], (number, policy)


def test_service_without_retries_does_not_limit_those_of_others(tmp_path: Path) -> None:
    again = trainer('[ "$TORCHX_ATTEMPT" = 2 ]', max_retries=1)
    given = job(tmp_path, server(f"echo is-up; {HELD}"), again)
    assert given.run() == 0
    assert [len(role.replicas[0].attempts) for role in given.status().roles_statuses] == [2, 2]
    (tmp_path / "final").mkdir()
    given = job(tmp_path / "final", server("exit 3"), again)
    assert given.run() == 3
    assert [len(role.replicas[0].attempts) for role in given.status().roles_statuses] == [1, 0]


@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("policy", list(RetryPolicy))
def test_an_uncritical_service_may_fail(tmp_path: Path, retries: int, policy: RetryPolicy) -> None:
    """Its retries are used up first; a later failure of the application is that of another role."""
    monitor = server("exit 5", critical=False, max_retries=retries, retry_policy=policy, num_replicas=2)
    train = trainer("echo done; exit 3", max_retries=retries, retry_policy=policy)
    given = job(tmp_path, monitor, train)
    assert given.run() == 3
    status = given.status()
    assert len(status.roles_statuses[0].replicas[0].attempts) == 1 + retries
    assert status.first_failure is not None
    assert status.first_failure.role == "trainer"
    assert {states(status)["trainer"][0], *states(status)["server"]} >= {"FAILED"}


def test_the_other_replicas_continue_if_that_is_requested(tmp_path: Path) -> None:
    """Roles after a failed service never start; the job does not wait for them."""
    worker = role("worker", "sleep 1; echo done")
    script = f"case $TORCHX_REPLICA in */1) exit 5 ;; esac; echo is-up; {HELD}"
    half = server(script, num_replicas=2)
    given = job(tmp_path, half, trainer("echo never"), worker, fail_fast=False)
    assert given.run() == 5
    assert states(given.status()) == {
        "server": ["CANCELLED", "FAILED"],
        "trainer": ["CANCELLED"],
        "worker": ["SUCCEEDED"],
    }


def test_all_replicas_of_service_are_restarted_although_others_continue(tmp_path: Path) -> None:
    script = f'[ "$TORCHX_ATTEMPT $TORCHX_REPLICA" != "1 server/1" ] || exit 5; echo is-up; {HELD}'
    half = server(script, num_replicas=2, max_retries=1, retry_policy=RetryPolicy.ROLE)
    given = job(tmp_path, half, trainer("true"), fail_fast=False)
    assert given.run() == 0
    assert [len(replica.attempts) for replica in given.status().roles_statuses[0].replicas] == [2, 2]


def test_an_ordinary_role_before_another_has_to_succeed(tmp_path: Path) -> None:
    script = "sleep 0.5; [ $TORCHX_ATTEMPT = 2 ]"
    prepare = role("prepare", script, max_retries=1, retry_policy=RetryPolicy.APPLICATION)
    late = after(role("late", "echo done"), ["prepare"])
    prepare.max_retries = 0
    given = job(tmp_path, late, prepare)
    assert given.run() == 1
    assert states(given.status()) == {"late": ["CANCELLED"], "prepare": ["FAILED"]}
    prepare.max_retries = 1
    (tmp_path / "again").mkdir()
    given = job(tmp_path / "again", late, prepare)
    assert given.run() == 0, "the retries of the role that has failed count, as on other engines"
    assert states(given.status()) == {"late": ["SUCCEEDED"], "prepare": ["SUCCEEDED"]}
    assert not (given.paths.replica("late", 0) / "attempt-1").exists()


def test_late_readiness_names_probe_and_last_answer(tmp_path: Path) -> None:
    probe = "cmd:sh -c 'test -e \"$GIVEN\" && exit 7'"
    late = server(HELD, probe, within="1s", env={"GIVEN": str(tmp_path)})
    given = job(tmp_path, late, trainer("true"))
    assert given.run() == 143
    first = given.status().first_failure
    assert first is not None
    assert first.msg == f"not ready within 1s: probe {probe}: exit 7"


@pytest.mark.parametrize("ready", ["", "log:is-up"])
def test_a_node_without_python_runs_services_without_probes(tmp_path: Path, ready: str) -> None:
    (tmp_path / "few").mkdir()
    for name in (
        "mkdir",
        "date",
        "sh",
        "bash",
        "rm",
        "cat",
        "head",
        "touch",
        "sleep",
        "timeout",
        "seq",
        "mv",
        "tail",
        "grep",
    ):
        (tmp_path / "few" / name).symlink_to(shutil.which(name) or name)
    given = job(tmp_path, server(f"echo is-up; {HELD}", ready), trainer("echo done"))
    assert given.run(PATH=f"{tmp_path}/bin:{tmp_path}/few") == (1 if ready else 0)
    status = given.status()
    assert states(status) == (
        {"server": ["FAILED"], "trainer": ["CANCELLED"]}
        if ready
        else {"server": ["CANCELLED"], "trainer": ["SUCCEEDED"]}
    )
    if ready:
        assert status.first_failure is not None
        assert status.first_failure.msg == "the probe of a service needs Python 3.8 on its node"


@pytest.mark.parametrize("retries", [0, 1])
def test_a_replica_whose_agent_is_killed_has_failed(tmp_path: Path, retries: int) -> None:
    """Its program and the processes below it are killed too; it is started again if it has retries."""
    first_time = f"sleep 600 & echo $$ $! > {tmp_path}/pids; kill -9 $PPID; wait"
    script = f'[ "$TORCHX_ATTEMPT" != 1 ] || {{ {first_time}; }}'
    policy = RetryPolicy.REPLICA
    given = job(tmp_path, role("r", script, max_retries=retries, retry_policy=policy, num_replicas=1))
    assert given.run() == (0 if retries else 137)
    (replica,) = given.status().roles_statuses[0].replicas
    assert [a.state.name for a in replica.attempts] == ["FAILED", "SUCCEEDED"][: 1 + retries]
    assert (replica.attempts[0].signal, replica.attempts[0].msg) == ("SIGKILL", "")
    assert replica.attempts[0].started_at is not None
    first = given.status().first_failure
    assert (first is None) if retries else (first is not None and first.signal == "SIGKILL")
    for each in (tmp_path / "pids").read_text().split():
        wait_until(lambda pid=int(each): (found := look_up(pid)) is None or found.zombie, "it has ended")


def test_killed_agent_restarts_all_by_retries_of_its_role(tmp_path: Path) -> None:
    script = '[ "$TORCHX_ATTEMPT" != 1 ] || { kill -9 $PPID; exec sleep 600; }'
    policy = RetryPolicy.APPLICATION
    killed = role("r", script, max_retries=1, retry_policy=policy, num_replicas=1)
    other = role("other", '[ "$TORCHX_ATTEMPT" != 1 ] || exec sleep 600', num_replicas=1)
    given = job(tmp_path, killed, other)
    assert given.run() == 0
    assert [each.replicas[0].attempts[-1].number for each in given.status().roles_statuses] == [2, 2]


def test_a_service_that_ignores_term_is_killed(tmp_path: Path) -> None:
    deaf = server("trap '' TERM; echo is-up; while :; do sleep 0.1; done")
    given = job(tmp_path, deaf, trainer("true"), grace_period=0.5)
    assert given.run() == 0
    assert states(given.status()) == {"server": ["CANCELLED"], "trainer": ["SUCCEEDED"]}


def test_the_grace_period_is_that_of_the_run_options(tmp_path: Path) -> None:
    """It is also that of a service that is not ready in time; it has whole seconds."""
    deaf = server("trap '' TERM; while :; do sleep 0.1; done", within="0.5s")
    given = job(tmp_path, deaf, trainer("true"), grace_period=0.5)
    assert "roles=2 fail_fast=yes grace=1\n" in script_of(given.app, given.cfg, context("/f"))
    assert " torchx_grace=1\n" in files_of(given.app, given.cfg, context("/f"))["role-0.sh"]
    assert given.run() == 137
    first = given.status().first_failure
    assert first is not None
    assert first.msg.startswith("not ready within 0.5s")
    assert "grace=10\n" in script_of(given.app, {}, context("/f"))
    for value in (-1.0, float("inf")):
        with pytest.raises(UsageError, match="grace_period"):
            check_options({"grace_period": value})


def test_notice_of_time_limit_is_for_ordinary_roles(tmp_path: Path) -> None:
    """The role that waits for an interrupted one does not start; the job is requeued."""
    script = "trap 'exit 9' USR1; echo up; while :; do sleep 0.1; done"
    late = after(role("late", "echo never"), ["trainer"])
    cfg = {"time_limit": "1h", "notice": "1m", "requeue_on": "time-limit:1", "requeue": None}
    given = job(tmp_path, server(f"echo is-up; {HELD}"), trainer(script), late, **cfg)
    log_file = given.paths.replica("trainer", 0) / "attempt-1" / "stdout.log"
    with given.start() as process:
        wait_until(lambda: log_file.exists() and log_file.read_text() == "up\n", "the trainer has started")
        os.kill(process.pid, signal.SIGUSR1)
        process.wait(120)
    assert "requeue 77" in given.calls.read_text()
    assert (given.folder / ".requeued").read_text() == "1\n"
    assert not given.paths.replica("late", 0).exists()


def test_slow_starter_is_notified_when_it_handles_the_signal(tmp_path: Path) -> None:
    go = tmp_path / "go"
    begins = f"while [ ! -e {go} ]; do sleep 0.05; done; trap 'echo saved; exit 0' USR1"
    slow = role("slow", f"echo up; {begins}; while :; do sleep 0.1; done")
    given = job(tmp_path, slow, time_limit="1h", notice="10m")
    log_file = given.paths.replica("slow", 0) / "attempt-1" / "stdout.log"
    with given.start() as process:
        wait_until(lambda: log_file.exists() and log_file.read_text() == "up\n", "the program has started")
        os.kill(process.pid, signal.SIGUSR1)
        wait_until(lambda: notices(given), "the notice is being sent")
        go.touch()
        assert process.wait(120) == 0
    assert log(given, "slow") == "up\nsaved\n"


def test_the_hosts_of_roles_are_replaced_without_a_shell(tmp_path: Path) -> None:
    odd = 'a "$(touch x)"'
    client = Role("client", "", entrypoint="printf", args=["%s|", f"$$HOME {macros.hosts(odd)}", "$(id)"])
    client.env = {"SERVERS": f"'{macros.hosts(odd)}"}
    others = Role(odd, "", entrypoint="true", num_replicas=2)
    given = job(tmp_path, others, client, role("shows", 'echo "$TORCHX_HOSTS_CLIENT"'))
    assert given.run(SLURM_JOB_NODELIST="node[1-2]", SLURM_TASKS_PER_NODE="1(x2)") == 0
    assert log(given, "client") == "$HOME node1,node2|$(id)|"
    assert log(given, "shows") == "node1\n"


def test_hosts_of_role_are_as_many_as_its_replicas(tmp_path: Path) -> None:
    shows = role("server", 'echo "$TORCHX_HOSTS_SERVER $TORCHX_HOSTS_TRAINER"', num_replicas=3)
    given = job(tmp_path, shows, role("trainer", "true"))
    assert given.run(SLURM_JOB_NODELIST="node[1-2]", SLURM_TASKS_PER_NODE="2(x2)") == 0
    assert log(given, "server").splitlines()[0] == "node1,node1,node2 node1"


def test_script_without_services_has_no_part_of_them() -> None:
    plain = AppDef("a", [role("r", "true")])
    assert "services" not in script_of(plain, {}, context("/f"))
    assert not any("services" in name or "readiness" in name for name in files_of(plain, {}, context("/f")))
    ordered = AppDef("a", [server("true", critical=False, max_retries=1), trainer("true")])
    script = script_of(ordered, {}, context("/f"))
    assert 'services=([0]=1) failure=([0]=ignored-last) after=([1]="0")\n' in script
    assert "find_hosts TORCHX_HOSTS_SERVER=1 TORCHX_HOSTS_TRAINER=1\n" in script
    assert sys.executable
