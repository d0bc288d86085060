"""Jobs on a real cluster: what a person does with them, and what happens to them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from program import answer, torchx
from slurms import fifth_node, output, role, slurm, state
from support import wait_until

from torchx.errors import StateError, UsageError
from torchx.machine.outage import Outage
from torchx.schedulers.shared.batch.record import Records
from torchx.schedulers.slurm.scheduler import SlurmScheduler
from torchx.schedulers.slurm.wait import watch as watch_of
from torchx.scheduling.logs import Stream
from torchx.specs import AppDef, AppState, Resource, RetryPolicy, Role, after, service

pytestmark = pytest.mark.slurm

ODD = "a,b; 'q' \"w\" $HOME `date` \\ \r\n\n\nEND\nEMPTY CR  é 🙂 #x\n"


def test_odd_names_and_values_in_several_roles(scheduler: SlurmScheduler) -> None:
    text = ODD.replace("$", "$$")
    one = role('printf %s "$1$ODD"', "r% ö ä", env={"ODD": text})
    one.args += ["sh", text]
    two = role(
        "echo $$TORCHX_RANK0_HOST $$TORCHX_REPLICA $$TORCHX_JOB_ID ${replica_id}", "b b", num_replicas=2
    )
    app_id = scheduler.submit(AppDef("näme, 'x'", [one, two]), {"comment": 'my "own" #1'})
    assert scheduler.wait(app_id, 60)
    assert output(scheduler, app_id, replicas={"r% ö ä": frozenset()}) == (ODD + ODD).encode()
    lines = output(scheduler, app_id, replicas={"b b": frozenset([1])}).split()
    assert lines[1:] == [b"b", b"b/1", f"slurm://torchx/{app_id}".encode(), b"1"]
    assert lines[0].startswith(b"node")
    assert 'my "own" #1 torchx:' in slurm(
        "squeue", "--noheader", "--states=all", f"--jobs={app_id}", "--format=%k"
    )


def test_variables_of_an_outer_job(scheduler: SlurmScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a shell of salloc, or in a step that was started for MPI."""
    names = "SLURM_CPU_BIND SLURM_MEM_BIND SLURM_PROCID PMI_RANK PMI2_X PMIX_RANK OMPI_COMM_WORLD_RANK"
    for name in names.split():
        monkeypatch.setenv(name, "outer")
    monkeypatch.setenv("PMIXER", "kept")
    app_id = scheduler.submit(AppDef("inner", [role("env; nproc")]), {})
    assert scheduler.wait(app_id, 60)
    lines = output(scheduler, app_id).decode().splitlines()
    assert not [line for line in lines if line.endswith("=outer")]
    assert "PMIXER=kept" in lines


def test_script_of_dry_run_goes_to_sbatch_by_hand(scheduler: SlurmScheduler) -> None:
    info = scheduler.submit_dryrun(AppDef("hand", [role("echo by hand", "r%ö", num_replicas=2)]), {})
    app_id = slurm("sbatch", "--parsable", text=repr(info)).strip()
    assert scheduler.wait(app_id, 60)
    assert state(scheduler, app_id) is AppState.SUCCEEDED
    assert (app_id, "hand") in [(app.app_id, app.name) for app in scheduler.list()]
    assert output(scheduler, app_id) == b"by hand\n" * 2
    described = scheduler.describe(app_id)
    assert described is not None
    assert [(each.role, len(each.replicas)) for each in described.roles_statuses] == [("r%ö", 2)]
    assert Path(info.request.folder).stat().st_mode & 0o077 == 0


def test_options_that_share_processors(scheduler: SlurmScheduler) -> None:
    shared = role(
        "test $$SLURM_CPUS_PER_TASK = 2 && echo ${replica_id}", num_replicas=4, resource=Resource(2, 0, 50)
    )
    app_id = scheduler.submit(AppDef("many", [shared]), {"overcommit": True, "nodes": 1})
    assert scheduler.wait(app_id, 60)
    assert state(scheduler, app_id) is AppState.SUCCEEDED
    assert sorted(output(scheduler, app_id).split()) == [b"0", b"1", b"2", b"3"]
    with pytest.raises(StateError, match=r"Slurm rejected the job: .*unrecognized option '--a-new-one=3'"):
        scheduler.submit(AppDef("new", [role("true")]), {"a-new-one": 3})


def test_two_roles_on_a_partition_of_one_node(scheduler: SlurmScheduler) -> None:
    app = AppDef("two", [role("true"), role("true", "s")])
    with pytest.raises(UsageError, match="need 2 nodes of partition `apart`, which has 1"):
        scheduler.submit(app, {"partition": "apart"})
    assert scheduler.wait(scheduler.submit(app, {}), 60)


