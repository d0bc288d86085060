"""`torchx results`: parameters, states, metrics and measurements of runs."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import answer, torchx
from support import wait_until
from sweeping import write_component

from torchx.errors import UnreachableError
from torchx.runner import get_runner
from torchx.scheduling.base import AnyScheduler
from torchx.scheduling.logs import LogChunk, LogQuery
from torchx.sweeps import logs, results, view
from torchx.sweeps.records import Run

SCRIPT = "echo val_loss=9; echo val_loss=0.$SEED; echo total 4; test $SEED != 3; exit"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_component(tmp_path)
    return tmp_path


def test_results_of_a_sweep() -> None:
    words = ["--each", "seed=3,1,2", "--each", "lr=0.1"]
    torchx("run", *words, "train.py:train", "--script", SCRIPT)
    metrics = ["--metric", r"val_loss=([\d.]+)", "--metric", "sum:=total ([0-9]+)"]
    data = answer("results", "@last", *metrics, "--sort=-val_loss", "-o", "json")
    assert [(row["run"], row["parameters"], row["metrics"]) for row in data] == [
        (1, {"seed": 3, "lr": 0.1}, {"val_loss": 0.3, "sum": 4}),
        (3, {"seed": 2, "lr": 0.1}, {"val_loss": 0.2, "sum": 4}),
        (2, {"seed": 1, "lr": 0.1}, {"val_loss": 0.1, "sum": 4}),
    ]
    assert [(row["state"], row["exit_code"]) for row in data] == [
        ("FAILED", 1),
        ("SUCCEEDED", 0),
        ("SUCCEEDED", 0),
    ]
    assert all(row["duration"] == round(row["duration"], 6) for row in data)
    table = torchx("results", "@last", *metrics, "--sort", "seed", "-n", "2").stdout.splitlines()
    assert table[0].split()[:6] == ["RUN", "seed", "lr", "STATE", "val_loss", "sum"]
    assert [line.split()[:6] for line in table[1:]] == [
        ["2", "1", "0.1", "SUCCEEDED", "0.1", "4"],
        ["3", "2", "0.1", "SUCCEEDED", "0.2", "4"],
    ]
    rows = list(csv.DictReader(io.StringIO(torchx("results", "@last", *metrics, "-o", "csv").stdout)))
    assert [(row["run"], row["seed"], row["val_loss"]) for row in rows] == [
        ("1", "3", "0.3"),
        ("2", "1", "0.1"),
        ("3", "2", "0.2"),
    ]
    run = data[1]["handle"]
    assert answer("results", run, *metrics, "-o", "json")[0]["metrics"] == {"val_loss": 0.2, "sum": 4}


FORMS = (
    "loss=0.%s",
    "loss: 0.%s",
    "loss 0.%s",
    "loss = 0.%s",
    '{"epoch": 1, "loss": 0.%s}',
    "val_loss=9 loss=.%s",
)


@pytest.mark.parametrize("form", FORMS)
def test_a_name_finds_a_metric_in_logs(form: str) -> None:
    script = f"echo 'loss=7'; printf '{form}\\n' $SEED; echo 'val_loss=5 lossy 6 loss is low'"
    torchx("run", "--each", "seed=2,1,3", "train.py:train", "--lr", "1", "--script", script)
    rows = answer("results", "@last", "--metric", "loss", "-o", "json")
    assert [row["metrics"] for row in rows] == [{"loss": 0.2}, {"loss": 0.1}, {"loss": 0.3}]
    for column, run in (("loss", 2), ("-loss", 3), ("run", 1), ("-seed", 3)):
        (best,) = answer("results", "@last", f"--best={column}", "-o", "json")
        assert best["run"] == run, column


def test_runs_without_a_number_are_never_the_best() -> None:
    script = 'case $SEED in 1) echo loss: nan;; 2) echo loss: -inf;; 3) echo none;; esac; echo "acc: -1.5e-3"'
    torchx("run", "--each", "seed=1..3", "train.py:train", "--lr", "1", "--script", script)
    for best in ("loss", "-loss"):
        (row,) = answer("results", "@last", f"--best={best}", "-o", "json")
        assert row["run"] == 2
    (row,) = answer("results", "@last", "--best", "acc", "-o", "json")
    assert row["metrics"] == {"loss": "nan", "acc": -0.0015}, "JSON has no number for it"


def test_the_usual_metrics_need_no_flag() -> None:
    script = "echo epoch=1 loss=9 accuracy=$SEED; echo loss=0.$SEED"
    done = torchx("run", "--each", "seed=3,1,2", "train.py:train", "--lr", "1", "--script", script)
    assert "best:     run 2  seed=1  loss 0.1\n" in done.stderr
    expected = [{"loss": 0.3, "accuracy": 3}, {"loss": 0.1, "accuracy": 1}, {"loss": 0.2, "accuracy": 2}]
    assert [row["metrics"] for row in answer("results", "@last", "-o", "json")] == expected
    for flag, runs in (("--sort=loss", [2, 3, 1]), ("--sort=-loss", [1, 3, 2]), ("--best=loss", [2])):
        rows = answer("results", "@last", flag, "-o", "json")
        assert [row["run"] for row in rows] == runs
        assert rows[0]["metrics"] == expected[runs[0] - 1]
    assert answer("results", "@last", "--metric", "epoch", "-o", "json")[0]["metrics"] == {"epoch": 1}


def test_sorting_reads_a_metric_from_whole_logs() -> None:
    script = "echo loss=$SEED score=$SEED; seq 300"
    torchx("run", "--each", "seed=1,2", "train.py:train", "--lr", "1", "--script", script)
    assert answer("results", "@last", "-o", "json")[0]["metrics"] == {}, "it is not at the end"
    for name in ("loss", "score"):
        rows = answer("results", "@last", f"--sort=-{name}", "-o", "json")
        assert [row["metrics"] for row in rows] == [{name: 2}, {name: 1}]


def test_an_engine_that_does_not_answer_delays_results_once(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = torchx("run", "--each", "seed=1..5", "train.py:train", "--lr", "1").stdout.strip()
    queried: list[str] = []

    def log_of(engine: AnyScheduler, run: Run, query: LogQuery) -> Iterator[LogChunk]:
        queried.append(run.app_id)
        raise UnreachableError("no answer")

    monkeypatch.setattr(logs, "log_of", log_of)
    sweep = view.require(handle.rpartition("/")[2])
    with get_runner() as runner:
        found = list(results.results(sweep, runner.scheduler, usual=True))
    assert [result.run.state for result in found] == ["SUCCEEDED"] * 5
    assert len(queried) == 1


def test_only_runs_that_have_succeeded_are_the_best() -> None:
    words = ("--each", "seed=1,2", "train.py:train", "--lr", "1", "--script")
    torchx("run", *words, "echo loss=$SEED; test $SEED != 1")
    (row,) = answer("results", "@last", "--best", "loss", "-o", "json")
    assert row["run"] == 2
    torchx("run", *words, "exit 1")
    done = torchx("results", "@last", "--best", "loss")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no run has succeeded\n")


def test_a_run_has_its_number_and_parameters() -> None:
    torchx("run", "--each", "seed=4,5", "train.py:train", "--lr", "1")
    (row,) = answer("results", "@last/2", "-o", "json")
    assert (row["run"], row["parameters"], row["state"]) == (2, {"seed": 5}, "SUCCEEDED")


def test_a_single_application_has_its_measurements() -> None:
    handle = torchx("run", "-d", "utils.sh", "sleep 600").stdout.strip()
    wait_until(
        lambda: (answer("status", handle, "-o", "json")["usage"] or {}).get("peak_memory"), "a measurement"
    )
    assert torchx("cancel", handle).returncode == 0
    (row,) = answer("results", "@last", "-o", "json")
    assert row["peak_memory"] == answer("status", "@last", "-o", "json")["usage"]["peak_memory"] > 0
    assert row["cpu"] is not None


def test_a_metric_without_a_match_is_reported() -> None:
    torchx("run", "--each", "seed=1,2", "train.py:train", "--lr", "1", "--script", "echo loss=$SEED")
    for form in ("text", "json", "csv"):
        done = torchx("results", "@last", "--metric", "loss", "--metric", "acc=([0-9]+)", "-o", form)
        assert done.returncode == 0
        assert done.stderr == "note: --metric acc: no line of these logs matches\n"
    assert torchx("results", "@last", "--best=-seed").stderr == ""  # a parameter


def test_results_mask_secrets_and_reject_bad_flags(folder: Path) -> None:
    (folder / "own.py").write_text(
        "import torchx.specs as specs\n\n"
        "def train(api_token: str) -> specs.AppDef:\n"
        '    """Trains.\n\n    Args:\n        api_token: a token\n    """\n'
        '    return specs.AppDef("t", [specs.Role("t", "", entrypoint="true")])\n'
    )
    torchx("run", "--each", "api_token=s3cr3t-of-a-test", "own.py:train")
    for form in ("text", "csv", "json"):
        shown = torchx("results", "@last", "-o", form)
        assert (shown.returncode, "s3cr3t" in shown.stdout, "token" in shown.stdout) == (0, False, True)
    assert "s3cr3t" not in torchx("status", "@last").stdout
    for words, message in (
        (["--metric", "x y"], "--metric takes NAME or NAME=PATTERN"),
        (["--best", "nothing"], "--best: no run has `nothing`"),
        (["--best", "run", "--sort", "run"], "--best cannot be combined with --sort or -n"),
        (["--metric", "x=("], "is not a pattern"),
        (["--sort", "nothing"], "no run has `nothing`"),
    ):
        done = torchx("results", "@last", *words)
        assert done.returncode == 2
        assert message in done.stderr


def test_metrics_of_trackers(folder: Path) -> None:
    (folder / ".torchxconfig").write_text(
        f"[torchx:tracker]\nfsspec =\n[tracker:fsspec]\nconfig = {folder}/tracked\n"
    )
    code = "from torchx.tracker import app_run_from_env; app_run_from_env().add_metadata(loss=0.25)"
    torchx(
        "run",
        "--each",
        "seed=1",
        "--each",
        "lr=1",
        "train.py:train",
        "--script",
        f'{sys.executable} -c "{code}"',
    )
    assert answer("results", "@last", "-o", "json")[0]["metrics"] == {"loss": 0.25}
