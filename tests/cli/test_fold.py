"""Folding of equal lines: `torchx log --fold`."""

from __future__ import annotations

import io
import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program import start, torchx

from torchx.scheduling.logs import LogChunk, Stream
from torchx_cli.fold import fold as folding
from torchx_cli.fold.fold import WINDOW, Fold, Run
from torchx_cli.fold.printing import FoldPrinter, labels_of, print_json, print_runs, runs_of
from torchx_cli.terminal.streaming import LogPrinter


def chunk(
    replica: int, *lines: str, time: float = 1000.0, end: str = "\n", attempt: int = 1, role: str = "w"
) -> LogChunk:
    data = ("\n".join(lines) + end).encode()
    return LogChunk(role, replica, attempt, Stream.STDOUT, time, data)


class Colours(io.BytesIO):
    def isatty(self) -> bool:
        return True


def printed(*chunks: LogChunk, counts: Sequence[tuple[str, int]] = (("w", 8),), raw: io.BytesIO | None = None,
            **options: bool) -> str:  # fmt: skip
    raw = raw or io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="utf-8")
    fold = Fold()
    printer = LogPrinter(
        out, labels_of(counts), options.get("prefix", True), options.get("timestamps", False)
    )
    write = FoldPrinter(printer, fold, alone=options.get("alone", False)).write
    print_runs(runs_of(chunks, fold, live=False), write, printer)
    return raw.getvalue().decode()


def test_equal_lines_become_one_line_with_the_replicas() -> None:
    shown = printed(*(chunk(replica, "UserWarning: old", f"rank {replica}") for replica in range(3)))
    assert shown == (
        "w/0-2 │ (3x) UserWarning: old\nw/0   │ rank 0\nw/1   │ rank 1\nw/2   │ rank 2\n"
    )  # fmt: skip


def test_line_of_one_replica_is_printed_before_equal_lines() -> None:
    shown = printed(chunk(0, "start 0", "warning", "end 0"), chunk(1, "start 1", "warning", "end 1"))
    assert [line.split("│ ")[1] for line in shown.splitlines()] == [
        "start 0", "start 1", "(2x) warning", "end 0", "end 1"
    ]  # fmt: skip


def test_line_repeated_by_one_replica_is_not_folded() -> None:
    shown = printed(chunk(0, "a", "a", "b", "a"), chunk(1, "a", "b", "a"))
    assert [line.split("│ ")[1] for line in shown.splitlines()] == ["(2x) a", "a", "(2x) b", "(2x) a"]


def test_lines_are_folded_within_a_short_time_only() -> None:
    near, far = 1000 + WINDOW * 0.9, 1000 + WINDOW * 1.1
    assert printed(chunk(0, "x"), chunk(1, "x", time=near)).count("x") == 2  # one of them in (2x)
    assert printed(chunk(0, "x"), chunk(1, "x", time=far)).splitlines() == ["w/0   │ x", "w/1   │ x"]


def test_replicas_of_several_roles_are_named() -> None:
    chunks = [chunk(k, "hi", role=role) for role in ("ps", "train") for k in (0, 1, 3)]
    assert printed(*chunks, counts=[("ps", 4), ("train", 4)]) == "ps/0-1,3,train/0-1,3 │ (6x) hi\n"


def test_many_scattered_replicas_are_named_within_limits() -> None:
    shown = printed(*(chunk(k, "hi") for k in range(0, 200, 2)))
    label, line = shown.split(" │ ")
    assert (label, line) == ("w/0,2,4,6,8,10,12,14,16,18,20,22,24,26..", "(100x) hi\n")


def test_prefixes_of_torchrun_are_folded_and_named() -> None:
    shown = printed(chunk(0, *(f"[rank{rank}]: ValueError: no" for rank in (3, 0, 1))))
    assert shown == "w/0   │ (3x) [rank0-1,3]: ValueError: no\n".replace("w/0   ", "w/0   ")
    both = [chunk(k, *(f"[default{n}]:[rank{n + 2 * k}]: oh" for n in (0, 1))) for k in (0, 1)]
    assert printed(*both) == "w/0-1 │ (4x) [default0-1]:[rank0-3]: oh\n"
    assert printed(chunk(0, "[0]:x", "[1]:x", "[w1]:y", "[w0]:y")).splitlines() == [
        "w/0   │ (2x) [0-1]:x",
        "w/0   │ (2x) [w0-1]:y",
    ]


def test_other_brackets_and_line_without_prefix_are_not_ranks() -> None:
    lines = ["[epoch1]: x", "[epoch2]: x", "x", "[rank0]: x", "[rank01]: x", " [rank1]: x", "[rank1] x"]
    assert [line.split("│ ")[1] for line in printed(chunk(0, *lines)).splitlines()] == lines


def test_numbers_are_not_masked() -> None:
    assert printed(chunk(0, "loss 1.5"), chunk(1, "loss 1.6")).splitlines() == [
        "w/0   │ loss 1.5",
        "w/1   │ loss 1.6",
    ]


def test_unfinished_line_waits_for_its_end_or_attempt() -> None:
    parts = [chunk(0, "half", end=""), chunk(1, "half"), chunk(0, ""), chunk(0, "cut", end="")]
    again = chunk(0, "again", attempt=2)
    assert printed(*parts, again).splitlines() == [
        "w/0-1 │ (2x) half",
        "w/0   │ cut",
        "w/0   │ again",
    ]
    assert printed(chunk(0, "prompt? ", end=""), chunk(1, "prompt? ", end="")) == "w/0-1 │ (2x) prompt? \n"