def test_defaults_of_slurms_programs_in_the_environment(
    scheduler: SlurmScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SCANCEL", "SQUEUE", "SINFO"):
        monkeypatch.setenv(f"{name}_PARTITION", "urgent")
    for name, value in {
        "SBATCH_MEM_PER_NODE": "100",
        "SCANCEL_STATE": "PENDING",
        "SQUEUE_STATES": "FAILED",
        "SQUEUE_USERS": "nobody",
        "SQUEUE_FORMAT": "%i",
        "SACCT_FEDERATION": "1",
        "SCONTROL_FUTURE": "1",
    }.items():
        monkeypatch.setenv(name, value)
    app_id = scheduler.submit(AppDef("sleeps", [role("sleep 100")]), {})
    wait_until(lambda: state(scheduler, app_id) is AppState.RUNNING, "it runs")
    assert app_id in [app.app_id for app in scheduler.list()]
    scheduler.cancel(app_id)
    assert scheduler.wait(app_id, 60)
    assert state(scheduler, app_id) is AppState.CANCELLED


def test_why_it_waits_and_then_is_ended_from_outside(scheduler: SlurmScheduler) -> None:
    app_id = scheduler.submit(AppDef("later", [role("true")]), {"begin": "now+2hours"})
    current = scheduler.glance(app_id)
    assert current is not None
    assert current.state is AppState.PENDING
    wait_until(
        lambda: "expected to start at" in (scheduler.glance(app_id) or current).msg, "when it may start"
    )
    slurm("scancel", app_id)
    assert state(scheduler, app_id) is AppState.CANCELLED


def test_a_job_ends_as_its_first_failure_did(scheduler: SlurmScheduler) -> None:
    script = "test $$TORCHX_REPLICA = r/1 && exit 3; sleep 600"
    app_id = scheduler.submit(AppDef("first", [role(script, num_replicas=2)]), {})
    assert scheduler.wait(app_id, 60)
    described = scheduler.describe(app_id)
    assert described is not None
    assert described.first_failure is not None
    assert (described.first_failure.replica, described.first_failure.exit_code) == (1, 3)
    (line,) = (line for line in scheduler.list() if line.app_id == app_id)
    assert (line.state, line.exit_code) == (AppState.FAILED, 3)


def test_a_retry_through_the_queue(scheduler: SlurmScheduler) -> None:
    script = 'echo try $TORCHX_ATTEMPT; test "$TORCHX_ATTEMPT" = 2 || exit 5'.replace("$", "$$")
    app_id = scheduler.submit(AppDef("again", [role(script, max_retries=1)]), {})
    assert output(scheduler, app_id, follow=True) == b"try 1\ntry 2\n"
    assert scheduler.wait(app_id, 60)
    described = scheduler.describe(app_id)
    assert described is not None
    assert (described.state, described.num_restarts) == (AppState.SUCCEEDED, 1)
    (replica,) = described.roles_statuses[0].replicas
    assert [(attempt.number, attempt.exit_code) for attempt in replica.attempts] == [(1, 5), (2, 0)]


def test_a_node_that_fails_is_reported_by_name(scheduler: SlurmScheduler) -> None:
    with fifth_node():
        try:
            app_id = scheduler.submit(AppDef("down", [role("sleep 600")]), {"partition": "apart"})
            wait_until(lambda: state(scheduler, app_id) is AppState.RUNNING, "it runs")
            slurm("scontrol", "update", "NodeName=node5", "State=DOWN", "Reason=test")
            wait_until(lambda: state(scheduler, app_id) is AppState.FAILED, "it has failed")
            current = scheduler.glance(app_id)
            assert current is not None
            assert current.msg == "a node failed"
        finally:
            argv = ["scontrol", "update", "NodeName=node5", "State=RESUME"]
            subprocess.run(
                argv, capture_output=True, timeout=60, check=False
            )  # it may have come back by itself


def test_memory_that_is_not_enough_is_reported_by_name(scheduler: SlurmScheduler) -> None:
    greedy = role("exec python3 -c 'import time; x = b\"x\" * (400 << 20); time.sleep(600)'")
    app_id = scheduler.submit(AppDef("greedy", [greedy]), {})
    assert scheduler.wait(app_id, 60)
    described = scheduler.describe(app_id)
    assert described is not None
    assert (described.state, described.msg) == (AppState.FAILED, "out of memory")
    (replica,) = described.roles_statuses[0].replicas
    assert (replica.state, replica.attempts[-1].msg) == (AppState.FAILED, "out of memory")


def test_another_home_and_another_folder(
    scheduler: SlurmScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = scheduler.submit(AppDef("elsewhere", [role("echo found")]), {"job_dir": str(tmp_path / "jobs")})
    assert scheduler.wait(app_id, 60)
    monkeypatch.chdir("/")
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "another"))
    assert output(scheduler, app_id) == b"found\n"
    assert app_id in [app.app_id for app in scheduler.list()]
    assert app_id in [app.app_id for app in scheduler.list({"all_users": True})]
    for words in ([], ["-s", "slurm"]):
        assert app_id in [app["app_id"] for app in answer("list", "--all-users", "--json", *words)]
    refused = torchx("list", "--all-users", "-s", "local_cwd")
    assert (refused.returncode, refused.stderr.partition("\n")[0]) == (
        2,
        "error: local_cwd cannot list applications of other users",
    )


