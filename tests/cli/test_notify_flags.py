"""`torchx run --notify`: flags, configuration, and what is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hooks import Hooks, hooks_at
from support import wait_until

from torchx.runner import get_runner
from torchx_cli.main import main

RUN = ["run", "-s", "local_cwd", "-d"]


@pytest.mark.parametrize("target", ["slack", "cmd:no-such-program-x"])
def test_a_typo_in_a_target_is_shown(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--notify", target, "utils.echo"]) == 2
    assert target in capsys.readouterr().err


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    with hooks_at() as hooks:
        yield hooks


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".torchxconfig"


def run(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """Runs an application to its end, and returns its handle."""
    assert main([*RUN, *flags, "utils.echo", "--msg", "hi"]) == 0
    handle = capsys.readouterr().out.strip()
    with get_runner("torchx") as runner:
        runner.wait(handle)
    return handle


def kinds(handle: str) -> list[tuple[str, str]]:
    """Returns the planned targets and kinds."""
    with get_runner("torchx") as runner:
        folder = runner._notifications_folder(handle)
    if not folder.exists():
        return []
    plan = json.loads((folder / "plan.json").read_text())
    return [(target, ",".join(plan["on"])) for target in plan["targets"]]


def test_a_target_is_masked_in_the_recorded_command_line(
    hooks: Hooks, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = run(capsys, "--notify", hooks.url, "--notify-on", "end")
    assert hooks.wait_for(1)[0][1]["handle"] == handle
    assert main(["describe", handle]) == 0
    shown = capsys.readouterr().out
    assert "secret-part" not in shown
    assert kinds(handle) == [(hooks.url, "end")]


def test_status_as_json_has_each_notification(hooks: Hooks, capsys: pytest.CaptureFixture[str]) -> None:
    handle = run(capsys, "--notify", hooks.url)

    def deliveries() -> list[dict[str, object]]:
        assert main(["status", handle, "-o", "json"]) == 0
        found: list[dict[str, object]] = json.loads(capsys.readouterr().out)["notifications"]
        return found

    (sent,) = wait_until(
        lambda: d if (d := deliveries())[0]["state"] == "delivered" else None, "the delivery"
    )
    assert sent.pop("at")
    target = f"http://127.0.0.1:{hooks.port}"
    assert sent == {"target": target, "kind": "end", "state": "delivered", "tries": 1, "message": ""}


def test_a_failed_delivery_ends_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-s", "local_cwd", "--notify", "cmd:false", "utils.echo"]) == 0
    handle, report = capsys.readouterr()
    line = next(line for line in report.splitlines() if "delivered: cmd:false: " in line)
    assert main(["wait", handle.strip()]) == 0
    assert line in capsys.readouterr().err.splitlines()
    assert main(["run", "-s", "local_cwd", "--notify", "cmd:true", "utils.echo"]) == 0
    assert "delivered" not in capsys.readouterr().err


def test_the_configuration_has_defaults(
    hooks: Hooks, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write_text(f"[cli:run]\nnotify =\n  {hooks.url}\n  cmd:true\nnotify_on = failure\n")
    assert kinds(run(capsys)) == [(hooks.url, "failure"), ("cmd:true", "failure")]
    assert kinds(run(capsys, "--notify", "cmd:true", "--notify-on", "end,failure")) == [
        ("cmd:true", "end,failure")
    ]
    assert kinds(run(capsys, "--notify", "none")) == []
    assert main(["config", "show"]) == 0
    assert "secret-part" not in capsys.readouterr().out
    again = run(capsys, "--notify", "none")
    assert main(["rerun", "-d", again]) == 0
    assert len(kinds(capsys.readouterr().out.strip())) == 2
    assert main(["rerun", "-d", "--notify", "none", again]) == 0
    assert kinds(capsys.readouterr().out.strip()) == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--notify", "ftp://x/secret-part"], "notifications are sent to an http or https URL"),
        (["--notify", "cmd:"], "the command of a notification is empty"),
        (["--notify", "cmd:true", "--notify-on", "sometimes"], "notifications cannot be sent on `sometimes`"),
        (["--notify-on", "end"], "--notify-on requires --notify"),
    ],
)
@pytest.mark.parametrize("dryrun", [False, True])
def test_errors_are_found_before_the_submission(
    flags: list[str], message: str, dryrun: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RUN, *flags, *(["--dryrun"] if dryrun else []), "utils.echo"]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "secret-part" not in err
    assert main(["list", "-q"]) == 0
    assert capsys.readouterr().out == ""


def test_errors_of_the_configuration_name_its_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project.write_text("[cli:run]\nnotify = ftp://x/secret-part\n")
    assert main([*RUN, "utils.echo"]) == 2
    err = capsys.readouterr().err
    assert "(from .torchxconfig line 2 [cli:run])" in err
    assert "secret-part" not in err
    project.write_text("[cli:run]\nnotify = cmd:true\nnotify_on = sometimes\n")
    assert main([*RUN, "utils.echo"]) == 2
    assert "on `sometimes` (from .torchxconfig line 3 [cli:run])" in capsys.readouterr().err
