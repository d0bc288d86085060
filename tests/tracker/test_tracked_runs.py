"""Runs that report to their trackers: in a job, outside of one, and on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from torchx.errors import UsageError
from torchx.runner import get_runner
from torchx.specs import AppDef, Resource, Role
from torchx.tracker import AppRun, app_run_from_env
from torchx.tracker.api import UNDEFINED
from torchx_cli.main import main

PROGRAM = """
import sys
from torchx.tracker import app_run_from_env
run = app_run_from_env()
run.add_metadata(accuracy=0.5)
run.add_metadata(accuracy=0.9, names=["a"])
run.add_artifact("model", "/tmp/model.pt", {"epoch": 3})
run.add_source("s3://bucket/data", "images")
assert [source.parent.id for source in run.sources()] == ["exp-1", "s3://bucket/data"], run.sources()
print(run.job_id())
"""


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that keeps the reports of its runs in a folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / ".torchxconfig").write_text(
        f"[torchx:tracker]\nfsspec =\n\n[tracker:fsspec]\nconfig = {tmp_path / 'runs'}\n"
    )
    return tmp_path


def tracked_job(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PYTHONPATH", ":".join(p for p in sys.path if p))
    role = Role("main", "", entrypoint=sys.executable, args=["-c", PROGRAM], resource=Resource(1, 0, 64))
    with get_runner() as runner:
        handle = runner.run(AppDef("tracked", [role]), "local_cwd", parent_run_id="exp-1")
        status = runner.wait(handle)
        assert status is not None
        status.raise_for_status()
        assert list(runner.log_lines(handle, "main")) == [handle + "\n"]
    return handle


def out(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["tracker", *words]) == 0
    return capsys.readouterr().out


def test_the_data_of_a_job_is_shown(
    configured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = tracked_job(monkeypatch)
    app_id = handle.rpartition("/")[2]
    assert out(capsys, "jobs") == out(capsys, "list", "jobs") == f"{handle}\n"
    assert out(capsys, "list", "jobs", "--parent-run-id", "exp-1") == f"{handle}\n"
    assert out(capsys, "jobs", "--parent-run-id", "exp-2") == ""
    assert out(capsys, "metadata", app_id).split() == ["NAME", "VALUE", "accuracy", "0.9", "names", '["a"]']
    assert json.loads(out(capsys, "metadata", handle, "--json")) == {"accuracy": 0.9, "names": ["a"]}
    assert json.loads(out(capsys, "artifacts", "@last", "-o", "json")) == [
        {"name": "model", "path": "/tmp/model.pt", "metadata": {"epoch": 3}}
    ]
    assert out(capsys, "list", "artifacts", "--artifact", "none", handle) == ""
    steps = json.loads(out(capsys, "lineage", handle, "--json"))
    assert {(s["source"], s["artifact"]) for s in steps} == {("exp-1", None), ("s3://bucket/data", "images")}
    assert "s3://bucket/data  (images)" in out(capsys, "lineage", handle)
    for source in ("exp-1", "s3://bucket/data"):  # known only as what something was made from
        assert handle in out(capsys, "lineage", source).splitlines()[1]


def test_run_that_trackers_do_not_know_is_error(configured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tracker", "metadata", "nosuch"]) == 2
    assert capsys.readouterr().err.startswith("error: no tracked run `nosuch`\n")


def test_without_a_tracker_the_way_to_one_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["tracker", "jobs"]) == 2
    assert "[torchx:tracker]" in capsys.readouterr().err


def test_outside_a_job_nothing_is_kept_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHX_JOB_ID", raising=False)
    monkeypatch.setenv("TORCHX_TRACKERS", "nosuch")
    run = app_run_from_env()
    run.add_metadata(a=1)
    run.add_artifact("a", "b")
    run.add_source("c")
    assert (run, list(run.sources()), list(run.children())) == (AppRun(UNDEFINED), [], [])


def test_a_tracker_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_JOB_ID", "local_cwd://torchx/a")
    monkeypatch.setenv("TORCHX_TRACKERS", "fspec")
    with pytest.raises(UsageError, match="unknown tracker `fspec`") as caught:
        app_run_from_env()
    assert "did you mean `fsspec`?" in str(caught.value.hint)


def test_a_tracker_may_be_named_by_what_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "acme_tracking.py").write_text("from torchx.tracker.backend.fsspec import create as make\n")
    (tmp_path / ".torchxconfig").write_text(
        f"[torchx:tracker]\nmlf = acme_tracking:make\n\n[tracker:mlf]\nconfig = {tmp_path / 'runs'}\n"
    )
    handle = tracked_job(monkeypatch)
    assert out(capsys, "jobs") == f"{handle}\n"
    monkeypatch.setenv("TORCHX_JOB_ID", "local_cwd://torchx/a")
    monkeypatch.setenv("TORCHX_TRACKERS", "acme_tracking:gone")
    with pytest.raises(UsageError, match="cannot be loaded from acme_tracking:gone: AttributeError"):
        app_run_from_env()


def test_a_plugin_is_a_tracker_like_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchx.plugins import registry

    folder = tmp_path / "torchx_plugins" / "tracker"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(
        "from torchx.plugins import register\n"
        "from torchx.tracker.backend.fsspec import create\n\n\n"
        "@register.tracker()\ndef mine(config):\n    return create(config)\n\n\n"
        "@register.tracker()\ndef broken(config):\n    raise ValueError('no disk')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TORCHX_JOB_ID", "local_cwd://torchx/a")
    monkeypatch.setenv("TORCHX_TRACKERS", "mine")
    monkeypatch.setenv("TORCHX_TRACKER_MINE_CONFIG", str(tmp_path))
    registry().clear()
    try:
        app_run_from_env().add_metadata(a=1)
        assert list(tmp_path.glob("*/metadata/*"))
        monkeypatch.setenv("TORCHX_TRACKERS", "broken")
        with pytest.raises(UsageError, match="`broken` cannot be created: ValueError: no disk"):
            app_run_from_env()
    finally:
        registry().clear()
        for name in [n for n in sys.modules if n.startswith("torchx_plugins")]:
            del sys.modules[name]
