"""A command reads each file, and computes each thing, once."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local import ended, paths, submit
from local import sh as role
from support import wait_until

import torchx.config
from torchx.jobs import reconcile
from torchx.schedulers.local.scheduler import LocalScheduler
from torchx_cli.main import main

_opened: Counter[str] = Counter()


@functools.cache
def _add_hook() -> None:
    """Counts from now on: a hook cannot be removed, and a second one would count twice.

    A fixture of the module would add one each time that another module's test came in between.
    """

    def count(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], (str, Path)):
            _opened[Path(args[0]).name] += 1

    sys.addaudithook(count)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Counter[str]]:
    """The number of times that a file of each name was opened."""
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)  # a session sets its own
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reconcile, "_last", None)
    _add_hook()
    _opened.clear()
    yield _opened


def test_run_reads_configuration_and_makes_run_options_once(
    opened: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    load = torchx.config.load_config
    monkeypatch.setattr(
        torchx.config, "load_config", lambda *args, **kw: made.append("config") or load(*args, **kw)
    )
    real = LocalScheduler._run_opts
    monkeypatch.setattr(LocalScheduler, "_run_opts", lambda self: made.append(self.backend) or real(self))
    assert main(["run", "-s", "local_cwd", "utils.echo"]) == 0
    assert sorted(made) == ["config", "local_cwd"]


@pytest.mark.parametrize(
    "command",
    [
        "run --dryrun utils.echo --msg ACME_X=canary",
        "list",
        "status {app_id}",
        "describe {app_id}",
        "config show",
    ],
)
def test_command_that_masks_its_output_reads_configuration_once(
    command: str, opened: Counter[str], capsys: pytest.CaptureFixture[str]
) -> None:
    app_id = submit(role("echo ACME_X=canary; exit 1"))
    ended(app_id)
    Path(".torchxconfig").write_text("[torchx]\nmask = ACME_*\n[tracker:a]\nconfig = ACME_X:canary\n")
    opened.clear()
    assert main(command.format(app_id=app_id).split()) == 0
    assert opened[".torchxconfig"] == 1
    assert "canary" not in capsys.readouterr().out


def test_the_profile_of_a_run_applies_to_its_trackers(
    opened: Counter[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(".torchxconfig").write_text(
        "[profile:lab:torchx:tracker]\nfsspec =\n[profile:lab:tracker:fsspec]\nconfig = runs\n",
        encoding="utf-8",
    )
    assert main(["--profile", "lab", "run", "--dryrun", "-s", "local_cwd", "utils.echo"]) == 0
    assert "TORCHX_TRACKERS: fsspec" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["status", "log", "describe"])
@pytest.mark.parametrize("short", [True, False])
def test_a_query_reads_the_record_once(command: str, short: bool, opened: Counter[str]) -> None:
    app_id = submit(role("echo hi"))
    ended(app_id)
    reconcile._last = None
    wait_until(lambda: _is_old(paths(app_id).events), "its files have a time of their own")
    opened.clear()
    assert main([command, app_id if short else f"local_cwd://torchx/{app_id}"]) == 0
    assert (opened["job.json"], opened["events.jsonl"]) == (1, 1)


def _is_old(path: Path) -> bool:
    return path.stat().st_ctime < time.time() - reconcile.TIME_RESOLUTION