def test_the_commands_show_and_await_the_readiness_of_services(
    scheduler: SlurmScheduler, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.1; done; echo is-up; exec sleep 600"
    server = service(role(script, "server", num_replicas=2), "log:is-up")
    trainer = after(role("exec sleep 600", "trainer"), ["server"])
    app_id = scheduler.submit(AppDef("served", [server, trainer]), {})
    handle = f"slurm://torchx/{app_id}"
    wait_until(lambda: "server  0 of 2 ready" in torchx("status", handle).stdout, "the service has started")
    assert "trainer  1 of 1 pending" in torchx("status", handle).stdout
    assert torchx("wait", "--for", "ready", "--timeout", "0", handle).returncode == 124
    go.touch()
    assert torchx("wait", "--for", "ready", handle).returncode == 0
    assert "server  2 of 2 ready" in torchx("status", handle).stdout
    scheduler.cancel(app_id)
    assert scheduler.wait(app_id, 60)
    assert "server  2 of 2 cancelled" in torchx("status", handle).stdout


@pytest.mark.parametrize("cfg", [{}, {"ntasks-per-node": "2"}], ids=["any", "with tasks to spare"])
def test_hosts_of_a_role_are_in_order_of_replicas(scheduler: SlurmScheduler, cfg: dict[str, str]) -> None:
    script = "echo $$SLURMD_NODENAME ${hosts.b-c} $$TORCHX_HOSTS_B_C"
    app = AppDef("hosts", [role("true", "a"), role(script, "b-c", num_replicas=3)])
    app_id = scheduler.submit(app, cfg)
    assert scheduler.wait(app_id, 60)
    lines = [output(scheduler, app_id, replicas={"b-c": frozenset([k])}).split() for k in range(3)]
    hosts = b",".join(line[0] for line in lines)
    assert [line[1:] for line in lines] == [[hosts, hosts]] * 3
    assert len(set(hosts.split(b","))) > 1, "a node has two processors"


def test_a_listing_takes_one_call(
    scheduler: SlurmScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [scheduler.submit(AppDef("held", [role("true")]), {"hold": True}) for _ in range(5)]
    for name in ("squeue", "sacct", "scontrol"):
        program = tmp_path / name
        program.write_text(
            f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/calls\nexec {shutil.which(name)} "$@"\n'
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert set(ids) <= {app.app_id for app in scheduler.list()}
    calls = [line for line in (tmp_path / "calls").read_text().splitlines() if "--version" not in line]
    assert [line.split()[:2] for line in calls] == [["squeue", "--noheader"]]


def test_jobs_of_others_are_not_listed(scheduler: SlurmScheduler) -> None:
    plain = slurm("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 60").strip()
    try:
        assert plain not in [app.app_id for app in scheduler.list({"all_users": True})]
        assert scheduler.describe(plain) is None
        scheduler.cancel(plain)
        assert slurm("squeue", "--noheader", f"--jobs={plain}", "--format=%T").strip() != "CANCELLED"
    finally:
        slurm("scancel", plain)


def test_an_impossible_request_is_rejected_in_one_sentence(
    scheduler: SlurmScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = AppDef("a", [role("true")])
    with pytest.raises(StateError, match=r"rejected the job: Invalid partition .* \(invalid .* nope"):
        scheduler.submit(app, {"partition": "nope"})
    with pytest.raises(StateError, match="rejected the job: unrecognized option '--segment=2'"):
        scheduler.submit(app, {"segment": "2"})
    with pytest.raises(UsageError, match="no container plugin"):
        scheduler.submit(AppDef("a", [Role("r", "img", entrypoint="true")]), {"containers": True})
    assert not list(Records("slurm").all())
    assert not list((Path(os.environ["TORCHX_HOME"]) / "slurm" / "jobs").iterdir()), "no folder is left"


@pytest.fixture
def away(tmp_path: Path) -> str:
    """A configuration with a controller that never answers."""
    conf = slurm("scontrol", "show", "config").partition("SLURM_CONF")[2].split("\n")[0].strip(" =")
    path = tmp_path / "slurm.conf"
    path.write_text(Path(conf).read_text().replace("SlurmctldPort=16817", "SlurmctldPort=1"))
    return str(path)


def test_a_controller_that_does_not_answer(scheduler: SlurmScheduler, away: str) -> None:
    runs = scheduler.submit(AppDef("runs", [role("echo said; sleep 600")]), {})
    wait_until(lambda: output(scheduler, runs) == b"said\n", "it runs")
    ended = scheduler.submit(AppDef("ended", [role("echo done")]), {})
    assert scheduler.wait(ended, 60)
    env = {"SLURM_CONF": away}
    for words in (["list", "-s", "slurm"], ["status", runs], ["cancel", runs], ["delete", runs]):
        result = torchx(*words, env=env)
        assert result.returncode == 69, words
        assert result.stderr.startswith("error: the Slurm controller does not answer"), words
        assert result.stderr.count("\n") == 2, words
    submitted = torchx("run", "-s", "slurm", "utils.echo", env=env)
    assert "the Slurm controller does not answer" in submitted.stderr
    assert [record.name for record in Records("slurm").all()].count("echo") == 0
    # what a job has left itself can be read all the same
    assert torchx("log", ended, env=env).stdout == "r/0 │ done\n"
    assert torchx("log", runs, env=env).stdout == "r/0 │ said\n"
    assert "has no role `x`" in torchx("log", f"{runs}/x", env=env).stderr
    assert "the Slurm controller does not answer" in torchx("log", "-f", runs, env=env).stderr
    assert "SUCCEEDED" in torchx("status", ended, env=env).stdout


def test_a_controller_that_starts_again_while_somebody_waits(
    scheduler: SlurmScheduler, away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = scheduler.submit(AppDef("waits", [role("sleep 600")]), {})
    wait_until(lambda: state(scheduler, app_id) is AppState.RUNNING, "it runs")
    record = next(iter(Records("slurm").all()))
    watch = watch_of(record)
    with monkeypatch.context() as gone:
        gone.setenv("SLURM_CONF", away)
        assert watch.has_ended() is False
        gone.setattr(watch, "_outage", Outage(0.0))
        with pytest.raises(StateError, match="does not answer"):
            watch.wait(10)
    slurm("scancel", app_id)
    assert watch.wait(60)


def test_streams_apart_and_a_workspace_that_jobs_share(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "main.sh").write_text("echo out; sleep 0.3; echo err >&2; pwd")
    places = []
    for _ in range(2):
        app = AppDef("ws", [Role("r", "", entrypoint="sh", args=["main.sh"], resource=Resource(1, 0, 100))])
        app_id = scheduler.submit(app, {}, workspace=str(tmp_path / "ws"))
        assert scheduler.wait(app_id, 60)
        assert output(scheduler, app_id, stream=Stream.STDERR) == b"err\n"
        lines = output(scheduler, app_id).split()
        assert lines[:2] == [b"out", b"err"]
        places.append(lines[2])
    assert places[0] == places[1]
    assert b"/slurm/workspaces/" in places[0]


def test_one_role_starts_again_alone(scheduler: SlurmScheduler) -> None:
    again = role('test "$TORCHX_ATTEMPT" = 2 || exit 5'.replace("$", "$$"), "again", max_retries=1)
    again.retry_policy = RetryPolicy.ROLE
    app_id = scheduler.submit(AppDef("roles", [again, role("sleep 1; echo once", "other")]), {})
    assert scheduler.wait(app_id, 60)
    described = scheduler.describe(app_id)
    assert described is not None
    assert described.state is AppState.SUCCEEDED, described.msg
    assert [len(each.replicas[0].attempts) for each in described.roles_statuses] == [2, 1]


@pytest.mark.torch
def test_the_digits_are_learned_on_two_nodes(scheduler: SlurmScheduler) -> None:
    train = Path(__file__).parents[3] / "examples" / "digits" / "train.py"
    done = torchx(
        "run", "-s", "slurm", "--wait", "dist.torchrun", "-j", "2x1", "--cpu", "1", "--memMB", "3000",
        "--script", str(train), "--", "--epochs", "2",
        env={"PYTHONWARNINGS": "", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    (job,) = Records("slurm").all()
    printed = output(scheduler, str(job.job_id)).decode()
    assert done.returncode == 0, done.stderr + printed
    assert "training on 2 processes" in printed
    described = scheduler.describe(str(job.job_id))
    assert described is not None
    assert len({replica.hostname for replica in described.roles_statuses[0].replicas}) == 2
    assert "held-out accuracy" in printed
