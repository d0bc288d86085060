"""Attached sweeps: the line that is replaced on a terminal, plain lines elsewhere, the best run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from program import answer, torchx
from sweeping import write_component
from terminal import PATIENCE, Terminal

from torchx.sweeps.records import Run
from torchx.sweeps.results import USUAL, Result, Value, best
from torchx_cli.terminal.output import columns

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n")
WAITS = "until test -e go; do sleep 0.05; done; "

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    write_component(tmp_path)
    yield
    for app in answer("list", "-o", "json"):
        torchx("delete", "--force", app["handle"])


def frames(terminal: Terminal) -> list[str]:
    """The texts that were written, without codes."""
    return [text for text in CODES.split(terminal.written) if text]


def until(terminal: Terminal, condition: Callable[[str], object]) -> str:
    """Waits for a text with a condition, and returns it."""
    end = time.monotonic() + PATIENCE
    while not (found := [text for text in frames(terminal) if condition(text)]):
        assert time.monotonic() < end, terminal.written
        assert terminal.process.poll() is None or terminal.read(0), terminal.written
        terminal.read(1.0)
    return found[-1]


@pytest.mark.parametrize("width", [40, 60, 200])
def test_a_terminal_shows_one_line_that_fits(width: int) -> None:
    line = r"1 of 4 done, running: lr=0\.1 se.*  \d+ s"
    script = f"test $SEED = 1 || {{ {WAITS} }}; echo loss=$LR"
    words = ("--each", "lr=0.1,0.2", "--each", "seed=1,2", "train.py:train", "--script", script)
    with Terminal("run", *words, width=width) as terminal:
        shown = until(terminal, lambda text: re.fullmatch(line, text))
        assert columns(shown) <= width
        terminal.resize(30, 24)
        assert (
            columns(until(terminal, lambda text: text.startswith("1 of 4 done") and columns(text) <= 30))
            <= 30
        )
        terminal.resize(width, 24)
        Path("go").touch()
        assert terminal.end() == 0
    texts = frames(terminal)
    assert not [text for text in texts if text.startswith("run 1 of 4")], "one line for all"
    joined = " ".join(texts)
    assert re.search(r"results: +torchx results (\\ +)?train-", joined)
    assert re.search(r"best: +run [12] +lr=0\.1", joined)


def test_wide_characters_fit() -> None:
    with Terminal("run", "--each", "name=日本語日本語日本語日本語", "--each", "n=1,2", "utils.sh",
                  f"{WAITS} : {{name}} {{n}}", width=40) as terminal:  # fmt: skip
        shown = until(terminal, lambda text: re.fullmatch(r"0 of 2 done, running: name=.*\.\.  \d+ s", text))
        assert columns(shown) <= 40
        Path("go").touch()
        assert terminal.end() == 0


def test_failures_are_counted_and_others_are_named() -> None:
    words = ("--each", "lr=1,2,3", "--at-once", "2", "train.py:train", "--script")
    with Terminal("run", *words, f"test $LR != 1.0 || exit 3; {WAITS}", width=100) as terminal:
        until(terminal, lambda text: re.fullmatch(
            r"1 of 3 done \(1 failed\), running: lr=2 and 1 more  \d+ s", text
        ))  # fmt: skip
        terminal.send("\x03")
        assert terminal.end() == 130
    assert "cancelling train-" in terminal.written


def test_ctrl_c_replaces_the_drawn_line() -> None:
    with Terminal("run", "--each", "lr=1,2", "train.py:train", "--script", WAITS, width=100) as terminal:
        until(terminal, lambda text: text.startswith("0 of 2 done, running: lr=1"))
        terminal.send("\x03")
        assert terminal.end() == 130
    assert "\r\x1b[2Kcancelling train-" in terminal.written
    texts = frames(terminal)
    assert "  2 runs: 2 cancelled" in texts
    assert any(text.strip().startswith("torchx rerun --failed train-") for text in texts)


def test_ctrl_c_ends_the_lines_of_a_status() -> None:
    handle = torchx("run", "-d", "utils.sh", WAITS).stdout.strip()
    with Terminal("status", "--watch", handle) as terminal:
        until(terminal, lambda text: "RUNNING" in text)
        terminal.send("\x03")
        assert terminal.end() == 130
    assert terminal.written.endswith("\n")


def test_an_attached_sweep_ends_as_it_was_run() -> None:
    script = "echo loss=$LR; test $LR != 3.0 || exit 3"
    done = torchx("run", "--each", "lr=1,2,3", "train.py:train", "--script", script)
    app_id = done.stdout.strip().rpartition("/")[2]
    lines = done.stderr.splitlines()
    attached, waited = torchx("attach", "@last"), torchx("wait", "@last")
    end = lines[lines.index("  3 runs: 2 succeeded, 1 failed") :]
    assert (done.returncode, attached.returncode, waited.returncode) == (3, 3, 3)
    assert waited.stderr.splitlines()[-len(end) :] == end
    assert attached.stderr.splitlines()[-len(end) :] == end
    assert end[-3:] == [
        f"  again:    torchx rerun --failed {app_id}",
        f"  results:  torchx results {app_id}",
        "  best:     run 1  lr=1  loss 1",
    ]
    again = torchx(*end[-3].split()[2:])
    assert "submitted again: 1 of 3 runs" in again.stderr
    assert again.returncode == 3


def test_without_a_terminal_each_end_is_a_line() -> None:
    done = torchx("run", "--each", "lr=0.5,0.25", "--each", "seed=0,1", "train.py:train")
    app_id = done.stdout.strip().rpartition("/")[2]
    lines = done.stderr.splitlines()
    assert [line.split()[:5] for line in lines[1:5]] == [
        ["run", str(number), "of", "4", "SUCCEEDED"] for number in (1, 2, 3, 4)
    ]
    assert lines[-2:] == [
        f"  results:  torchx results {app_id}",
        "  best:     run 3  lr=0.25 seed=0  loss 0.25",
    ]
    assert "\x1b" not in done.stderr


def test_equal_lines_of_runs_are_folded() -> None:
    script = "for n in $(seq 60); do echo same; sleep 0.05; done"
    words = ("--each", "lr=1,2", "--at-once", "2", "--fold", "train.py:train", "--script", script)
    done = torchx("run", *words)
    assert done.returncode == 0
    assert "(2x) same" in done.stderr


def test_the_log_of_each_run_is_complete() -> None:
    """A run is on record before its application is."""
    done = torchx(
        "run", "--each", "lr=1..6", "--at-once", "6", "--log", "train.py:train", "--script", "echo $LR"
    )
    lines = [line for line in done.stderr.splitlines() if "│" in line]
    assert sorted(lines) == [f"{number}/train/0 │ {number}.0" for number in range(1, 7)]


def test_the_first_failure_of_a_sweep_is_a_run() -> None:
    done = torchx("run", "-o", "json", "--each", "lr=1,2", "train.py:train", "--script", "test $LR = 1.0")
    sweep, first = json.loads(done.stdout)["handle"], json.loads(done.stdout)["first_failure"]
    assert first["handle"] == answer("status", f"{sweep}/2", "-o", "json")["handle"]
    assert "  run 2 failed first: exit 1\n" in done.stderr
    assert "run 2 failed first: exit 1\n" in torchx("status", sweep).stdout
    (waited,) = json.loads(torchx("wait", sweep, "-o", "json").stdout)
    assert waited["first_failure"] == first
    explained = answer("why", sweep, "-o", "json")["first_failure"]
    assert (explained["handle"], explained["run"], first["run"]) == (first["handle"], 2, 2)
    assert "failed first run 2\n" in torchx("why", sweep).stdout


def test_a_command_waits_for_its_own_runs() -> None:
    """It cancels them too; the others of the sweep continue."""
    words = ("train.py:train", "--script", f"test $SEED = 0 || {{ {WAITS} }}")
    first = torchx("run", "-d", "--at-once", "0", "--each", "lr=1", "--each", "seed=1", *words).stdout
    done = torchx("run", "--each", "lr=2", "--each", "seed=0", *words)
    assert (done.returncode, done.stdout) == (0, first)
    ends = [line for line in done.stderr.splitlines() if line.startswith("run ")]
    assert [line.split()[:4] for line in ends] == [["run", "2", "of", "2"]]
    assert [run["state"] for run in answer("results", "@last", "-o", "json")] == ["RUNNING", "SUCCEEDED"]
    with Terminal("run", "--each", "lr=3,4", "--each", "seed=1", *words, width=100) as terminal:
        until(terminal, lambda text: text.startswith("0 of 2 done, running: lr=3"))
        terminal.send("\x03")
        assert terminal.end() == 130
    states = [run["state"] for run in answer("results", "@last", "-o", "json")]
    assert states == ["RUNNING", "SUCCEEDED", "CANCELLED", "CANCELLED"]
    Path("go").touch()
    assert torchx("wait", "@last").returncode == 1


def test_the_replicas_of_runs_are_not_selected() -> None:
    assert torchx("run", "--each", "lr=1,2", "--show", "last", "train.py:train").stderr == (
        "error: --show cannot be combined with --each or --after\n"
    )


def result(number: int, state: str = "SUCCEEDED", **metrics: Value) -> Result:
    return Result(Run(number, state=state), metrics=metrics)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([result(1, loss=0.5), result(2, loss=0.25)], (2, "loss")),
        ([result(1, accuracy=0.5), result(2, accuracy=0.25)], (1, "accuracy")),
        ([result(1, val_loss=2, acc=1), result(2, val_loss=1, acc=0)], (2, "val_loss")),
        ([result(1, loss=float("nan")), result(2, loss=3.0), result(3, loss=4)], (2, "loss")),
        ([result(1, loss=0.5), result(2, "FAILED", loss=0.25), result(3, loss=1.0)], (1, "loss")),
        ([result(1, loss=0.5), result(2)], None),
        ([result(1, loss="high"), result(2, loss="low")], None),
        ([result(1, speed=1.0), result(2, speed=2.0)], None),
    ],
)  # fmt: skip
def test_the_best_run_has_a_comparable_metric(found: list[Result], expected: tuple[int, str] | None) -> None:
    chosen = best(found)
    assert (None if chosen is None else (chosen[0].run.number, chosen[1])) == expected


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("epoch 3 loss=0.25 lr=1", "0.25"), ("val_loss: 1.5e-3", "1.5e-3"), ("acc 0.5", "0.5"),
        ("{'loss': 7}", "7"),
        ("lossless=3", None), ("no loss", None),
    ],
)  # fmt: skip
def test_usual_forms_of_a_loss_are_found(line: str, value: str | None) -> None:
    found = [match[1] for metric in USUAL if (match := metric.pattern.search(line)) is not None]
    assert found == ([] if value is None else [value])
