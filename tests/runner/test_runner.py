"""The runner: what it does to an application, and what it asks of schedulers."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from memory_scheduler import MemoryScheduler

from torchx.errors import StateError, UnreachableError, UsageError
from torchx.runner import Runner, get_runner
from torchx.scheduling.logs import LogQuery
from torchx.specs.app import AppDef, AppDryRunInfo, Role
from torchx.specs.app_metadata import after
from torchx.specs.handles import (
    MalformedAppHandleException,
    UnknownAppException,
    UnknownSchedulerException,
)
from torchx.specs.home import TORCHX_HOME
from torchx.specs.run_options import InvalidRunConfigException
from torchx.specs.status import AppState


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.chdir(tmp_path)
    with Runner("s", {"memory": MemoryScheduler}, scheduler_params={"colour": "red"}) as made:
        yield made


def engine(runner: Runner) -> MemoryScheduler:
    found = runner.scheduler("memory")
    assert isinstance(found, MemoryScheduler)
    return found


def make(name: str = "train", **fields: object) -> AppDef:
    return AppDef(
        name,
        [Role("a", "img", entrypoint="python", num_replicas=2, **fields), Role("b", "img", entrypoint="sh")],
    )  # type: ignore[arg-type]


def test_dryrun_puts_run_into_environment_of_copy(runner: Runner) -> None:
    app = make(env={"MINE": "1", "TORCHX_JOB_ID": "stale"})
    before = copy.deepcopy(app)
    info = runner.dryrun(app, "memory", {"greetings": 3}, parent_run_id="parent")
    assert app == before
    assert repr(info) == "greet 3 times"
    assert info.app is not None
    for role in info.app.roles:
        assert role.env["TORCHX_JOB_ID"] == "memory://s/${app_id}"
        assert role.env["TORCHX_PARENT_RUN_ID"] == "parent"
        assert len(role.env["TORCHX_INTERNAL_SESSION_ID"]) == 36
    assert info.app.roles[0].env["MINE"] == "1"
    assert "TORCHX_TRACKERS" not in info.app.roles[0].env


def test_trackers_come_from_the_configuration(runner: Runner) -> None:
    text = "[torchx:tracker]\nfsspec =\nother = x\n[tracker:fsspec]\nconfig = /data\n"
    Path(".torchxconfig").write_text(text, encoding="utf-8")
    app = runner.dryrun(make(), "memory").app
    assert app is not None
    env = app.roles[1].env
    assert (env["TORCHX_TRACKERS"], env["TORCHX_TRACKER_FSSPEC_CONFIG"]) == ("fsspec,other", "/data")
    assert "TORCHX_TRACKER_OTHER_CONFIG" not in env


def test_trackers_of_the_environment_win(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".torchxconfig").write_text("[torchx:tracker]\nfsspec =\n", encoding="utf-8")
    monkeypatch.setenv("TORCHX_TRACKERS", "mine, yours")
    monkeypatch.setenv("TORCHX_TRACKER_YOURS_CONFIG", "there")
    app = runner.dryrun(make(), "memory").app
    assert app is not None
    env = app.roles[0].env
    assert (env["TORCHX_TRACKERS"], env["TORCHX_TRACKER_YOURS_CONFIG"]) == ("mine,yours", "there")


def test_lazy_values_are_worked_out_once(runner: Runner) -> None:
    calls: list[int] = []

    def image() -> str:
        calls.append(1)
        return "late"

    info = runner.dryrun(make(overrides={"image": image}), "memory")
    assert info.app is not None
    assert [role.image for role in info.app.roles] == ["late", "img"]
    assert calls == [1]


@pytest.mark.parametrize(
    ("app", "message"),
    [
        (AppDef("x"), "application `x` has no roles"),
        (AppDef("x", [Role("r", "img")]), "role `r` of application `x` has no entrypoint"),
        (
            AppDef("x", [Role("r", "img", entrypoint="e", num_replicas=0)]),
            "at least one replica, got num_replicas=0",
        ),
        (
            AppDef("x", [Role("r", "img", entrypoint="e", min_replicas=2)]),
            "min_replicas=2; expected a number between 1 and",
        ),
        (AppDef("x", [Role("r", "img", entrypoint="e")] * 2), "two roles of the name `r`"),
    ],
)
def test_what_no_scheduler_could_run_is_refused(runner: Runner, app: AppDef, message: str) -> None:
    with pytest.raises(UsageError, match="^.*" + message):
        runner.run(app, "memory")
    assert engine(runner).jobs == {}


def test_what_is_no_application_is_refused(runner: Runner) -> None:
    with pytest.raises(UsageError, match=r"an application is an AppDef, got 'utils\.echo'") as error:
        runner.run("utils.echo", "memory")  # type: ignore[arg-type]
    assert error.value.hint == "run a component by its name with run_component"
    with pytest.raises(UsageError, match="got None"):
        runner.dryrun(None, "memory")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="application `x` is made of roles, got 'r'"):
        runner.run(AppDef("x", ["r"]), "memory")  # type: ignore[list-item]


def test_one_value_in_place_of_a_list(runner: Runner) -> None:
    role = Role("server", image="", entrypoint="true")
    with pytest.raises(UsageError, match="application `x` has one Role, expected a list of roles"):
        runner.run(AppDef("x", role), "memory")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"arguments of utils\.sh are the string 'ls /tmp'") as error:
        runner.run_component("utils.sh", "ls /tmp", "memory")  # type: ignore[arg-type]
    assert error.value.hint == "e.g. ['ls /tmp']"
    others: list[Any] = ["server", role]
    for other in others:
        with pytest.raises(
            UsageError, match=r"role `client` starts after .*server.*, expected a list of role"
        ):
            after(Role("client", image=""), other)
    assert engine(runner).jobs == {}


def test_a_short_name_in_place_of_a_handle(runner: Runner) -> None:
    with pytest.raises(UsageError, match="`@last` is not an application handle") as error:
        runner.status("@last")
    hint = "expected SCHEDULER://SESSION/APP_ID; for an id, a name or @last: runner.resolve_handle(NAME)"
    assert error.value.hint == hint


def test_an_error_about_a_run_option_names_the_scheduler(runner: Runner) -> None:
    with pytest.raises(UsageError, match="unknown run option `nope` for memory"):
        runner.dryrun(make(), "memory", {"nope": 1})


def test_the_durations_of_wait_may_have_units(runner: Runner) -> None:
    handle = runner.run(make(), "memory")
    status = runner.wait(handle, wait_interval="1s", timeout="0.1s")
    assert status is not None
    assert status.state is AppState.RUNNING
    with pytest.raises(UsageError, match="timeout takes seconds or a duration such as 10m"):
        runner.wait(handle, timeout="soon")
    with pytest.raises(UsageError, match="wait_interval takes seconds"):
        runner.wait(handle, wait_interval="a")


def test_the_life_of_an_application(runner: Runner) -> None:
    handle = runner.run(make(), "memory")
    assert handle == "memory://s/train-0"
    status = runner.status(handle)
    assert status is not None
    assert (status.state, [len(role.replicas) for role in status.roles]) == (AppState.RUNNING, [2, 1])
    app = runner.describe(handle)
    assert app is not None
    assert (app.name, [role.name for role in app.roles]) == ("train", ["a", "b"])
    runner.cancel(handle)
    ended = runner.wait(handle)
    assert ended is not None
    assert ended.state is AppState.CANCELLED
    runner.cancel(handle)  # nothing happens any more
    runner.delete(handle)
    runner.cancel(handle)  # it is unknown
    runner.kill(handle)
    assert runner.status(handle) is None
    assert runner.describe(handle) is None
    assert runner.wait(handle) is None
    assert runner.exists(handle) is False


def test_wait_wakes_up_without_help_of_the_scheduler(runner: Runner) -> None:
    handle = runner.run(make(), "memory")
    job = engine(runner).jobs["train-0"]
    timer = threading.Timer(0.05, job.end, [AppState.SUCCEEDED])
    timer.start()
    status = runner.wait(handle, wait_interval=0.02)
    timer.join()
    assert status is not None
    assert status.state is AppState.SUCCEEDED


def test_kill_cancels_where_the_scheduler_knows_no_more(runner: Runner) -> None:
    handle = runner.run(make(), "memory")
    runner.kill(handle)
    assert engine(runner).jobs["train-0"].state is AppState.CANCELLED


def test_stop_is_the_older_name_of_cancel(runner: Runner) -> None:
    handle = runner.run(make(), "memory")
    with pytest.warns(DeprecationWarning, match=r"now Runner\.cancel"):
        runner.stop(handle)
    assert engine(runner).jobs["train-0"].state is AppState.CANCELLED


def test_a_dry_run_submits_nothing(runner: Runner) -> None:
    info = runner.run(make(), "memory", {"greetings": 3}, dryrun=True)
    assert isinstance(info, AppDryRunInfo)
    assert engine(runner).jobs == {}
    assert runner.schedule(info) == "memory://s/train-0"


def test_run_options(runner: Runner) -> None:
    assert runner.cfg_from_str("memory", "greetings=2,names=a;b") == {"greetings": 2, "names": ["a", "b"]}
    assert runner.cfg_from_str("memory", "greetings=2", "greetings=4") == {"greetings": 4}
    assert runner.cfg_from_json_repr("memory", '{"names": ["a"]}') == {"names": ["a"]}
    with pytest.raises(InvalidRunConfigException, match="greating"):
        runner.run(make(), "memory", {"greatings": 1})
    with pytest.raises(InvalidRunConfigException):
        runner.cfg_from_str("memory", "greatings=1")


def test_errors_in_names_and_handles(runner: Runner) -> None:
    with pytest.raises(UnknownSchedulerException) as error:
        runner.run(make(), "memry")
    assert "did you mean `memory`?" in str(error.value)
    with pytest.raises(MalformedAppHandleException):
        runner.status("no handle")
    with pytest.raises(UnknownSchedulerException):
        runner.status("gone://s/x")
    with pytest.raises(UnknownAppException):
        runner.log_lines("memory://s/x", "a")
    with pytest.raises(UnknownAppException):
        runner.log_chunks("memory://s/x", LogQuery())


def test_a_workspace_that_is_not_supported_is_a_warning(runner: Runner) -> None:
    assert runner.takes_workspace("memory") is False
    with pytest.warns(UserWarning, match="memory does not support workspaces"):
        assert runner.run(make(), "memory", workspace=".")


def test_the_list_is_the_newest_first_with_handles(runner: Runner) -> None:
    for name in ("one", "two"):
        runner.run(make(name), "memory")
    assert [app.app_handle for app in runner.list("memory")] == ["memory://s/two-1", "memory://s/one-0"]


def test_short_names(runner: Runner) -> None:
    runner.default_scheduler = "memory"
    for name in ("train", "trainer", "echo"):
        runner.run(make(name), "memory")
    for text in ("echo-2", "echo", "ec", "@last", "memory://s/echo-2"):
        assert runner.resolve_handle(text) == "memory://s/echo-2"
    assert runner.resolve_handle("train") == "memory://s/train-0"  # a name comes before the start of an id
    with pytest.raises(
        StateError, match=r"`tr` matches 2 applications: trainer-1 \(RUNNING\), train-0 \(RUNNING\)"
    ):
        runner.resolve_handle("tr")
    with pytest.raises(UnknownAppException) as error:
        runner.resolve_handle("trian")
    assert "did you mean `train`?" in str(error.value)
    for text in ("", "a/b", "://x"):
        with pytest.raises(MalformedAppHandleException):
            runner.resolve_handle(text)


def test_last_is_remembered_and_found_again_after_removal(runner: Runner) -> None:
    with pytest.raises(StateError, match="no application is known for @last"):
        runner.resolve_handle("@last")
    first, second = (runner.run(make(name), "memory") for name in ("one", "two"))
    assert runner.resolve_handle("@last") == second
    runner.delete(second)
    assert runner.resolve_handle("@last") == first


def test_the_last_one_is_never_somebody_elses(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = (runner.run(make(name), "memory") for name in ("one", "two"))
    monkeypatch.setattr(MemoryScheduler, "shared_by", "an engine", raising=False)
    runner.delete(other)
    newer = runner.schedule(runner.dryrun(make("three"), "memory"))
    (TORCHX_HOME() / "last").write_text(f"{other}\n{mine}\n")
    assert runner.resolve_handle("@last") == mine
    runner.delete(mine)
    with pytest.raises(StateError, match="no application is known for @last"):
        runner.resolve_handle("@last")
    assert runner.exists(newer)


def test_what_an_application_submits_is_not_the_last(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    first = runner.run(make("one"), "memory")
    monkeypatch.setenv("TORCHX_JOB_ID", first)
    runner.run(make("two"), "memory")
    assert runner.resolve_handle("@last") == first


def test_a_scheduler_that_cannot_be_queried_is_named(tmp_path: Path) -> None:
    class Silent(MemoryScheduler):
        def list(self, cfg: object = None) -> list[object]:  # type: ignore[override]
            raise StateError("no engine answers")

    with Runner("s", {"memory": MemoryScheduler, "silent": Silent}) as runner:
        runner.run(make("one"), "memory")
        assert runner.resolve_handle("one") == "memory://s/one-0"
        with pytest.raises(UnreachableError, match=r"^silent did not answer: no engine answers; ") as error:
            runner.resolve_handle("zzz")
        assert error.value.hint == "to diagnose: torchx doctor silent   all applications: torchx list"


def test_schedulers_are_made_once_and_closed(runner: Runner) -> None:
    made = engine(runner)
    assert engine(runner) is made
    assert (made.session_name, made.params) == ("s", {"colour": "red"})
    runner.close()
    assert made.closed


def test_the_environment_becomes_parameters_of_schedulers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_COLOUR", "blue")
    monkeypatch.setenv("TORCHX_SHAPE", "round")
    with get_runner(colour="red") as runner:
        assert runner._scheduler_params["colour"] == "red"
        assert runner._scheduler_params["shape"] == "round"


COMPONENT = """
import torchx.specs as specs

