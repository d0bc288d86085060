"""`cancel`, `delete` and `wait` for several applications: flags, names, confirmation, other users."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from memory_scheduler import START, MemoryScheduler

import torchx.runner
from torchx.errors import OwnershipError, UnreachableError
from torchx.runner import Runner, origins, queue
from torchx.scheduling.base import ListAppResponse
from torchx.specs import AppDef, AppState, Resource, Role
from torchx_cli import conditions, selection
from torchx_cli.main import main


class Engine(MemoryScheduler):
    """An engine that lists applications of another user too, and remembers its calls."""

    def __init__(self, *args: object, **params: object) -> None:
        super().__init__(*args, **params)  # type: ignore[arg-type]
        self.cancelled: list[str] = []
        self.deleted: list[str] = []

    def add(self, name: str, state: AppState, app_id: str = "") -> str:
        app_id = app_id or f"{name}-{len(self.jobs)}"
        role = Role("r", "", entrypoint="true", resource=Resource(1, 0, 1))
        self.schedule(self.submit_dryrun(AppDef(name, [role]), {}))
        job = self.jobs.pop(list(self.jobs)[-1])
        self.jobs[app_id] = job
        if state is not AppState.RUNNING:
            job.end(state)
        return app_id

    def list(self, cfg: object = None) -> list[ListAppResponse]:  # type: ignore[override]
        rows = [
            ListAppResponse(
                app_id,
                job.state,
                name=job.app.name,
                submitted_at=START + timedelta(seconds=job.number),
                is_own=not app_id.startswith("foreign"),
            )
            for app_id, job in self.jobs.items()
        ]
        return [replace(row) for row in reversed(rows)]

    def _cancel_existing(self, app_id: str) -> None:
        self.cancelled.append(app_id)
        self.jobs[app_id].end(AppState.CANCELLED)

    def _delete_existing(self, app_id: str) -> None:
        self.deleted.append(app_id)
        del self.jobs[app_id]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    runner = Runner("torchx", {"memory": Engine, "more": Engine})
    monkeypatch.setattr(torchx.runner, "get_runner", lambda name: runner)
    monkeypatch.setattr(runner, "close", lambda: None)  # used by several commands
    first = runner._scheduler("memory")
    assert isinstance(first, Engine)
    for name, state in (
        ("train", AppState.SUCCEEDED),
        ("train", AppState.RUNNING),
        ("eval", AppState.RUNNING),
        ("eval", AppState.FAILED),
    ):
        first.add(name, state)
    first.add("train", AppState.RUNNING, "foreign-1")
    first.add("train", AppState.FAILED, "foreign-2")
    second = runner._scheduler("more")
    assert isinstance(second, Engine)
    second.add("other", AppState.RUNNING)
    return first


def confirmed(line: str) -> list[str]:
    """Returns --yes for a command line that selects by flags."""
    return ["--yes"] if "--" in line else []


@pytest.mark.parametrize(
    ("line", "cancelled"),
    [
        ("cancel --all", ["eval-2", "train-1"]),
        ("cancel --all -s memory", ["eval-2", "train-1"]),
        ("cancel --state running", ["eval-2", "train-1"]),
        ("cancel --state pending", []),
        ("cancel --name tr*", ["train-1"]),
        ("cancel --name ev* --state running,pending", ["eval-2"]),
        ("cancel train", ["train-1"]),
        ("cancel foreign-1", ["foreign-1"]),  # a real engine rejects it
    ],
)
def test_cancel_selects_running_applications_of_the_caller(
    line: str, cancelled: list[str], engine: Engine
) -> None:
    assert main([*line.split(), *confirmed(line)]) == 0
    assert engine.cancelled == cancelled


@pytest.mark.parametrize(("command", "name"), [("cancel", "train-1"), ("delete", "train-0")])
def test_one_application_given_twice_is_changed_once(
    command: str, name: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, name, f"memory://torchx/{name}"]) == 0
    assert [*engine.cancelled, *engine.deleted] == [name]
    assert capsys.readouterr().err.count(name) == 1


@pytest.mark.parametrize(
    ("line", "changed", "missing"),
    [
        ("cancel nosuch train-1 eval-2", ["train-1", "eval-2"], "nosuch"),
        ("cancel train-1 nosuch", ["train-1"], "nosuch"),
        ("cancel twin train-1", ["train-1"], "twin"),  # two of this name run
        ("delete train-0 nosuch eval-3", ["train-0", "eval-3"], "nosuch"),
        ("delete nosuch train-0", ["train-0"], "nosuch"),
        ("delete train-1 train-0", ["train-0"], "train-1"),  # it has not ended
        ("delete --force train-1 nosuch", ["train-1"], "nosuch"),
    ],
)
def test_the_valid_ones_of_several_are_changed(
    line: str, changed: list[str], missing: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.add("twin", AppState.RUNNING)
    engine.add("twin", AppState.RUNNING)
    assert main([*line.split(), "-o", "json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["app_id"] for row in rows if row["error"] is None] == changed
    assert [row["app_id"] for row in rows if row["error"] is not None] == [missing]
    assert (engine.deleted or engine.cancelled) == changed


@pytest.mark.parametrize("action", queue.ACTIONS)
def test_the_valid_ones_of_several_are_reordered(
    action: str, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed: list[tuple[str, str]] = []
    monkeypatch.setattr(queue, "change", lambda *call: changed.append(call))
    for name in ("one", "two"):
        engine.add(name, AppState.SUBMITTED)
    assert main(["queue", action, "one", "nosuch", "train-1", "two"]) == 1
    assert sorted(changed) == [("one-6", action), ("two-7", action)]
    assert "train-1 does not wait in the queue: it is RUNNING" in capsys.readouterr().err

    assert main(["queue", action, "one", "nosuch", "train-1", "-o", "json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    changes = {row["app_id"]: row["changed"] for row in rows}
    assert changes == {"one-6": True, "train-1": False, "nosuch": False}
    assert [row["app_id"] for row in rows if row["error"] is None] == ["one-6"]


def test_others_are_cancelled_and_deleted_after_an_error(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(call: str, chosen: str) -> None:
        real = getattr(engine, call)

        def one(app_id: str) -> None:
            if app_id == chosen:
                raise OwnershipError(f"{app_id} is not yours", hint="torchx list")
            real(app_id)

        monkeypatch.setattr(engine, call, one)

    fail("_cancel_existing", "eval-2")
    fail("delete", "eval-3")
    assert main(["cancel", "-s", "memory", "--all", "--yes", "-o", "json"]) == 77
    rows = json.loads(capsys.readouterr().out)
    assert [(row["app_id"], row["cancelled"]) for row in rows] == [("eval-2", False), ("train-1", True)]
    assert rows[0]["error"] == {
        "code": "not_owner", "message": "eval-2 is not yours", "hint": "torchx list", "exit_code": 77
    }  # fmt: skip
    assert (rows[0]["state"], rows[1]["error"]) == ("RUNNING", None)
    assert engine.cancelled == ["train-1"]
    assert main(["delete", "-s", "memory", "--state", "failed,succeeded", "-y", "--json"]) == 77
    rows = json.loads(capsys.readouterr().out)
    assert [(row["app_id"], row["deleted"]) for row in rows] == [("eval-3", False), ("train-0", True)]
    assert engine.deleted == ["train-0"]
    # in text, each error is printed; the error of a single application is the whole output
    engine.add("last", AppState.SUCCEEDED, "last-1")
    assert main(["delete", "eval-3", "last-1"]) == 77
    assert capsys.readouterr().err == "error: eval-3 is not yours\n  torchx list\nlast-1 is deleted\n"
    assert main(["delete", "eval-3", "--json"]) == 77
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "not_owner"


@pytest.mark.parametrize(
    ("line", "deleted"),
    [
        ("delete --all -s memory", ["eval-3", "train-0"]),
        ("delete --state failed", ["eval-3"]),
        ("delete --name train", ["train-0"]),
        ("delete train", ["train-0"]),
        ("delete --all --force -s memory", ["eval-3", "eval-2", "train-1", "train-0"]),
    ],
)
def test_delete_selects_ended_applications_of_the_caller(
    line: str, deleted: list[str], engine: Engine
) -> None:
    assert main([*line.split(), *confirmed(line)]) == 0
    assert engine.deleted == deleted


def test_wait_selects_running_applications_of_the_caller(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.jobs["train-1"].end(AppState.RUNNING)
    assert main(["wait", "--name", "train", "--timeout", "0"]) == 124
    assert capsys.readouterr().err == "train-1 is still RUNNING: timed out\n"
    assert main(["wait", "eval", "--timeout", "0"]) == 124
    assert capsys.readouterr().err == "eval-2 is still RUNNING: timed out\n"


def test_others_are_awaited_after_an_error(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = conditions.wait_for

    def wait_for(runner: Runner, handle: str, *rest: Any) -> conditions.Outcome:
        if handle.endswith("eval-3"):
            raise UnreachableError("memory does not answer")
        return real(runner, handle, *rest)

    monkeypatch.setattr(conditions, "wait_for", wait_for)
    line = ["wait", "memory://torchx/eval-3", "memory://torchx/train-0"]
    assert main([*line, "-o", "json"]) == 69
    rows = json.loads(capsys.readouterr().out)
    assert [row["state"] for row in rows] == ["UNKNOWN", "SUCCEEDED"]
    assert (rows[0]["error"]["code"], rows[1]["error"]) == ("engine_unreachable", None)
    assert main(line) == 69
    assert "error: memory does not answer\n" in capsys.readouterr().err
    assert main([*line, "--any", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["app_id"] == "train-0"
    assert main([*line[:2], "--json"]) == 69
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "engine_unreachable"


def test_several_running_ones_of_a_name_are_listed(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.add("train", AppState.RUNNING, "train-9")
    assert main(["cancel", "train"]) == 1
    assert capsys.readouterr().err.startswith(
        "error: `train` matches 2 applications: train-9 (RUNNING), train-1 (RUNNING)\n"
    )
    assert engine.cancelled == []


def test_equal_names_on_other_schedulers_are_listed(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.add("other", AppState.FAILED, "other-9")
    assert main(["status", "other"]) == 1
    assert capsys.readouterr().err == (
        "error: `other` matches 2 applications: other-9 (FAILED), other-0 (RUNNING)\n"
        "  the newest called other: other~0   the one before: other~1   all: torchx list --name other\n"
    )


@pytest.mark.parametrize("command", ["exec train true", "port train 80", "log -f train", "attach train"])
def test_commands_for_running_ones_choose_them(
    command: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[str] = []

    def query(runner: Runner, handle: str, **_: object) -> None:
        chosen.append(handle)

    monkeypatch.setattr(Runner, "outline", query)
    monkeypatch.setattr(Runner, "description", query)
    assert main(command.split()) == 1
    assert chosen == ["memory://torchx/train-1"]


def test_a_running_one_on_another_scheduler_is_found(engine: Engine) -> None:
    engine.add("other", AppState.FAILED)
    assert main(["cancel", "other"]) == 0
    assert engine.cancelled == []  # the one of the other scheduler was chosen


@pytest.mark.parametrize(("reply", "code", "affected"), [("y\n", 0, 2), ("n\n", 1, 0), ("", 1, 0)])
def test_a_terminal_confirms(
    reply: str,
    code: int,
    affected: int,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(selection, "is_terminal", lambda stream: True)
    monkeypatch.setattr("sys.stdin.readline", lambda: reply, raising=False)
    assert main(["cancel", "--all", "-s", "memory"]) == code
    assert len(engine.cancelled) == affected
    shown = capsys.readouterr().err
    assert shown.startswith(
        "APP      SCHEDULER  STATE\neval-2   memory     RUNNING\ntrain-1  memory     RUNNING\n"
    )
    assert "cancel 2 applications? [y/N]" in shown


def test_a_single_selected_application_is_confirmed_too(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selection, "is_terminal", lambda stream: True)
    monkeypatch.setattr("sys.stdin.readline", lambda: "n\n", raising=False)
    assert main(["cancel", "--name", "eval"]) == 1
    assert capsys.readouterr().err.endswith("cancel 1 application? [y/N]\nnothing was changed\n")
    assert engine.cancelled == []
    assert main(["cancel", "eval"]) == 0  # the application itself
    assert main(["delete", "--all", "--yes", "-s", "memory"]) == 0
    assert sorted(engine.deleted) == ["eval-2", "eval-3", "train-0"]


@pytest.mark.parametrize("command", ["cancel", "delete"])
@pytest.mark.parametrize(
    "flags", ["--all -s memory", "--state running,failed", "--name ev*", "--since 9999d"]
)
def test_a_selection_without_a_terminal_needs_yes(
    command: str, flags: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *flags.split()]) == 2
    shown = capsys.readouterr().err
    assert re.search(r"^eval-[23] +memory", shown, re.MULTILINE)
    assert f"error: confirm on a terminal to {command} " in shown
    assert shown.endswith("  to skip the confirmation: --yes\n")
    assert main([command, *flags.split(), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["matches"][0]) == ("not_confirmed", error["matches"][0])
    assert (engine.cancelled, engine.deleted) == ([], [])
    force = ["--force"] if command == "delete" else []
    assert main([command, *flags.split(), *force, "--yes"]) == 0
    assert engine.cancelled or engine.deleted


class SharedEngine(Engine):
    """An engine whose other applications may have been submitted from elsewhere."""

    shared_by = "all users of the engine"


def test_on_a_shared_engine_only_applications_from_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = Runner("torchx", {"memory": SharedEngine})
    monkeypatch.setattr(torchx.runner, "get_runner", lambda name: runner)
    monkeypatch.setattr(runner, "close", lambda: None)
    engine = runner._scheduler("memory")
    assert isinstance(engine, SharedEngine)
    engine.add("elsewhere", AppState.RUNNING)
    role = Role("r", "", entrypoint="true", resource=Resource(1, 0, 1))
    here = [runner.run(AppDef("here", [role]), "memory").rpartition("/")[2] for _ in range(2)]
    assert main(["wait", "--all", "--timeout", "0", "-o", "json"]) == 124
    assert [row["app_id"] for row in json.loads(capsys.readouterr().out)] == here[::-1]
    assert main(["wait", "--all", "--everywhere", "--timeout", "0", "-o", "json"]) == 124
    assert len(json.loads(capsys.readouterr().out)) == 3
    assert main(["cancel", "--all", "--yes"]) == 0
    assert engine.cancelled == here[::-1]
    expected = "note: 1 application submitted from elsewhere left out; to include: --everywhere\n"
    assert expected.removeprefix("note: ") in capsys.readouterr().err
    assert main(["delete", "--all", "--yes"]) == 0
    assert engine.deleted == here[::-1]
    assert main(["cancel", "--all", "--everywhere", "--yes"]) == 0
    assert engine.cancelled[2:] == ["elsewhere-0"]
    assert main(["cancel", "elsewhere-0"]) == 0  # a whole id


@pytest.fixture
def homes(monkeypatch: pytest.MonkeyPatch) -> tuple[SharedEngine, Engine]:
    """Returns an engine that is shared with another state home, and one that is not."""
    runner = Runner("torchx", {"memory": SharedEngine, "more": Engine})
    runner.default_scheduler = "more"
    monkeypatch.setattr(torchx.runner, "get_runner", lambda name: runner)
    monkeypatch.setattr(runner, "close", lambda: None)
    shared, local = runner._scheduler("memory"), runner._scheduler("more")
    assert isinstance(shared, SharedEngine)
    assert isinstance(local, Engine)
    return shared, local


@pytest.mark.parametrize("command", ["cancel", "delete", "delete --force", "queue hold", "exec -i", "port"])
@pytest.mark.parametrize("text", ["zwcolleague", "zwc", "zwcolleague~0"])
def test_a_name_never_changes_another_home(
    command: str, text: str, homes: tuple[SharedEngine, Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    shared, _ = homes
    for number, state in enumerate((AppState.RUNNING, AppState.SUCCEEDED, AppState.SUBMITTED)):
        shared.add("zwcolleague", state, f"zwcolleague-{number}")
        assert main([*command.split(), text, "80"][: None if command in ("exec -i", "port") else -1]) == 1
        expected = f"`{text}` matches no application of yours from this state home, but zwcolleague-"
        if "~" in text:
            expected = "there is no `zwcolleague~0`"
        assert expected in capsys.readouterr().err
    assert (shared.cancelled, shared.deleted) == ([], [])
    assert main(["delete", "--force", "zwcolleague-0"]) == 0
    assert main(["delete", "memory://torchx/zwcolleague-1"]) == 0
    assert shared.deleted == ["zwcolleague-0", "zwcolleague-1"]


def test_a_name_wins_over_a_prefix_of_another_scheduler(
    homes: tuple[SharedEngine, Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    shared, local = homes
    role = Role("r", "", entrypoint="true", resource=Resource(1, 0, 1))
    here = torchx.runner.get_runner("torchx").run(AppDef("zwhere", [role]), "memory").rpartition("/")[2]
    shared.jobs[here].end(AppState.SUCCEEDED)
    shared.add("zw", AppState.SUCCEEDED, "zw-elsewhere")
    local.add("zw", AppState.RUNNING, "zw-mine")
    assert main(["delete", "zw"]) == 1
    assert "zw-mine has not ended" in capsys.readouterr().err
    assert main(["cancel", "zw"]) == 0
    assert local.cancelled == ["zw-mine"]
    local.add("zwhere-b", AppState.RUNNING, "zwhere-b")
    shared.add("zwhere", AppState.RUNNING, "zwhere-elsewhere")
    assert main(["cancel", "zwhere"]) == 0  # the name of an ended application, not the start of another
    assert f"{here} has already ended" in capsys.readouterr().err
    assert (shared.cancelled, shared.deleted) == ([], [])


@pytest.mark.parametrize(
    ("app_id", "start", "whole"),
    [
        ("zwone-x7k2m9", "zw", "zwone-x7k2"),
        ("zwone-x7k2m9", "zwone-x7k", "zwone-x7k2m"),
        ("team-a:zwone-x7k2m9", "zwone-", "zwone-x7k2"),
        ("team-a:zwone-x7k2m9", "team-a:z", "team-a:zwone-x7k2"),
        ("578", "57", "578"),
        ("578_12345", "578_1234", "578_12345"),
    ],
)
def test_half_a_name_changes_nothing(
    app_id: str, start: str, whole: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.add("zwone", AppState.RUNNING, app_id)
    after = ["run", "-s", "memory", "--after", start, "utils.echo"]
    acting = ["exec", start, "ls"], ["attach", start], ["port", start, "80"], ["rerun", start], after
    for line in (["cancel", start], ["delete", "--force", start], *acting):
        assert main(line) == 1
        expected = (
            f"error: `{start}` is only the beginning of an application: {app_id} (RUNNING)\n  use a whole id"
        )
        assert capsys.readouterr().err.startswith(expected)
    assert (engine.cancelled, engine.deleted) == ([], [])
    assert main(["status", start]) == 0  # which changes nothing
    assert f"`{start}` means memory://torchx/{app_id}\n" in capsys.readouterr().err
    assert main(["cancel", whole]) == 0
    assert engine.cancelled == [app_id]


@pytest.mark.parametrize("command", ["status", "describe", "log", "events", "why", "wait", "top", "diff"])
def test_queries_report_a_completed_name(
    command: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.add("zwone", AppState.SUCCEEDED, "zwone-x7k2m9")
    others = ["eval-2"] if command == "diff" else []
    whole = [("zwone", 0), ("zwone-x7k2", 0), ("zwone-x7k2m9", 0)]
    for text, count in (("zw", 1), *whole, ("memory://torchx/zwone-x7k2m9", 0)):
        main([command, text, *others])
        err = capsys.readouterr().err
        assert err.count(f"`{text}` means memory://torchx/zwone-x7k2m9\n") == count


def test_last_without_its_sign(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "last"]) == 1
    assert "\n  did you mean `@last`?   all applications: torchx list" in capsys.readouterr().err


def test_the_list_of_submissions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "MOST", 4)
    handles = [f"slurm://torchx/{number}" for number in range(10)]
    for handle in handles:
        origins.remember(handle)
    assert origins.recall() == handles[-4:]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cancel", "error: no application given\n  a handle, an app id, a name or @last; --all, "),
        (
            "cancel tr*",
            "error: `tr*` is a pattern, not an application\n  by a pattern of names: --name 'tr*'",
        ),
        ("cancel -s memory", "error: -s memory selects nothing alone\n  with it: --all, "),
        ("wait --all x", "error: handles cannot be combined with --all"),
        ("cancel --al", "error: unknown flag `--al`\n  did you mean `--all`?"),
        ("delete --al --ye", "error: unknown flag `--al`\n  did you mean `--all`?"),
        ("prune --dry", "error: unknown flag `--dry`\n  did you mean `--dryrun`?"),
        ("list --all", "error: unknown flag `--all`\n"),
        ("delete --all x", "error: handles cannot be combined with --all"),
        ("wait --state runing", "error: --state takes states, got `runing`"),
    ],
)
def test_wrong_selections(
    line: str, message: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    assert capsys.readouterr().err.startswith(message)


def test_nothing_to_cancel_is_no_error(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cancel", "--name", "nothing"]) == 0
    assert capsys.readouterr().err == "none of your applications matches\n"
