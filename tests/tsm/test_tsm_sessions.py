"""Sessions: what they submit, what belongs to them, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from memory_scheduler import MemoryScheduler
from project.sources import ROOT

import torchx.tsm.driver as driver
from torchx import specs, tsm
from torchx.errors import StateError, UsageError
from torchx.runner import Runner
from torchx.specs import AppState
from torchx.tsm.standalone import StandaloneSession


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tsm.Session]:
    """A session on real processes, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    with tsm.session(name="mine") as made:
        yield made


def sh(script: str, replicas: int = 1, name: str = "w") -> tsm.Role:
    return tsm.Role(name).runs("sh", "-c", script).replicas(replicas)


def folder(path: Path, **files: str) -> tsm.Container:
    path.mkdir(parents=True)
    for name, text in files.items():
        (path / name.replace("_py", ".py")).write_text(text)
    return tsm.Container(image=str(path))


def in_memory(name: str = "s") -> StandaloneSession:
    return StandaloneSession(name, Runner(name, {"memory": MemoryScheduler}))


def test_the_life_of_an_application(session: tsm.Session) -> None:
    app = tsm.Application("job").of(sh("echo $GREETING; exec sleep 600", 2))
    app.roles[0].env["GREETING"] = "hi"
    handle = session.run(app, cfg=tsm.RunConfig().set("grace_period", 5.0))
    assert handle.startswith("local_cwd://mine/job-")
    assert session.name() == "mine"
    first = next(iter(session.log_lines(handle, "w", k=1)))
    assert first == "hi\n"
    status = session.status(handle)
    assert status is not None
    assert status.state is AppState.RUNNING
    status = session.wait(handle, timeout=0.05)
    assert status is not None
    assert not status.is_terminal()
    session.stop(handle)
    status = session.wait(handle)
    assert status is not None
    assert status.state is AppState.CANCELLED
    session.stop(handle)  # nothing happens any more
    described = session.describe(handle)
    assert isinstance(described, tsm.Application)
    assert (described.name, described.roles[0].env["GREETING"], described.roles[0].num_replicas) == (
        "job",
        "hi",
        2,
    )
    assert session.list() == {handle: described}


def test_the_log_is_followed_to_the_end_by_default(session: tsm.Session) -> None:
    handle = session.run(tsm.Application("job").of(sh("echo one; sleep 0.3; echo two")), "local")
    assert list(session.log_lines(handle, "w")) == ["one\n", "two\n"]
    assert list(session.log_lines(handle, "w", regex="^t")) == ["two\n"]
    assert list(session.log_lines(handle, "w", should_tail=False)) == ["one\n", "two\n"]
    now = datetime.now().astimezone()
    assert list(session.log_lines(handle, "w", since=now)) == []
    assert list(session.log_lines(handle, "w", until=now - timedelta(hours=1))) == []


def test_with_end_in_time_log_is_not_followed(session: tsm.Session) -> None:
    handle = session.run(tsm.Application("job").of(sh("echo one; exec sleep 600")))
    assert next(iter(session.log_lines(handle, "w"))) == "one\n"
    later = datetime.now().astimezone() + timedelta(hours=1)
    assert list(session.log_lines(handle, "w", until=later)) == ["one\n"]
    session.stop(handle)
    session.wait(handle)


def test_images_that_are_folders_are_run_in(session: tsm.Session, tmp_path: Path) -> None:
    box = folder(tmp_path / "image", job_py="import os, sys; print(os.getcwd(), sys.argv[1:])")
    handle = session.run(tsm.Application("job").of(tsm.Role("r").runs("job.py", "--x").on(box)), "default")
    assert handle.startswith("local_dir://mine/job-")
    assert list(session.log_lines(handle, "r")) == [f"{tmp_path}/image ['--x']\n"]
    ended = session.wait(handle)
    assert ended is not None
    assert ended.state is AppState.SUCCEEDED