def greet(name: str = "you", *words: str) -> specs.AppDef:
    return specs.AppDef("greet", [specs.Role("r", "img", entrypoint="echo", args=[name, *words])])
"""


def test_components(runner: Runner) -> None:
    Path("comps.py").write_text(COMPONENT, encoding="utf-8")

    def args(given: list[str] | dict[str, object]) -> list[str]:
        app = runner.dryrun_component("comps.py:greet", given, "memory").app
        assert app is not None
        return app.roles[0].args

    assert args(["--name", "me", "a", "b"]) == ["me", "a", "b"]
    assert args(["--name", "me", "--name", "her"]) == ["her"]
    assert args({"name": "him"}) == ["him"]
    assert runner.run_component("comps.py:greet", [], "memory") == "memory://s/greet-0"
    with pytest.raises(UsageError, match="nam"):
        args({"nam": "him"})
    with pytest.raises(UsageError, match="--help is not an argument"):
        args(["--help"])


def test_defaults_of_components(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("comps.py").write_text(COMPONENT, encoding="utf-8")
    defaults = {"comps.py:greet": {"name": "all"}}
    with Runner("s", {"memory": MemoryScheduler}, defaults) as runner:
        app = runner.dryrun_component("comps.py:greet", [], "memory").app
        assert app is not None
        assert app.roles[0].args == ["all"]


def test_events_go_where_they_are_sent(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import logging

    from torchx.runner.events import TorchxEvent

    runner.run(make("quiet"), "memory")
    assert capfd.readouterr().err == ""
    logging.getLogger("torchx-event.console").handlers.clear()
    monkeypatch.setenv("TORCHX_EVENTS", "console")
    with pytest.raises(UnknownSchedulerException):
        runner.run(make("loud"), "nowhere")
    reported = [TorchxEvent.deserialize(line) for line in capfd.readouterr().err.splitlines()]
    logging.getLogger("torchx-event.console").handlers.clear()
    assert [(event.api, event.scheduler, event.exception_type) for event in reported] == [
        ("dryrun", "nowhere", "UnknownSchedulerException")
    ]
    assert reported[0].wall_time_usec is not None
    monkeypatch.setenv("TORCHX_EVENTS", "consol")
    with pytest.raises(UsageError, match="unknown destination of events `consol`"):
        runner.run(make("lost"), "memory")
