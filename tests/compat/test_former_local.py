"""Tests of the local scheduler as other packages derive from it or register it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from torchx.runner import get_runner
from torchx.schedulers import create_scheduler, local_scheduler
from torchx.schedulers.api import (
    DescribeAppResponse,
    filter_regex,
    split_lines_iterator,
)
from torchx.schedulers.local_scheduler import (
    CWDImageProvider,
    ImageProvider,
    LocalOpts,
    LocalScheduler,
    LogIterator,
    PopenRequest,
)
from torchx.specs import AppDef, AppDryRunInfo, AppState, Role
from torchx.specs.api import is_terminal

ECHO = AppDef("echo", [Role("r", "", entrypoint="sh", args=["-c", "echo one; echo two"])])


@dataclass
class Executor:
    """The options of another package, of which `job_dir` is meant for the scheduler."""

    job_dir: str
    launcher: str = "none"


class Persistent(LocalScheduler):
    """Derives as NeMo-Run does: own attributes instead of the constructor's, requests and logs of its own."""

    def __init__(self, session_name: str, image_provider_class: Any = CWDImageProvider) -> None:
        self.backend = "local"
        self.session_name = session_name
        self._apps: dict[str, Any] = {}
        self._image_provider_class = image_provider_class
        self._extra_paths: list[str] = []  # type: ignore[assignment]
        self.kept: list[str] = []

    def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[PopenRequest]:
        options = asdict(cfg)
        options["log_dir"] = options.pop("job_dir")
        return AppDryRunInfo(self._to_popen_request(app, options), repr)

    def schedule(self, dryrun_info: AppDryRunInfo[PopenRequest]) -> str:
        app_id = super().schedule(dryrun_info)
        self.kept = [*self._apps[app_id].role_replicas]
        return app_id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        return super().describe(app_id)

    def log_iter(self, app_id: str, role_name: str, k: int = 0, *args: Any, **more: Any) -> Iterable[str]:
        folder = Path(self._apps[app_id].log_dir, role_name, str(k))
        return split_lines_iterator(LogIterator(app_id, str(folder / local_scheduler.STDOUT_LOG), self))


class Prefixed(LocalScheduler):
    def log_iter(self, *args: Any, **more: Any) -> Iterable[str]:
        lines = super().log_iter(*args, **more)
        return (f"> {line}" for line in lines)


def submitted(scheduler: Persistent, folder: Path) -> str:
    info = scheduler._submit_dryrun(ECHO, Executor(str(folder)))
    info._app = ECHO
    return scheduler.schedule(info)


def test_an_overriding_method_can_call_that_of_the_engine() -> None:
    scheduler = Prefixed("s")
    app_id = scheduler.submit(ECHO, {})
    assert [*scheduler.log_iter(app_id, "r", should_tail=True)] == ["> one\n", "> two\n"]


def test_a_derived_scheduler_runs_and_follows(tmp_path: Path) -> None:
    scheduler = Persistent("s")
    app_id = submitted(scheduler, tmp_path)
    assert scheduler.kept == ["r"]
    assert Path(scheduler._apps[app_id].log_dir, "r", "0", local_scheduler.STDOUT_LOG).is_file()
    assert [*scheduler.log_iter(app_id, "r")] == ["one\n", "two\n"]
    assert [*filter_regex("w", scheduler.log_iter(app_id, "r"))] == ["two\n"]
    found = scheduler.describe(app_id)
    assert found is not None
    assert is_terminal(found.state)
    assert scheduler._apps[app_id].state is found.state
    assert scheduler._apps[app_id].log_dir == str(tmp_path / "s" / app_id)


def test_another_object_knows_the_application(tmp_path: Path) -> None:
    app_id = submitted(Persistent("s"), tmp_path)
    other = Persistent("s")
    other.wait = None  # type: ignore[assignment]
    assert other.describe(app_id) is not None
    other._apps[app_id].kill()  # of an application that this object did not start
    assert [*other.log_iter(app_id, "r")] in ([], ["one\n"], ["one\n", "two\n"])


