"""The parts of what is printed: tables, times, masking, plain data, the printing of log chunks."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.errors import UsageError
from torchx.masking import add_values, forget_values
from torchx.runner import Runner
from torchx.schedulers.docker.scheduler import create_scheduler
from torchx.scheduling.base import ListAppResponse
from torchx.scheduling.logs import LogChunk, LogQuery, Stream
from torchx.specs.app import AppDef, Role
from torchx.specs.status import AppState, AppStatus, AttemptStatus, FirstFailure, ReplicaStatus, RoleStatus
from torchx_cli.commands.list import COLUMNS, DEFAULT, _row, _spare_columns
from torchx_cli.terminal.display import table
from torchx_cli.terminal.dryrun_output import print_dryrun
from torchx_cli.terminal.ending import failure_lines, last_line
from torchx_cli.terminal.masking import MASK, mask, mask_text, secret_values
from torchx_cli.terminal.output import bar_of, columns, error_line, filled, fit
from torchx_cli.terminal.plain import to_plain
from torchx_cli.terminal.status_text import replica_lines, status_lines
from torchx_cli.terminal.streaming import LogPrinter
from torchx_cli.terminal.times import ago, duration, parse_time

NOW = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)


def test_unknown_end_does_not_last_until_now() -> None:
    attempt = AttemptStatus(1, AppState.FAILED, started_at=NOW)
    replica = ReplicaStatus(0, AppState.FAILED, "worker", "node1", attempts=[attempt])
    status = AppStatus(AppState.FAILED, roles=[RoleStatus("worker", [replica])], started_at=NOW)
    lines = status_lines("slurm://torchx/7", status, [], io.StringIO())
    assert lines[0].split() == ["7", "FAILED", "slurm"]
    assert lines[2].split() == ["0", "FAILED", "on", "node1"]
    assert last_line("7", status, io.StringIO()) == "7 FAILED"
    never = AppStatus(AppState.CANCELLED, submitted_at=NOW, ended_at=NOW + timedelta(seconds=3))
    assert last_line("7", never, io.StringIO()) == "7 CANCELLED"
    row = ListAppResponse(
        app_id="7", app_handle="slurm://torchx/7", state=AppState.FAILED, name="a", started_at=NOW
    )
    assert dict(zip(DEFAULT, _row(row), strict=True))["time"] == ""


def test_a_table_is_aligned_by_what_is_seen() -> None:
    rows = [[("名前", "bad"), ("x", "")], [("long", ""), ("y", "")]]
    assert table(rows, ("A", "B"), io.StringIO()) == ["A     B", "名前  x", "long  y"]


def test_narrow_list_drops_names_outside_ids_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torchx_cli.terminal.display.width_of", lambda stream: 44)

    def heads(app_id: str) -> list[str]:
        listed = [
            ListAppResponse(app_id, AppState.FAILED, name="train", app_handle=f"s://x/{app_id}", msg="no")
        ]
        rows = [_row(app) for app in listed]
        return table(rows, [COLUMNS[name] for name in DEFAULT], io.StringIO(), spare=_spare_columns(listed))[
            0
        ].split()

    assert heads("4711") == ["APP", "NAME", "STATE", "STARTED", "EXIT"]
    assert heads("train-x7k2m9cdq1w") == ["APP", "STATE", "STARTED", "EXIT"]


def test_columns_are_dropped_for_an_unreadable_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchx_cli.terminal.display.width_of", lambda stream: 40)
    lines = table(
        [[("a" * 20, ""), ("b" * 10, ""), ("out of memory", "")]], ("A", "B", ""), io.StringIO(), spare=["B"]
    )
    assert lines == ["A", "a" * 20 + "  out of memory"]


@pytest.mark.parametrize("last", ["STATE", ""])
def test_a_long_id_is_truncated_rather_than_a_state(last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchx_cli.terminal.display.width_of", lambda stream: 60)
    rows = [["a" * 70, "local_docker", "CANCELLED"], ["b", "slurm", "RUNNING"]]
    if not last:
        rows = [["a" * 70, "CANCELLED", "no memory"], ["b", "RUNNING", ""]]
    heads = ("APP", "SCHEDULER" if last else "STATE", last)
    for spare in ([], ["SCHEDULER"]) if last else ([],):
        lines = table(rows, heads, io.StringIO(), spare)
        assert max(map(len, lines)) <= 60
        assert lines[1].startswith("a" * 30)
        assert "CANCELLED" in lines[1]


def test_a_message_leaves_room_for_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchx_cli.terminal.display.width_of", lambda stream: 60)
    app = ListAppResponse(
        "4711", AppState.FAILED, name="train", app_handle="slurm://x/4711", msg="time limit reached " * 3
    )
    heads = [COLUMNS[name] for name in DEFAULT]
    lines = table([_row(app)], heads, io.StringIO(), spare=_spare_columns([app]))
    assert lines[0].split()[:3] == ["APP", "NAME", "SCHEDULER"]
    assert lines[1].startswith("4711  train  slurm      FAILED ")


@given(st.text(max_size=30), st.integers(2, 20))
def test_what_is_cut_fits(text: str, width: int) -> None:
    assert columns(fit(text, width)) <= width


MIXED = st.text("ab 日本👩🚀👍🏽❤\ufe0fe\u0301\u200d", max_size=40)


@given(MIXED, st.integers(2, 20))
def test_a_cut_keeps_marks_and_joined_emoji_together(text: str, width: int) -> None:
    shown = fit(text, width)
    assert columns(shown) <= width
    if shown == text:
        return
    kept, rest = shown[:-2], text[len(shown) - 2 :]
    assert text.startswith(kept)
    assert not kept.endswith("\u200d")
    assert not kept or rest[:1] not in ("\u0301", "\ufe0f", "\u200d", "🏽")


@given(MIXED, st.integers(4, 20))
def test_wrapped_lines_fit_in_columns(text: str, width: int) -> None:
    lines = filled(text, width, "", "  ")
    assert "".join("".join(lines).split()) == "".join(text.split())
    for line in lines:
        assert columns(line) <= width or len(line.split()) == 1


def test_an_error_of_several_lines() -> None:
    assert (
        error_line("one\ntwo", "try this\nor that", io.StringIO())
        == "error: one\n  two\n  try this\n  or that"
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1, "0.0 s"),
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (3599.6, "1 h"),
        (86399, "23 h 59 min"),
    ],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.5, "just now"), (5, "5 s ago"), (7200, "2 h ago"), (90000, "1 d ago")]
)
def test_how_long_ago(seconds: float, said: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", NOW - timedelta(seconds=90)),
        ("90", NOW - timedelta(seconds=90)),
        ("5 ago", NOW - timedelta(seconds=5)),
        ("1.5h", NOW - timedelta(minutes=90)),
        ("1d2h", NOW - timedelta(hours=26)),
        ("2 days ago", NOW - timedelta(days=2)),
        ("10min ago", NOW - timedelta(minutes=10)),
        ("2026-04-30T10:00Z", NOW - timedelta(hours=26)),
        ("2026-04-30T12:00:00+02:00", NOW - timedelta(hours=26)),
    ],
)
def test_times_as_people_type_them(text: str, expected: datetime) -> None:
    assert parse_time("--since", text, NOW) == expected


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("today", "2026-05-01"),
        ("Yesterday", "2026-04-30"),
        ("monday", "2026-04-27"),
        ("friday", "2026-05-01"),
        ("last friday", "2026-04-24"),
        ("this week", "2026-04-27"),
        (" last  week", "2026-04-20"),
        ("this month", "2026-05-01"),
        ("last month", "2026-04-01"),
    ],
)
@pytest.mark.usefixtures("_in_berlin")
def test_named_days_begin_at_local_midnight(text: str, day: str) -> None:
    assert parse_time("--since", text, NOW).isoformat() == f"{day}T00:00:00+02:00"


@pytest.mark.usefixtures("_in_berlin")
def test_a_named_day_before_the_clocks_changed() -> None:
    monday = datetime(2026, 3, 30, 12, tzinfo=timezone.utc)
    assert parse_time("--since", "saturday", monday).isoformat() == "2026-03-28T00:00:00+01:00"


@pytest.fixture
def _in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("text", ["", "x", "5 parsecs", "2026-13-01", "9999999999d", "-5m", "last today"])
def test_an_invalid_time_lists_the_forms(text: str) -> None:
    with pytest.raises(UsageError, match="--since takes a time") as failed:
        parse_time("--since", text, NOW)
    assert failed.value.hint is not None
    for form in failed.value.hint.removeprefix("a time is ").replace(" or ", ", ").split(", "):
        parse_time("--since", form, NOW)


def test_secrets_in_every_place() -> None:
    app = AppDef(
        "a", [Role("r", "", env={"MY_SECRET": "s3cr3t-value", "API_KEY": "short", "N": "s3cr3t-value-2"})]
    )
    values = secret_values(app.roles)
    assert values == ["s3cr3t-value"]
    data = {
        "env": {"MY_SECRET": "s3cr3t-value", "API_KEY": "short", "TOKENIZERS_PARALLELISM": "false"},
        "args": ["run", "s3cr3t-value", "HF_TOKEN='a b'"],
        "container": [{"name": "DB_PASSWORD", "value": "x"}, {"name": "N", "value": "1"}],
    }
    add_values(values)
    shown = mask(data)
    forget_values()
    assert shown == {
        "env": {"MY_SECRET": MASK, "API_KEY": MASK, "TOKENIZERS_PARALLELISM": "false"},
        "args": ["run", MASK, f"HF_TOKEN={MASK}"],
        "container": [{"name": "DB_PASSWORD", "value": MASK}, {"name": "N", "value": "1"}],
    }
    assert (
        mask_text("export AWS_SECRET_ACCESS_KEY=abc; MAX=1") == f"export AWS_SECRET_ACCESS_KEY={MASK}; MAX=1"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("env=A:1;DB_PASSWORD:hunter2;N:2", f"env=A:1;DB_PASSWORD:{MASK};N:2"),
        ("  API_TOKEN: zzz\n  N: 1", f"  API_TOKEN: {MASK}\n  N: 1"),
        ("""-d '{"API_TOKEN": "a b", "N": 1}'""", f"""-d '{{"API_TOKEN": "{MASK}", "N": 1}}'"""),
        (f"API_TOKEN: '{MASK}'", f"API_TOKEN: '{MASK}'"),
        ("API_TOKEN:\n  N: 1", "API_TOKEN:\n  N: 1"),
    ],
)
def test_pairs_of_other_forms_are_masked(text: str, shown: str) -> None:
    assert mask_text(text) == shown


class Place(NamedTuple):
    env: dict[str, str]
    args: tuple[str, ...]


def test_what_is_masked_keeps_its_shape() -> None:
    shown = mask(Role("r", "img", metadata={"place": Place({"API_KEY": "x"}, ("MY_TOKEN=y",))}))
    assert shown == Role("r", "img", metadata={"place": Place({"API_KEY": MASK}, (f"MY_TOKEN={MASK}",))})
    assert isinstance(shown.metadata["place"], Place)


def test_dry_run_shows_no_secret_of_run_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "inherited")
    app = AppDef("a", [Role("r", "img", "env", env={"API_TOKEN": "zzz", "N": "1"})])
    cfg = {"copy_env": ["AWS_SECRET_*"], "env": {"db_password": "hunter2\nline"}}
    info = create_scheduler("torchx").submit_dryrun(app, cfg)
    print_dryrun(info, "text")
    shown = capsys.readouterr().out
    assert not [secret for secret in ("zzz", "inherited", "hunter2", "line") if secret in shown]
    assert f"  - db_password={MASK}\n" in shown
    assert "- N=1\n" in shown
    assert "API_TOKEN=zzz" in info.request.containers[0].body["Env"]  # what is sent has it


@pytest.mark.parametrize("replicas", [2, 40])
def test_the_line_of_a_running_replica_has_its_message(replicas: int) -> None:
    said = ["", "paused", *[""] * (replicas - 2)]
    attempts = [AttemptStatus(1, AppState.RUNNING, msg=msg) for msg in said]
    running = [ReplicaStatus(n, AppState.RUNNING, "w", "", attempts=[one]) for n, one in enumerate(attempts)]
    lines = replica_lines(RoleStatus("w", running), io.StringIO())
    assert [line.split() for line in lines if "paused" in line] == [["1", "RUNNING", "paused"]]


class Colour(Enum):
    RED = "red"


class Native:
    def to_dict(self) -> dict[str, object]:
        return {"when": NOW}


def test_plain_data() -> None:
    assert to_plain({Colour.RED: (b"\xff", Native())}) == {
        "red": ["\\xff", {"when": "2026-05-01T12:00:00+00:00"}]
    }


def printed(*chunks: LogChunk, **options: bool) -> bytes:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    printer = LogPrinter(out, ["w/10"], **options)
    for chunk in chunks:
        printer.write(chunk)
    printer.close()
    assert isinstance(out.buffer, io.BytesIO)
    return out.buffer.getvalue()


def chunk(data: bytes, replica: int = 0) -> LogChunk:
    return LogChunk("w", replica, 1, Stream.STDOUT, 0.0, data)


def test_chunks_get_a_name_before_each_line() -> None:
    result = printed(
        chunk(b"one\ntwo\n"), chunk(b"three", 10), chunk(b""), chunk(b"\n\n"), chunk(b"\xff\r\n")
    )
    assert result.decode("latin-1").encode("latin-1") == (
        "w/0  │ one\nw/0  │ two\nw/10 │ three\nw/0  │ \nw/0  │ \n".encode() + "w/0  │ ".encode() + b"\xff\r\n"
    )


def test_chunks_without_names_are_what_was_written() -> None:
    assert printed(chunk(b"a\r\n\xff\n"), chunk(b"last"), prefix=False) == b"a\r\n\xff\nlast"
    assert printed(chunk(b"a\nb\n"), prefix=False, timestamps=True) == b"- a\n- b\n"


def test_line_that_comes_in_pieces_stays_on_one_line() -> None:
    result = printed(chunk(b"a"), chunk(b"b"), chunk(b"c\nd"), chunk(b"e\n", 10), chunk(b"f"))
    assert result.decode() == "w/0  │ abc\nw/0  │ d\nw/10 │ e\nw/0  │ f\n"
    assert printed(chunk(b"a"), chunk(b"b\nc"), chunk(b"d"), prefix=False) == b"ab\ncd"


@given(st.lists(st.binary(min_size=1, max_size=20).map(lambda data: data.replace(b"\r", b"")), max_size=5))
def test_no_byte_is_lost(pieces: list[bytes]) -> None:
    whole = [piece if piece.endswith(b"\n") else piece + b"\n" for piece in pieces if piece]
    lines = b"".join(whole).split(b"\n")[:-1]
    prefix = "w/0  │ ".encode()
    assert printed(*(chunk(piece) for piece in whole)) == b"".join(prefix + line + b"\n" for line in lines)


def test_an_unexplained_failure_is_reported_by_its_message() -> None:
    status = AppStatus(
        AppState.FAILED, msg="its supervisor died", started_at=NOW, ended_at=NOW + timedelta(seconds=3)
    )
    assert last_line("app-1", status, io.StringIO()) == "app-1 FAILED after 3.0 s"
    with Runner("s", {}) as runner:
        lines = failure_lines(runner, "local_cwd://s/app-1", status, io.StringIO(), name="app-1")
    assert lines == ["  its supervisor died"]


class OneLog(Runner):
    """A runner whose one replica has written this."""

    def __init__(self, data: bytes) -> None:
        super().__init__("s", {})
        self._data = data

    def log_chunks(self, app_handle: str, query: LogQuery) -> Iterator[LogChunk]:
        return iter([chunk(self._data)])


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"\r1%\r2%\r3%\nRuntimeError: boom\n", ["3%", "RuntimeError: boom"]),
        (b"dos\r\n\r\nend\r\n", ["dos", "", "end"]),
        ("a\x0bb\x0cc\x85d\u2028e\n".encode(), ["abcde"]),
    ],
)
def test_last_lines_are_those_that_terminal_would_show(written: bytes, shown: list[str]) -> None:
    status = AppStatus(AppState.FAILED, first_failure=FirstFailure("w", 0, 1, exit_code=1))
    with OneLog(written) as runner:
        lines = failure_lines(runner, "local_cwd://s/app-1", status, io.StringIO(), name="app-1")
    bar = bar_of(io.StringIO())
    assert [line for line in lines if line.startswith(f"  {bar}")] == [f"  {bar} {line}" for line in shown]