def test_which_scheduler_of_this_machine_it_is(session: tsm.Session, tmp_path: Path) -> None:
    def scheduler(*images: str, requested: str = "default") -> str | None:
        roles = [tsm.Role(f"r{k}", "sh").on(tsm.Container(image)) for k, image in enumerate(images)]
        return session.dryrun(tsm.Application("a").of(*roles), requested).scheduler

    (tmp_path / "relative").mkdir()
    assert scheduler("pytorch/pytorch:2.9") == scheduler("python", requested="local") == "local_cwd"
    assert scheduler("relative", "relative") == scheduler(str(tmp_path)) == scheduler(".") == "local_dir"
    assert scheduler("python", requested="local_cwd") == "local_cwd"
    # a folder that is not there is a typo, and no reason to run elsewhere
    with pytest.raises(UsageError, match="`/no/such/folder` is neither a folder nor an archive"):
        scheduler("/no/such/folder")
    with pytest.raises(UsageError, match=r"`gone\.tar\.gz`|gone"):
        scheduler("gone.tar.gz")
    roles = [tsm.Role("a", "sh").on(tsm.Container(".")), tsm.Role("b", "sh")]
    with pytest.raises(UsageError, match="role `b` has no container, and local_dir needs one"):
        session.run(tsm.Application("a").of(*roles))


def test_a_script_that_starts_itself_does(session: tsm.Session, tmp_path: Path) -> None:
    box = folder(tmp_path / "image", plain_py="", own_py="#!/bin/sh\necho by itself\n")
    (tmp_path / "image" / "own.py").chmod(0o755)
    plain, own = tsm.Role("plain").runs("plain.py", "-v").on(box), tsm.Role("own").runs("own.py").on(box)
    info = session.dryrun(tsm.Application("a").of(plain, own))
    assert info.request.role_params["plain"][0].args == ["python", "plain.py", "-v"]
    assert info.request.role_params["own"][0].args == [f"{tmp_path}/image/own.py"]
    assert (plain.entrypoint, plain.args) == ("plain.py", ["-v"]), "the application stays as it is"
    assert in_memory().dryrun(tsm.Application("a").of(own), "memory").app.roles[0].entrypoint == "python"


def test_a_resource_can_be_for_one_scheduler() -> None:
    box = tsm.Container("img").require(tsm.Resource(1, 0, 64)).require(tsm.Resource(8, 1, 512), "memory")
    app = tsm.Application("a").of(tsm.Role("r", "sh").on(box))
    with in_memory() as session:
        info = session.dryrun(app, "memory")
        assert info.app is not None
        assert info.app.roles[0].resource.cpu == 8
    box.require(tsm.Resource(3, 0, 64), "local")
    with tsm.session("x") as here:
        for requested in ("default", "local", "local_cwd"):
            info = here.dryrun(app, requested)
            assert info.app is not None
            assert info.app.roles[0].resource.cpu == 3
    assert app.roles[0].resource.cpu == 1


def test_a_changed_request_is_what_runs(session: tsm.Session) -> None:
    info = session.dryrun(tsm.Application("job").of(sh("echo $FOO")), scheduler="default")
    assert "echo $FOO" in repr(info)
    info.request.role_params["w"][0].env["FOO"] = "bar"
    handle = session.submit(info)
    assert list(session.log_lines(handle, "w")) == ["bar\n"]
    with pytest.raises(UsageError, match="a dry-run can be submitted only once"):
        session.schedule(info)


