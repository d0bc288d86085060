"""The runner on real processes: what it hands on of them, changed requests, what it must not read."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchx.errors import StateError, UsageError
from torchx.jobs.view import JobView
from torchx.runner import Runner, get_runner
from torchx.runner.config import apply
from torchx.specs import AppDef, AppState, Role, UnknownAppException
from torchx.specs.run_options import CfgVal


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.chdir(tmp_path)
    with get_runner() as made:
        yield made


def sh(script: str, replicas: int = 1) -> AppDef:
    return AppDef("job", [Role("w", "", entrypoint="sh", args=["-c", script], num_replicas=replicas)])


def test_a_changed_request_is_what_runs(runner: Runner) -> None:
    info = runner.dryrun(sh("echo $NAME; pwd"), "local_cwd")
    (replica,) = info.request.role_params["w"]
    replica.env["NAME"] = "changed"
    replica.cwd = "/"
    handle = runner.schedule(info)
    assert list(runner.log_lines(handle, "w", should_tail=True)) == ["changed\n", "/\n"]


def test_logs_that_cannot_be_are_refused(runner: Runner) -> None:
    handle = runner.run(sh("echo hi", 3), "local_cwd")
    runner.wait(handle)
    with pytest.raises(UnknownAppException):
        runner.log_lines("local_cwd://torchx/gone-x", "w")
    with pytest.raises(StateError, match="has no role `worker`") as error:
        runner.log_lines(handle, "worker")
    assert error.value.hint == "its roles: w"
    for k in (3, -1):
        with pytest.raises(StateError, match=f"job-.* has no replica w/{k}; its replicas are 0 to 2"):
            runner.log_lines(handle, "w", k)
    with pytest.raises(UsageError, match=r"`\(` is not a regular expression"):
        runner.log_lines(handle, "w", regex="(")
    assert list(runner.log_lines(handle, "w", 2)) == ["hi\n"]


def test_the_schedulers_own_object(runner: Runner) -> None:
    handle = runner.run(sh("exit 3"), "local_cwd")
    runner.wait(handle)
    native = runner.describe_native(handle)
    assert isinstance(native, JobView)
    assert (native.record.handle, native.exit_code) == (handle, 3)
    assert runner.describe_native("local_cwd://torchx/gone-x") is None


def test_job_is_listed_under_handle_that_it_was_given(runner: Runner) -> None:
    """Whichever runner lists it: the trackers of the job know it by that name."""
    with get_runner("mine") as mine:
        handles = [mine.run(sh("exit 0"), "local_cwd"), runner.run(sh("sleep 600"), "local_cwd")]
        mine.wait(handles[0])
    assert sorted(app.app_handle for app in runner.list("local_cwd")) == sorted(handles)
    runner.cancel(handles[1])


def test_the_configuration_counts_when_it_is_requested(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / ".torchxconfig").write_text(
        f"[local_cwd]\nlog_dir = {tmp_path}/logs\n"
        "[cli:run]\nscheduler = nowhere\n"
        "[component:utils.echo]\nmsg = configured\n"
    )
    plain = runner.dryrun_component("utils.echo", [], "local_cwd")
    assert plain.cfg["log_dir"] is None
    assert plain.app is not None
    assert plain.app.roles[0].args == ["hello world"]
    cfg: dict[str, CfgVal] = {}
    apply("local_cwd", cfg)
    assert runner.dryrun(sh("true"), "local_cwd", cfg).request.log_dir.startswith(
        f"{tmp_path}/logs/torchx/job-"
    )
    cfg = {"log_dir": "/mine"}
    apply("local_cwd", cfg)
    assert cfg["log_dir"] == "/mine"


def test_to_wait_costs_nothing_and_ends_in_time(runner: Runner) -> None:
    handle = runner.run(sh("exec sleep 600"), "local_cwd")
    began, cpu = time.monotonic(), time.process_time()
    status = runner.wait(handle, timeout=1.0)
    assert status is not None
    assert status.state is AppState.RUNNING
    assert 1.0 <= time.monotonic() - began < 300
    assert time.process_time() - cpu < 0.3
    assert runner.wait(handle, timeout=0.05) is not None
    for none_at_all in (0, -1):
        assert runner.wait(handle, timeout=none_at_all) is not None
    runner.cancel(handle)
    ended = runner.wait(handle, timeout=1e9)
    assert ended is not None
    assert ended.state is AppState.CANCELLED


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_the_end_of_a_job_wakes_who_waits(runner: Runner, timeout: float | None) -> None:
    """Nobody looks meanwhile: a wait makes no more calls of the system when it is longer."""
    handle = runner.run(sh("sleep 1"), "local_cwd")
    switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    status = runner.wait(handle, timeout=timeout)
    assert status is not None
    assert status.state is AppState.SUCCEEDED
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - switches < 15