def test_names_times_and_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [chunk(0, "x", "own"), chunk(1, "x")]
    assert printed(*chunks, prefix=False) == "(2x) x\nown\n"
    assert [line[10:11] for line in printed(*chunks, timestamps=True).splitlines()] == ["T", "T"]
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    shown = printed(*chunks, raw=Colours())
    assert shown.startswith("\x1b[2mw/0-1 │ \x1b[0m(2x) x\n\x1b[1;36mw/0   │ \x1b[0mown\n")
    alone = printed(chunk(0, "own"), raw=Colours(), counts=[("w", 1)], alone=True)
    assert alone.startswith("\x1b[36mw/0 │ \x1b[0mown\n")


def test_json_lists_the_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    fold = Fold()
    chunks = [chunk(1, "[rank1]: x"), chunk(0, "[rank0]: x"), chunk(0, "é\x1b", end="")]
    print_json(runs_of(chunks, fold, live=False), fold)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first.pop("time").startswith("1970-01-01T")
    assert first == {
        "replicas": [
            {"role": "w", "replica": 0, "attempt": 1, "prefix": "[rank0]:"},
            {"role": "w", "replica": 1, "attempt": 1, "prefix": "[rank1]:"},
        ],
        "stream": "stdout",
        "line": " x",
        "partial": False,
    }
    assert (second["line"], second["partial"], len(second["replicas"])) == ("é\x1b", True, 1)


def test_a_line_is_not_delayed_until_the_next_one() -> None:
    seen = threading.Event()

    def log() -> Iterator[LogChunk]:
        yield chunk(0, "a", "part", end="")
        yield chunk(1, "a")
        assert seen.wait(60)  # reading goes on when all of it has been printed
        yield chunk(0, "b")

    runs: list[Run] = []
    for run in runs_of(log(), Fold(), live=True):
        if run is not None:
            runs.append(run)
        elif len(runs) == 2:
            seen.set()
    assert [run.lines for run in runs] == [[b"a"], [b"part\n"], [b"b"]]


def test_an_error_while_following_is_raised() -> None:
    def log() -> Iterator[LogChunk]:
        yield chunk(0, "a")
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(runs_of(log(), Fold(), live=True))


LINES = st.sampled_from(["", "a", "b", "warning", "[x1]: y", *map(str, range(20))])
CHUNKS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.lists(LINES, min_size=1, max_size=8),
        st.sampled_from(["\n", "\n", ""]),
        st.sampled_from([0.0, 0.0, 0.1, 0.4]),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(CHUNKS, st.sampled_from([3, 1 << 15]), st.sampled_from([1, 32]))
def test_the_log_of_each_replica_can_be_unfolded(
    pieces: list[tuple[int, list[str], str, float]], most: int, many: int
) -> None:
    written: dict[int, bytes] = defaultdict(bytes)
    fold, now, runs = Fold(), 1000.0, list[Run]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folding, "MOST_LINES", most)
        patch.setattr(folding, "_MANY", many)
        for replica, lines, end, pause in pieces:
            now += pause
            piece = chunk(replica, *lines, end=end, time=now)
            written[replica] += piece.data
            runs += fold.add(piece, now)
            runs += fold.due(now)
        runs += fold.rest()
    shown: dict[int, bytes] = defaultdict(bytes)
    for mask, line in ((run.mask, line) for run in runs for line in run.lines):
        for source in fold.sources.of_mask(mask):
            shown[source.replica] += line.removesuffix(b"\n") if line.endswith(b"\n") else line + b"\n"
    assert {k: v for k, v in shown.items() if v} == {k: v for k, v in written.items() if v}


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "MOST_LINES", 100)
    fold = Fold()
    for number in range(400):
        waiting = sum(len(run.lines) for run in fold.add(chunk(number % 4, f"line {number}", ""), 0.0))
        assert waiting <= 101
        assert len(fold._lines) <= 2 * 101
        assert sum(len(groups.last) for groups in fold._groups.values()) <= 101
    assert max(len(reader.free) for reader in fold._readers) <= 2 * 101


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    done = torchx("run", "utils.sh", "--num_replicas", "3", "echo equal; echo own-${replica_id} >&2")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().rpartition("/")[2]


def test_the_command(app: str) -> None:
    for words in ([], ["-f"]):
        done = torchx("log", "--fold", app, *words)
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert "sh/0-2 │ (3x) equal" in lines
        assert len(lines) == 4
    first, *_ = torchx("log", app, "--fold", "-o", "json", "--streams", "stdout").stdout.splitlines()
    assert [replica["replica"] for replica in json.loads(first)["replicas"]] == [0, 1, 2]
    assert torchx("log", f"{app}/sh/1", "--fold", "--regex", "equal").stdout == "sh/1   │ equal\n"


def test_a_closed_pipe_ends_the_command_without_an_error(app: str) -> None:
    with start("log", "--fold", app) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_plain_output_is_unchanged(app: str) -> None:
    plain = torchx("log", app).stdout
    assert sorted(plain.splitlines()) == sorted(
        line for k in range(3) for line in (f"sh/{k} │ equal", f"sh/{k} │ own-{k}")
    )
