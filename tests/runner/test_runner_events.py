"""Events of the runner: records of logging for those who ask, with a field for each fact."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_scheduler import MemoryScheduler

from torchx.errors import UsageError
from torchx.runner import Runner
from torchx.runner.events import TorchxEvent, get_events_logger, log_event, record
from torchx.specs import AppDef, Role, UnknownSchedulerException
from torchx.specs.status import AppState

APP = AppDef("train", [Role("a", "img", entrypoint="x", env={"TOKEN": "s3cret"})], {"team": "blue"})


@pytest.fixture
def runner() -> Iterator[Runner]:
    with Runner("s", {"memory": MemoryScheduler}) as made:
        yield made


@pytest.fixture(autouse=True)
def loggers_as_new() -> Iterator[None]:
    yield
    for name in ("torchx.events", "torchx-event.console"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_a_logger_whose_level_is_set_takes_them(runner: Runner, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="torchx.events"):
        handle = runner.run(APP, "memory", {"greetings": 2})
        runner.cancel(handle)
        runner.wait(handle)
        list(runner.log_lines(handle, "a"))
        with pytest.raises(UnknownSchedulerException):
            runner.list("nowhere")
    reported = [(r.api, r.scheduler, r.session, r.app_id) for r in caplog.records]  # type: ignore[attr-defined]
    assert reported == [
        ("dryrun", "memory", "s", None),
        ("schedule", "memory", "s", "train-0"),
        ("cancel", "memory", "s", "train-0"),
        ("wait", "memory", "s", "train-0"),
        ("log_lines", "memory", "s", "train-0"),
        ("list", "nowhere", "s", None),
    ]
    first, second, *_, last = caplog.records
    assert (first.levelname, first.name) == ("INFO", "torchx.events")
    event = second.torchx_event  # type: ignore[attr-defined]
    assert TorchxEvent.deserialize(second.getMessage()) == event
    assert (event.app_image, event.app_metadata) == ("img", {"team": "blue"})
    assert event.runcfg == '{"greetings": 2, "names": null}'
    assert event.wall_time_usec >= 0
    assert event.start_epoch_time_usec > 1.7e15
    assert last.exception_type == "UnknownSchedulerException"  # type: ignore[attr-defined]
    assert "Traceback" in last.raw_exception  # type: ignore[attr-defined]
    assert "s3cret" not in caplog.text


def test_they_are_not_used_by_default(runner: Runner, caplog: pytest.LogCaptureFixture) -> None:
    """An application that logs at INFO, as many do, gets no record of each of our calls."""
    with caplog.at_level(logging.INFO):
        runner.run(APP, "memory")
    assert caplog.records == []
    with caplog.at_level(logging.WARNING, logger="torchx.events"):
        runner.run(APP, "memory")
    assert caplog.records == []


def test_environments_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    with Runner("s") as runner, caplog.at_level(logging.INFO, logger="torchx.events"):
        runner.dryrun(APP, "local_docker", {"env": {"HF_TOKEN": "s3cret"}, "quiet": True})
    (result,) = caplog.records
    assert result.runcfg == '{"env": ["HF_TOKEN"], "quiet": true}'  # type: ignore[attr-defined]
    assert "s3cret" not in caplog.text


def test_a_wrong_destination_is_an_error_before_anything_happens(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = runner.dryrun(APP, "memory")
    monkeypatch.setenv("TORCHX_EVENTS", "consol")
    with pytest.raises(UsageError, match="unknown destination of events `consol`") as error:
        runner.schedule(info)
    assert "did you mean `console`?" in str(error.value.hint)
    scheduler = runner.scheduler("memory")
    assert isinstance(scheduler, MemoryScheduler)
    assert scheduler.jobs == {}


PLUGIN = """
import logging
from torchx.plugins import register

class Keep(logging.Handler):
    kept = []
    def emit(self, record):
        self.kept.append((record.api, record.torchx_event.app_id))

@register.event_handler(name="keeper")
def keeper() -> logging.Handler:
    return Keep()
"""


def test_a_plugin_keeps_them(runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from torchx.plugins import registry

    folder = tmp_path / "torchx_plugins" / "event_handlers"
    folder.mkdir(parents=True)
    (folder / "keeping_events.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry().clear()
    monkeypatch.setenv("TORCHX_EVENTS", "keeper")
    try:
        runner.delete(runner.run(APP, "memory"))
        kept = sys.modules["torchx_plugins.event_handlers.keeping_events"].Keep.kept
        assert kept == [("dryrun", None), ("schedule", "train-0"), ("delete", "train-0")]
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchx_plugins"]:
            del sys.modules[name]
        registry().clear()
        logging.getLogger("torchx-event.keeper").handlers.clear()


def test_ones_own_events(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    event = TorchxEvent("s", "local_cwd", "mine")
    record(event)  # without a handler
    assert capfd.readouterr().err == ""
    record(event, destination="console")
    assert TorchxEvent.deserialize(capfd.readouterr().err.strip()) == event
    assert get_events_logger("console") is get_events_logger("console")
    ours = [
        handler for handler in get_events_logger("console").handlers if type(handler) is logging.StreamHandler
    ]
    assert len(ours) == 1
    monkeypatch.setenv("TORCHX_INTERNAL_SESSION_ID", "from outside")
    with log_event("mine", app_id="a") as call:
        call.event.app_image = "img"
    assert (call.event.session, call.event.app_image) == ("from outside", "img")


def test_end_of_job_of_another_thread_is_one_event(runner: Runner, caplog: pytest.LogCaptureFixture) -> None:
    """A wait asks again and again where the scheduler cannot wake it; that is one call all the same."""
    import threading

    handle = runner.run(APP, "memory")
    scheduler = runner.scheduler("memory")
    assert isinstance(scheduler, MemoryScheduler)
    timer = threading.Timer(0.2, scheduler.jobs["train-0"].end, [AppState.SUCCEEDED])
    timer.start()
    with caplog.at_level(logging.INFO, logger="torchx.events"):
        runner.wait(handle, wait_interval=0.01)
    timer.join()
    (result,) = [record for record in caplog.records if record.api == "wait"]  # type: ignore[attr-defined]
    assert result.wall_time_usec >= 150_000  # type: ignore[attr-defined]