def test_applications_of_other_sessions_are_not_ours_until_attached(session: tsm.Session) -> None:
    with tsm.session("other") as other:
        theirs = other.run(tsm.Application("job").of(sh("echo theirs")))
        other.wait(theirs)
        calls = (session.status, session.wait, session.stop, session.describe)
        for call in (*calls, lambda handle: session.log_lines(handle, "w")):
            with pytest.raises(tsm.SessionMismatchException, match="does not belong to the session `mine`"):
                call(theirs)  # type: ignore[operator]
        assert session.list() == {}
        ours = session.attach(theirs)
        assert ours == theirs.replace("other", "mine")
        for handle in (ours, theirs):
            assert list(session.log_lines(handle, "w")) == ["theirs\n"]
        assert list(session.list()) == [ours]
        assert list(other.list()) == [theirs], "it is still in their list"
        assert session.run(session.list()[ours]).startswith("local_cwd://mine/job-"), "it can be run again"


def test_unknown_applications(session: tsm.Session) -> None:
    handle = "local_cwd://mine/gone-x"
    assert session.status(handle) is session.wait(handle) is session.describe(handle) is None
    session.stop(handle)
    with pytest.raises(tsm.UnknownApp):
        session.log_lines(handle, "w")
    with pytest.raises(tsm.UnknownAppException):
        session.attach("local_cwd://other/gone-x")
    with pytest.raises(specs.MalformedAppHandleException):
        session.status("gone-x")
    with pytest.raises(specs.UnknownSchedulerException):
        session.run(tsm.Application("a").of(sh("true")), "locl")


def test_a_session_is_found_again_by_its_name(session: tsm.Session) -> None:
    """By another process too: what it has submitted outlives it."""
    code = (
        "import torchx.tsm as tsm\n"
        "app = tsm.Application('job').of(tsm.Role('w').runs('echo', 'hi'))\n"
        "print(tsm.session('mine').run(app), tsm.session('another').run(app))\n"
    )
    env = {"PYTHONPATH": str(ROOT), **__import__("os").environ}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    mine, another = done.stdout.split()
    session.wait(mine)
    (found,) = session.list().items()
    assert (found[0], found[1].roles[0].args) == (mine, ["hi"])
    assert list(session.log_lines(mine, "w")) == ["hi\n"]
    with pytest.raises(tsm.SessionMismatch):
        session.status(another)


def test_unreported_application_cannot_be_run_again() -> None:
    class Forgets(MemoryScheduler):
        def describe(self, app_id: str):  # type: ignore[no-untyped-def]
            found = super().describe(app_id)
            if found is not None:
                found.roles = [specs.Role("r", specs.UNKNOWN, entrypoint="x")] if app_id == "a-0" else []
            return found

    with StandaloneSession("s", Runner("s", {"memory": Forgets})) as session:
        for what in ("the image of role `r`", "its roles"):
            handle = session.run(tsm.Application("a").of(tsm.Role("r", "sh", image="img")), "memory")
            session._runner._apps.clear()  # as in another process
            described = session.describe(handle)
            assert described is not None
            with pytest.raises(tsm.AppNotReRunnableException, match=f"does not report {what}") as error:
                session.run(described, "memory")
            assert isinstance(error.value, StateError)


def test_elastic_nodes_have_to_find_each_other() -> None:
    reader = tsm.Role("reader", "sh", image="img")
    trainer = tsm.ElasticRole("trainer", image="img").runs("x.py").replicas(2)
    with in_memory() as session:
        session.dryrun(tsm.Application("a").of(trainer, reader), "memory")
        with pytest.raises(UsageError, match="meet at replica 0 of the first role, which is `reader`"):
            session.dryrun(tsm.Application("a").of(reader, trainer), "memory")
        elsewhere = tsm.ElasticRole("e", image="img", rdzv_endpoint="etcd:1").runs("x.py").replicas(2)
        session.dryrun(tsm.Application("a").of(reader, elsewhere), "memory")
    with tsm.session("x") as here:  # all of this machine is localhost; two roles need two ports
        twin = tsm.ElasticRole("twin", image="img").runs("x.py").replicas(2)
        app = here.dryrun(tsm.Application("a").of(reader, trainer, twin), "local").app
        assert app is not None
        assert [list(role.port_map) for role in app.roles] == [[], ["c10d"], ["c10d-1"]]
        assert "TORCHX_PORT_C10D_1:=29500" in app.roles[2].args[1]


