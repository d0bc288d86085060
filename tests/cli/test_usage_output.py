"""Tests of the measurements that commands show: status, describe, list, and the end of a run."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from jobhome import change, job

from torchx.errors import StateError
from torchx.jobs.paths import Home
from torchx.runner import Runner, get_runner
from torchx.scheduling.measurement import AppUsage, ReplicaUsage, Requested, Sample
from torchx.specs.status import AppState, AttemptStatus, ReplicaStatus, RoleStatus
from torchx_cli.commands.list import COLUMNS
from torchx_cli.main import main
from torchx_cli.terminal import attach
from torchx_cli.terminal.measurement_text import notable, request_note, usage_line
from torchx_cli.terminal.status_text import MAX_REPLICAS, replica_lines

GB, MB = 1 << 30, 1 << 20
MEASURED = {"span": 90.0, "cpu": 3.1, "memory": int(41.2 * GB), "gpu": 0.85, "gpu_memory": 30 * GB}


def measured_job(app_id: str = "train-1", **usage: Any) -> str:
    """Puts an ended job on record, with measurements of its replica in its events."""
    paths = job(Home(Path(os.environ["TORCHX_HOME"])), app_id)
    resource = {"cpu": 16, "gpu": 1, "memMB": 64 << 10, "capabilities": {}, "devices": {}, "tags": {}}
    role = {"name": "w", "image": "", "entrypoint": "true", "resource": resource}
    change(paths, app={"name": "job", "roles": [role], "metadata": {}})
    begin = json.loads(paths.record.read_text())["submitted_at"]
    events = [
        {"t": begin + 1, "e": "start", "r": 0, "a": 1, "pid": 99, "start": 1},
        {"t": begin + 91, "e": "exit", "r": 0, "a": 1, "code": 0, **({"usage": usage} if usage else {})},
        {"t": begin + 91, "e": "end", "state": "SUCCEEDED", "msg": "", "first": None},
    ]
    paths.events.write_text("".join(json.dumps(event) + "\n" for event in events))
    return app_id


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


LINE = "peak memory 41.2 GiB of 64 GiB, mean CPU 3.1 of 16, mean GPU 85%, peak GPU memory 30.0 GiB"


def test_status_and_describe_show_peaks_beside_the_request(capsys: pytest.CaptureFixture[str]) -> None:
    app_id = measured_job(**MEASURED)
    assert f"\nusage  {LINE}\n" in printed(capsys, "status", app_id)
    described = printed(capsys, "describe", app_id).splitlines()
    assert [line.split(maxsplit=1)[1] for line in described if line.startswith("usage ")] == [LINE]
    for command in ("status", "describe"):
        usage = json.loads(printed(capsys, command, app_id, "-o", "json"))["usage"]
        assert (usage["peak_memory"], usage["mean_cpu"], usage["source"]) == (int(41.2 * GB), 3.1, "/proc")
        assert usage["replicas"][0]["requested"] == {"cpu": 16, "memory": 64 * GB, "gpu": 1}


def test_of_many_replicas_the_notable_ones_are_listed() -> None:
    totals = [Sample(60.0, 60.0, cpu=3.0, memory=10 * GB, gpu=0.8) for _ in range(1000)]
    totals[37] = totals[37]._replace(memory=41 * GB)
    totals[512] = totals[512]._replace(cpu=0.4, gpu=0.1)
    totals[7] = totals[7]._replace(span=1.0, cpu=0.0)  # it has just started
    usage = AppUsage(tuple(ReplicaUsage("w", n, 1, total) for n, total in enumerate(totals)), "test")
    attempts = [AttemptStatus(1, AppState.RUNNING)]
    running = [ReplicaStatus(n, AppState.RUNNING, "w", "", attempts=attempts) for n in range(1000)]
    lines = replica_lines(RoleStatus("w", running), io.StringIO(), notable=notable(usage))
    assert [line.split(maxsplit=2) for line in lines] == [
        ["37", "RUNNING", "largest memory: 41.0 GiB (median 10.0 GiB)"],
        ["512", "RUNNING", "lowest CPU: 0.40 (median 3.0), lowest GPU: 10% (median 80%)"],
        ["998", "more", "are not shown (list them with -o json)"],
    ]
    alike = replica_lines(RoleStatus("w", running), io.StringIO())
    assert alike == ["  all 1000 are alike (list them with -o json)"]
    running[100:160] = [ReplicaStatus(n, AppState.FAILED, "w", "") for n in range(100, 160)]
    lines = replica_lines(RoleStatus("w", running), io.StringIO(), notable=notable(usage))
    assert len(lines) == MAX_REPLICAS + 1
    assert [line.split()[0] for line in lines[:2] + lines[-2:]] == ["37", "100", "512", "984"]
    few = replica_lines(RoleStatus("w", running[30:40]), io.StringIO(), notable=notable(usage))
    assert not any("largest" in line for line in few), "the line `usage` has it"


def test_without_measurements_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    app_id = measured_job()
    assert "usage" not in printed(capsys, "status", app_id)
    assert "usage" not in printed(capsys, "describe", app_id)
    assert json.loads(printed(capsys, "status", app_id, "-o", "json"))["usage"] is None


def test_damaged_measurements_hide_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    app_id = measured_job(span=90.0, cpu=-3.0)
    assert "SUCCEEDED" in (shown := printed(capsys, "status", app_id))
    assert "usage" not in shown


def test_an_engine_that_does_not_answer_hides_nothing_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Runner, handle: str) -> None:
        raise StateError("no answer")

    app_id = measured_job(**MEASURED)
    monkeypatch.setattr(Runner, "usage", fail)
    assert "SUCCEEDED" in printed(capsys, "status", app_id)


def test_chosen_columns(capsys: pytest.CaptureFixture[str]) -> None:
    measured_job(**MEASURED)
    measured_job("train-2")
    rows = printed(capsys, "list", "-s", "local_cwd", "--columns", "gpu,app,cpu,memory").splitlines()
    assert [row.split() for row in sorted(rows)] == [
        ["train-2"], ["85%", "train-1", "3.1", "41.2", "GiB"], ["GPU", "APP", "CPU", "MEMORY"],
    ]  # fmt: skip
    plain = printed(capsys, "list", "-s", "local_cwd").splitlines()[0].split()
    assert plain == ["APP", "NAME", "SCHEDULER", "STATE", "STARTED", "TIME", "EXIT"]


def test_means_of_a_short_job_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    measured_job(span=0.005, cpu=1.9, memory=300 * MB)
    row = printed(capsys, "list", "-s", "local_cwd", "--columns", "app,cpu,memory").splitlines()[1]
    assert row.split() == ["train-1", "300", "MiB"]


def test_json_of_a_list_has_the_chosen_columns_only(capsys: pytest.CaptureFixture[str]) -> None:
    measured_job(**MEASURED)

    def chosen(*flags: str) -> dict[str, Any]:
        (row,) = json.loads(printed(capsys, "list", "-s", "local_cwd", "-o", "json", *flags))
        return cast("dict[str, Any]", row)

    full = chosen()
    for name in COLUMNS:
        row = chosen("--columns", name)
        (key,) = row.keys() - {"handle"}
        assert row["handle"] == full["handle"]
        assert key == "usage" or row[key] == full[key]
    assert chosen("--columns", "app,cpu")["usage"]["mean_cpu"] == 3.1
    assert list(chosen("--columns", "state,exit")) == ["handle", "state", "exit_code"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--columns", "app,mem"], "unknown column `mem`"),
        (["--columns", "APP"], "unknown column `APP`"),
        (["-q", "--columns", "app"], "-q cannot be combined with --columns"),
    ],
)
def test_wrong_columns(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "-q" in words or "columns: app, name," in error


REQUESTED = Requested(4, 10 * GB, 1)


def usage(*replicas: Sample, requested: Requested = REQUESTED) -> AppUsage:
    each = (ReplicaUsage("w", n, 1, total, requested=requested) for n, total in enumerate(replicas))
    return AppUsage(tuple(each), "test")


def of(span: float = 400.0, **values: Any) -> Sample:
    return Sample(100.0, span, **values)


@pytest.mark.parametrize(
    ("found", "note"),
    [
        (usage(of(memory=5 * GB)), ""),
        (usage(of(memory=5 * GB), of(memory=9.8 * GB)), "w/1 used 9.8 GiB of 10 GiB memory: request more"),
        (
            usage(of(memory=GB // 2), of(memory=MB)),
            "at most 512 MiB of 10 GiB memory used",
        ),
        (usage(of(200.0, memory=GB // 2)), ""),
        (usage(of(memory=GB // 2), requested=Requested()), ""),
        (usage(of(memory=5 * GB, gpu=0.02), of(memory=5 * GB, gpu=0.04)), "its GPUs were idle (3% used)"),
        (usage(of(memory=5 * GB, gpu=0.02), of(memory=5 * GB, gpu=0.5)), ""),
        (usage(of(cpu=0.1)), ""),
        (None, ""),
    ],
)
def test_unsuitable_requests_are_noted(found: AppUsage | None, note: str) -> None:
    assert request_note(found) == note


def test_the_line_names_the_largest_replica_and_current_values() -> None:
    two = usage(of(memory=5 * GB, cpu=1.0), of(memory=9 * GB, cpu=2.0))
    assert usage_line(two) == "peak memory 9.0 GiB of 10 GiB (w/1), mean CPU 1.5 of 4"
    current = two._replace(current=("memory", "cpu"))
    assert usage_line(current) == "memory 9.0 GiB of 10 GiB (w/1), CPU 1.5 of 4"
    assert usage_line(usage(of(0.5, cpu=1.0))) == "", "the first seconds are not typical"
    assert usage_line(usage(of(output=3.0))) == usage_line(None) == ""


def test_an_attached_run_notes_an_unsuitable_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchx_cli.terminal.measurement_text.LONG_ENOUGH", 0.0)
    monkeypatch.setattr(attach, "QUICK", 0.0)
    script = "b = bytearray(b'x') * (300 << 20)"
    words = ["run", "-s", "local_cwd", "utils.sh", "--memMB", "100", sys.executable, "-c", script]
    assert main(words) == 0
    error = capsys.readouterr().err
    assert re.search(r"note: sh/0 used \d+ MiB of 100 MiB memory: request more", error)


def test_the_runner_returns_measurements() -> None:
    app_id = measured_job(**MEASURED)
    with get_runner() as runner:
        found = runner.usage(f"local_cwd://torchx/{app_id}")
        assert found is not None
        assert found.peak_memory == int(41.2 * GB)
        assert runner.usage("local_cwd://torchx/unknown") is None