def test_the_record_of_an_application_of_another_package() -> None:
    """NeMo-Run makes them itself, from its own file."""
    app = local_scheduler._LocalAppDef(id="a", log_dir="/logs")
    app.role_replicas["r"] = []
    app.set_state(AppState.RUNNING)
    app.kill()
    assert (app.id, app.state.name, [*app.role_replicas]) == ("a", "RUNNING", ["r"])


class Tools(ImageProvider):
    """Uses a folder as the image, as a plugin's provider does."""

    def __init__(self, cfg: LocalOpts) -> None:
        self.cfg = cfg

    def fetch(self, image: str) -> str:
        return image


def own_scheduler(session_name: str, **params: Any) -> LocalScheduler:
    return LocalScheduler(session_name, image_provider_class=Tools, cache_size=10)  # type: ignore[arg-type]


@pytest.fixture
def with_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchx.plugins import PluginType, registry

    found = registry()
    plugins = {**found.get(PluginType.SCHEDULER), "lab": own_scheduler}
    get = type(found).get
    monkeypatch.setattr(
        type(found), "get", lambda self, kind: plugins if kind is PluginType.SCHEDULER else get(self, kind)
    )


@pytest.mark.usefixtures("with_plugin")
def test_plugin_that_makes_local_scheduler_has_its_own_jobs() -> None:
    with get_runner("s") as runner:
        handle = runner.run(ECHO, "lab")
        status = runner.wait(handle)
        assert handle.startswith("lab://s/")
        assert status is not None
        assert status.state is AppState.SUCCEEDED
        assert [app.app_handle for app in runner.list("lab")] == [handle]
        assert [*runner.list("local_cwd")] == []
        assert [*runner.log_lines(handle, "r")] == ["one\n", "two\n"]
        assert runner.status(handle.replace("lab://", "local_cwd://")) is None


@pytest.mark.usefixtures("with_plugin")
def test_a_replica_knows_the_handle_of_its_plugin() -> None:
    app = AppDef(
        "id",
        [
            Role(
                "r",
                "",
                entrypoint=sys.executable,
                args=["-c", "import os; print(os.environ['TORCHX_JOB_ID'])"],
            )
        ],
    )
    with get_runner("s") as runner:
        handle = runner.run(app, "lab")
        runner.wait(handle)
        assert [*runner.log_lines(handle, "r")] == [f"{handle}\n"]


def test_built_in_scheduler_is_one_of_documented_class() -> None:
    scheduler = create_scheduler("local_cwd", "s")
    assert isinstance(scheduler, LocalScheduler)
    assert not isinstance(scheduler, Persistent)
    assert issubclass(Persistent, LocalScheduler)


class Finished:
    """A scheduler whose application ends after some queries."""

    def __init__(self, file: Path, states: list[AppState]) -> None:
        self.file, self.states = file, states

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if state is AppState.RUNNING:
            with self.file.open("a") as file:
                file.write("more\n")
        return DescribeAppResponse(app_id=app_id, state=state)


def test_log_is_followed_to_end_of_application(tmp_path: Path) -> None:
    file = tmp_path / "log"
    states = [AppState.PENDING, AppState.RUNNING, AppState.RUNNING, AppState.SUCCEEDED]
    scheduler: Any = Finished(file, states)
    assert [*LogIterator("a", str(file), scheduler)] == ["more\n", "more\n"]


def test_log_that_is_not_followed_ends_with_file(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("one\ntwo")
    scheduler: Any = Finished(tmp_path / "other", [AppState.RUNNING])
    assert [*LogIterator("a", str(file), scheduler, should_tail=False)] == ["one\n", "two"]


def test_a_log_that_was_never_written_is_empty(tmp_path: Path) -> None:
    scheduler: Any = Finished(tmp_path / "log", [AppState.FAILED])
    assert [*LogIterator("a", str(tmp_path / "log"), scheduler)] == []