def test_schedulers_and_their_options(session: tsm.Session) -> None:
    names = session.scheduler_backends()
    assert names[:2] == ["default", "local"]
    assert {"local_cwd", "local_dir", "local_docker", "kubernetes"} <= set(names)
    opts = session.run_opts()
    assert list(opts) == names
    assert "log_dir" in repr(opts["local"])
    assert {key for key, _ in opts["default"]} == {key for key, _ in opts["local_dir"]}
    with pytest.raises(specs.InvalidRunConfigException, match="log_dri"):
        session.dryrun(tsm.Application("a").of(sh("true")), "default", {"log_dri": "x"})


def test_broken_scheduler_does_not_hide_options_of_others() -> None:
    def broken(session: str, **params: object) -> MemoryScheduler:
        raise ImportError("no module named far")

    with StandaloneSession("s", Runner("s", {"broken": broken, "memory": MemoryScheduler})) as session:
        assert "broken" in session.scheduler_backends()
        assert list(session.run_opts()) == ["memory"]


@pytest.mark.parametrize("name", ["a/b", "..", "."])
def test_a_name_stands_in_handles_and_folders(name: str) -> None:
    with pytest.raises(UsageError, match="a part of handles, between slashes"):
        tsm.session(name)
    with pytest.raises(UsageError, match="a part of handles, between slashes"):
        Runner(name)


def test_any_application_can_be_run(session: tsm.Session) -> None:
    """That of a component is as good as one of fluent words, and the latter goes where the former goes."""
    from torchx.components import utils

    handle = session.run(utils.echo("from a component"), "local_cwd")
    assert list(session.log_lines(handle, "echo")) == ["from a component\n"]
    with Runner("plain") as runner:
        handle = runner.run(tsm.Application("a").of(sh("echo from a runner")), "local_cwd")
        runner.wait(handle)
        assert list(runner.log_lines(handle, "w")) == ["from a runner\n"]


def test_a_session_of_ones_own() -> None:
    """One implements what is abstract, and inherits the rest."""
    missing = tsm.Session.__abstractmethods__
    assert {
        "schedule",
        "describe",
        "list",
        "log_lines",
        "status",
        "stop",
        "wait",
        "scheduler_backends",
    } <= missing
    assert not {"run", "dryrun", "name"} & missing
    with pytest.raises(TypeError, match="abstract"):
        tsm.Session("s")  # type: ignore[abstract]


def test_the_older_names_are_the_same() -> None:
    import torchx.tsm.driver.api as api
    from torchx.schedulers.local.scheduler import LocalScheduler
    from torchx.tsm.driver import local_scheduler

    assert driver.__all__ == api.__all__ == tsm.__all__
    for name in tsm.__all__:
        assert getattr(driver, name) is getattr(api, name) is getattr(tsm, name)
    assert local_scheduler.LocalScheduler is LocalScheduler
    assert tsm.SchedulerBackend.ALL == specs.ALL
    assert tsm.SessionMismatch is tsm.SessionMismatchException
    assert tsm.AppNotReRunnable is tsm.AppNotReRunnableException
    assert tsm.UnknownApp is tsm.UnknownAppException is specs.UnknownAppException


def test_macros_work_in_a_program(session: tsm.Session, tmp_path: Path) -> None:
    box = folder(tmp_path / "image", prog='#!/bin/sh\necho "$0 $1"\n')
    (tmp_path / "image" / "prog").chmod(0o755)
    role = tsm.Role("r").runs(f"{tsm.macros.img_root}/prog", f"$$HOME {tsm.macros.replica_id}").on(box)
    handle = session.run(tsm.Application("job").of(role))
    status = session.wait(handle)
    assert status is not None
    assert status.state is AppState.SUCCEEDED
    assert [*session.log_lines(handle, "r")] == [f"{tmp_path}/image/prog $HOME 0\n"]
