"""torchrun's ranks: the one that failed first, its lines, and the list of all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from program import answer, torchx

from torchx.torchrun import failures_of, lines_of_ranks

REPORT = """\
Failures:
[1]:
  time      : 2026-11-22_12:16:22
  host      : localhost
  rank      : {base} (local_rank: 0)
  exitcode  : -15 (pid: 31395)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 31395
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_12:16:22
  host      : localhost
  rank      : {rank} (local_rank: 1)
  exitcode  : {code} (pid: 31398)
  error_file: {file}
  traceback : To enable traceback see the documentation
============================================================
"""
"""The shape of torchrun's report, which the tests with PyTorch check."""

COMPONENT = """
import torchx.specs as specs


def app(n: int = 1) -> specs.AppDef:
    role = specs.Role("w", "", entrypoint="sh", args=["trainer.sh", specs.macros.replica_id], num_replicas=n)
    return specs.AppDef("app", [role])
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.py").write_text(COMPONENT, encoding="utf-8")


def trainer(*lines: str, code: int = 1, rank: int = 1, file: str = "<N/A>", end: str = "exit 1") -> str:
    """Runs one replica that prints lines and a report; returns its name."""
    report = REPORT.format(base=rank - 1, rank=rank, code=code, file=file)
    Path("text").write_text("\n".join(lines) + "\n" + "noise\n" * 30 + report, encoding="utf-8")
    Path("trainer.sh").write_text(f"cat text; {end}\n", encoding="utf-8")
    done = torchx("run", "-s", "local_cwd", "c.py:app")
    return done.stdout.strip().rpartition("/")[2]


def test_lines_of_rank_that_failed_first_are_shown() -> None:
    name = trainer(
        "[0]:hello", "[1]:hello", "[1]:[rank1]: Traceback", "[1]:[rank1]: ValueError: bad shard", "[0]:step 2"
    )
    lines = torchx("status", name).stdout.splitlines()
    at = lines.index("  rank 1 (local rank 1 of w/0) failed first: exit 1")
    assert lines[at + 1 : at + 4] == ["  │ hello", "  │ Traceback", "  │ ValueError: bad shard"]
    assert lines[at + 4].endswith(f"torchx log {name}/w/0 --rank 1")


def test_record_is_the_advice_without_a_printed_error() -> None:
    name = trainer("[0]:hello", "[1]:step 1")
    lines = torchx("status", name).stdout.splitlines()
    assert "errors.record" in lines[lines.index("  │ step 1") + 1]
    assert "errors.record" in answer("why", name, "-o", "json")["cause"]["advice"]
    name = trainer("[0]:hello", "[1]:MemoryError")
    assert "errors.record" not in torchx("status", name).stdout
    assert answer("why", name, "-o", "json")["cause"]["advice"].startswith("the program could not allocate")


def test_rank_without_error_may_have_hung() -> None:
    name = trainer("[0]:step 2", "[1]:RuntimeError: Timed out waiting 1000ms for recv operation")
    remark = "rank 0 printed no error; it may be the one that hung"
    assert f"\n  {remark}\n" in torchx("status", name).stdout
    assert answer("why", name, "-o", "json")["cause"]["advice"] == remark
    name = trainer("[0]:RuntimeError: Connection closed", "[1]:RuntimeError: Timed out waiting 1000ms")
    assert "hung" not in torchx("status", name).stdout
    name = trainer("[0]:step 2", "[1]:RuntimeError: bad shard")
    assert "hung" not in torchx("status", name).stdout


def test_error_before_the_stack_of_an_abort_is_shown() -> None:
    text = (
        "[1]:step 2",
        "[1]:[rank1]: RuntimeError: boom",
        "[1]:terminate called without an active exception",
        "[1]:Fatal Python error: Aborted",
        "[1]:",
        *("[1]:Thread 0x00007f (most recent call first):", "[1]:  <no Python frame>") * 40,
        "[1]:Extension modules: numpy (total: 1)",
    )
    name = trainer(*text, code=-6)
    shown = [line[4:] for line in torchx("status", name).stdout.splitlines() if line.startswith("  │ ")]
    assert shown == ["step 2", "RuntimeError: boom", "terminate called without an active exception"]
    ranks = answer("status", "--ranks", name, "-o", "json")["ranks"]
    assert ranks[-1]["last_line"] == "RuntimeError: boom"


def test_the_stack_of_a_crashed_rank_is_shown() -> None:
    name = trainer(
        "[1]:step 1",
        "[1]:Fatal Python error: Segmentation fault",
        "[1]:",
        "[1]:Current thread 0x00007f (most recent call first):",
        '[1]:  File "train.py", line 7 in step',
        "[1]:bye",
        code=-11,
    )
    text = torchx("status", name).stdout
    assert "rank 1 (local rank 1 of w/0) failed first: killed by SIGSEGV" in text
    shown = [line[4:] for line in text.splitlines() if line.startswith("  │ ")]
    assert shown[0] == "Fatal Python error: Segmentation fault"
    assert shown[-1] == '  File "train.py", line 7 in step'


def test_the_stack_of_a_crashed_program_is_shown() -> None:
    Path("trainer.sh").write_text(
        "echo before; echo 'Fatal Python error: Aborted' >&2; echo >&2\n"
        "echo 'Current thread 0x1 (most recent call first):' >&2; echo '  File \"a.py\", line 1 in f' >&2\n"
        "echo; echo after; kill -ABRT $$\n",
        encoding="utf-8",
    )
    name = torchx("run", "-s", "local_cwd", "c.py:app").stdout.strip().rpartition("/")[2]
    shown = [line[4:] for line in torchx("status", name).stdout.splitlines() if line.startswith("  │ ")]
    assert shown == [
        "Fatal Python error: Aborted",
        "Current thread 0x1 (most recent call first):",
        '  File "a.py", line 1 in f',
    ]


def test_json_has_rank_and_cause_of_first_failure() -> None:
    name = trainer("[0]:hello", "[1]:[rank1]: ValueError: bad shard")
    answers = [answer(command, name, "-o", "json") for command in ("status", "describe", "why")]
    (waited,) = json.loads(torchx("wait", name, "-o", "json").stdout)
    for data in (*answers, waited):
        first = data["first_failure"]
        assert (first["exit_code"], first["rank"], first["msg"]) == (1, 1, "ValueError: bad shard")
        assert first.get("cause", "exception") == "exception"


def test_oldest_error_file_of_all_replicas_names_first_rank() -> None:
    Path("trainer.sh").write_text(
        'number=$1; folder="$PET_LOG_DIR/run_$1/attempt_0/1"; mkdir -p "$folder"; file="$folder/error.json"\n'
        'report() { sed "s|FILE|$file|; s|RANK|$((2 * $number + 1))|" report; }\n'
        'echo "[$((2 * $1 + 1))]:lines of node $1"\n'
        'if [ "$1" = 1 ]; then\n'
        "  trap 'exit 1' TERM\n"
        '  printf \'{"message": {"message": "ValueError: the cause"}}\' > "$file"; report; touch ../wrote\n'
        "else\n"
        "  while ! test -e ../wrote; do sleep 0.02; done\n"
        '  printf \'{"message": {"message": "RuntimeError: closed by peer"}}\' > "$file"\n'
        "fi\n"
        '[ "$1" = 0 ] && { report; exit 1; }\n'
        "while :; do sleep 0.02; done\n".replace("../wrote", "wrote"),
        encoding="utf-8",
    )
    text = (
        REPORT.replace("{file}", "FILE")
        .replace("{rank}", "RANK")
        .replace("{base}", "0")
        .replace("{code}", "1")
    )
    Path("report").write_text(text, encoding="utf-8")
    name = torchx("run", "-s", "local_cwd", "c.py:app", "--n", "2").stdout.strip().rpartition("/")[2]
    lines = torchx("status", name).stdout.splitlines()
    assert any("w/0 failed first: exit 1" in line for line in lines)
    at = lines.index("  rank 3 (local rank 1 of w/1) failed first: exit 1")
    assert lines[at + 1] == "  │ ValueError: the cause"


def test_error_file_of_earlier_attempt_is_no_cause() -> None:
    Path("trainer.sh").write_text(
        'folder="$PET_LOG_DIR/old/attempt_0/1"; mkdir -p "$folder"; echo "{}" > "$folder/error.json"\n'
        'touch -d "2 days ago" "$folder/error.json"; cat text; exit 1\n',
        encoding="utf-8",
    )
    Path("text").write_text("[5]:the cause\n" + REPORT.format(base=4, rank=5, code=3, file="<N/A>"))
    name = torchx("run", "-s", "local_cwd", "c.py:app").stdout.strip().rpartition("/")[2]
    text = torchx("status", name).stdout
    assert "rank 5 (local rank 1 of w/0) failed first: exit 3\n  │ the cause\n" in text


def test_log_prints_the_lines_of_ranks() -> None:
    name = trainer(
        "[0]:a", "[1]:b", "[11]:c", "[2]:Loss 3", "[1]:[rank1]: d", "[epoch 1]: e", "[w2]:f", "[1]:"
    )
    assert torchx("log", "--no-prefix", "--rank", "1", name).stdout.splitlines() == [
        "[1]:b",
        "[1]:[rank1]: d",
    ]
    assert torchx("log", "--no-prefix", "--rank", "0,2-3", name).stdout.splitlines() == [
        "[0]:a",
        "[2]:Loss 3",
        "[w2]:f",
    ]
    done = torchx("log", "--no-prefix", "--rank", "2", "--regex", "(?i)^.2.:loss", "-n", "1", name)
    assert done.stdout == "[2]:Loss 3\n"
    absent = torchx("log", "--rank", "7", name)
    assert (absent.returncode, absent.stdout) == (0, "")
    assert "no line has the prefix of rank 7; " in absent.stderr
    assert "; for replicas: torchx log " in absent.stderr
    assert "/w/7\n" in absent.stderr
    for wrong in ("x", "3-1", "1,,2", "0-99999999"):
        refused = torchx("log", "--rank", wrong, name)
        assert (refused.returncode, "in --rank is not a rank" in refused.stderr) == (2, True), wrong


def test_status_lists_the_ranks() -> None:
    name = trainer("[0]:a", "[1]:b", "[1]:last", "[3]:c")
    text = torchx("status", "--ranks", name).stdout
    assert re.search(r"^1 +w/0 +exit 1 +last$", text, re.MULTILINE)
    assert re.search(r"^0 +w/0 +SIGTERM +a$", text, re.MULTILINE)
    ranks = answer("status", "--ranks", name, "-o", "json")["ranks"]
    assert [each["rank"] for each in ranks] == [0, 1, 3]
    assert ranks[1]["exit_code"] == 1
    assert ranks[1]["local_rank"] == 1
    assert "ranks" not in json.loads(torchx("status", name, "-o", "json").stdout)
    refused = torchx("status", "--ranks", "--watch", name)
    assert refused.returncode == 2


def test_a_missing_interpreter_is_named(tmp_path: Path) -> None:
    script = tmp_path / "run"
    for first, cause in (
        ("#!/no/such/python\n", "needs the interpreter /no/such/python"),
        ("#!/bin/sh\r\n", "Windows"),
    ):
        script.write_bytes(first.encode() + b"echo 1\n")
        script.chmod(0o755)
        Path("d.py").write_text(COMPONENT.replace('"sh"', repr(str(script))), encoding="utf-8")
        refused = torchx("run", "-s", "local_cwd", "d.py:app")
        assert refused.returncode == 2
        assert cause in refused.stderr
        Path("trainer.sh").write_text(f"{script}\n", encoding="utf-8")
        name = torchx("run", "-s", "local_cwd", "c.py:app").stdout.strip().rpartition("/")[2]
        assert f"  {script} {cause}" in torchx("status", name).stdout.replace("has line ends of ", "")


@pytest.mark.parametrize(
    "regex", [None, "", "b$", "^", "(?x) a # comment", "(?s).", "(?P<n>a)(?P=n)", "(?i)A|B"]
)
def test_pattern_within_lines_of_rank_means_same(regex: str | None) -> None:
    texts = ["[3]:ab", "[3]:", "[3]:aa", "[2]:ab", "b", "[3]:[rank4]: ab", "[0]:[rank3]: ab"]
    both = re.compile(lines_of_ranks([3], ["w"], regex))
    alone, other = re.compile(lines_of_ranks([3], ["w"])), re.compile(regex or "")
    assert [t for t in texts if both.search(t)] == [t for t in texts if alone.search(t) and other.search(t)]


def test_reports_that_are_no_reports_are_ignored() -> None:
    assert failures_of([]) == []
    assert failures_of(["Root Cause of the universe", "[0]:", "  rank : x", "  exitcode  : y"]) == []
    huge = ["Root Cause (first", "[0]:", "  rank      : 1 (local_rank: 1)", "  exitcode  : " + "9" * 5000]
    assert failures_of(huge) == []
    assert failures_of([*huge[:3], "  exitcode  : -64 (pid: 1)"])[0].signal == "SIGRTMAX"
