"""Stacks as data and as text: kinds of processes, groups, names, JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torchx.scheduling.stacks import CHILD, LAUNCHER, MAIN, combine, parse_stacks
from torchx.scheduling.stacks_text import as_text


def thread(name: str = "MainThread", *functions: str, wait: str = "", gil: bool = False) -> dict[str, Any]:
    frames = [[f, f"/src/{f}.py", n + 1, f"{f}.py"] for n, f in enumerate(functions)]
    return {"name": name, "active": False, "gil": gil, "frames": frames, "wait": wait}


def process(pid: int, parent: int = 1, replica: str = "w/0", **facts: Any) -> dict[str, Any]:
    return {
        "pid": pid, "start": 1, "parent": parent, "program": "python", "state": "sleeping",
        "replica": replica, "attempt": "1", "rank": None, "threads": [], "note": "", "wait": "", **facts,
    }  # fmt: skip


def answer(*processes: dict[str, Any]) -> str:
    return json.dumps({"host": "h", "spy": True, "processes": processes})


REDUCES = [thread("MainThread", "all_reduce", "step")]
CALL = "read of /data"
STUCK = answer(
    process(10, 1, program="torchrun", threads=[thread("MainThread", "monitor", "main")]),
    *(
        process(20 + n, 10, rank=n, threads=[thread("MainThread", "all_reduce", "step")])
        for n in range(8)
        if n != 3
    ),
    process(
        23,
        10,
        rank=3,
        threads=[thread("MainThread", "read", "fetch", wait="read of /data")],
        wait="read of /data",
    ),
    process(31, 21, rank=1, threads=[thread("MainThread", "get", "worker")]),
)


def test_ranks_come_first_and_rare_stacks_before_common_ones() -> None:
    assert as_text(parse_stacks(STUCK)) == [
        "rank 3  (1 of 8, pid 23, python sleeping in read of /data)",
        "    read read.py:1 <- fetch fetch.py:2",
        "",
        "ranks 0-2,4-7  (7 of 8 identical, pids 20, ..., python sleeping)",
        "    all_reduce all_reduce.py:1 <- step step.py:2",
        "",
        "child of rank 1  (pid 31, python sleeping)",
        "    get get.py:1 <- worker worker.py:2",
        "",
        "launcher of w/0  (pid 10, torchrun sleeping)",
        "    monitor monitor.py:1 <- main main.py:2",
    ]


@pytest.mark.parametrize(
    ("processes", "kinds"),
    [
        pytest.param([process(5), process(6, 5)], [MAIN, CHILD], id="a program and its child"),
        pytest.param(
            [process(5, program="sh", wait="wait4"), process(6, 5)],
            [LAUNCHER, MAIN],
            id="a shell and its program",
        ),
        pytest.param([process(5, wait="wait4")], [MAIN], id="a program that waits, without a child"),
        pytest.param(
            [process(5, attempt=""), process(6, 5)],
            [LAUNCHER, MAIN],
            id="the agent on Slurm",
        ),
        pytest.param(
            [process(5, rank=0, program="sh", wait="wait4"), process(6, 5, rank=0), process(7, 6, rank=0)],
            [LAUNCHER, MAIN, CHILD],
            id="a shell with a rank",
        ),
        pytest.param([process(5, rank=0), process(6, 5)], [MAIN, LAUNCHER], id="a process beside the ranks"),
        pytest.param([process(5), process(6, 5, "w/1")], [MAIN, MAIN], id="another replica"),
    ],
)
def test_kinds_of_processes(processes: list[dict[str, Any]], kinds: list[str]) -> None:
    assert [p.kind for p in parse_stacks(answer(*processes)).processes] == kinds


def test_replicas_without_ranks_are_named_by_role() -> None:
    names = ("a/0", "a/1", "b/0", "a/2")
    found = [process(n + 5, 1, name, threads=REDUCES) for n, name in enumerate(names)]
    assert as_text(parse_stacks(answer(*found)))[0].startswith("a/0-2 b/0  (4 of 4 identical, pids 5, ...")


@pytest.mark.parametrize(
    ("note", "count"),
    [
        ("py-spy is not installed", "3 of 4 unread"),
        ("py-spy: no answer within 5 s", "3 of 4 unread"),
        pytest.param("", "3 of 4", id="no Python program"),
    ],
)
def test_unread_stacks_are_not_identical(note: str, count: str) -> None:
    unread = [process(5 + n, replica=f"w/{n}", note=note) for n in range(3)]
    stacks = parse_stacks(answer(*unread, process(9, replica="w/3", threads=REDUCES)))
    lines = as_text(stacks)
    assert lines[0].startswith("w/3  (1 of 4, pid 9, ")
    assert lines[3].startswith(f"w/0-2  ({count}, pids 5, ..., ")
    assert [(group["count"], group["unread"]) for group in stacks.to_json()["groups"]] == [
        (1, False),
        (3, True),
    ]


def test_threads_are_named_and_equal_ones_counted() -> None:
    pool = [thread(f"pool-{n}", "get", "work", "_bootstrap", wait="futex") for n in range(4)]
    threads = [*pool, thread("MainThread", "main", gil=True)]
    assert as_text(parse_stacks(answer(process(5, threads=threads))))[1:] == [
        "    MainThread: main main.py:1  [holds the GIL]",
        "    pool-0 and 3 more: get get.py:1 <- work work.py:2  [in futex]",
    ]


def test_long_stacks_are_shortened_and_wrapped_between_frames() -> None:
    functions = [f"function_{n}" for n in range(40)]
    lines = as_text(parse_stacks(answer(process(5, threads=[thread("MainThread", *functions)]))), 60)[1:]
    assert all(len(line) <= 60 for line in lines)
    assert all(line.startswith("        <- ") for line in lines[1:])
    text = " ".join(lines)
    assert "... 20 frames ..." in text
    assert "function_13 " in text
    assert "function_14 " not in text
    assert "function_34 " in text


def test_control_characters_are_escaped() -> None:
    evil = process(5, program="a\x1b[31m", note="b\x07", threads=[thread("c\n", "d\x1b")])
    assert not any(character in "\n".join(as_text(parse_stacks(answer(evil)))) for character in "\x1b\x07")


def test_hints_say_what_python_stacks_need() -> None:
    absent = as_text(parse_stacks(answer(process(5, note="py-spy is not installed"))))
    assert absent[-1].startswith("note: for Python stacks: pip install py-spy")
    both = "py-spy is not installed, and is not permitted to read it (ptrace)"
    hints = as_text(parse_stacks(answer(process(5, note=both))))[-2:]
    assert "pip install py-spy" in hints[0]
    assert "allow ptrace" in hints[1], "py-spy alone would not help"
    refused = as_text(parse_stacks(answer(process(5, note="py-spy is not permitted to read it (ptrace)"))))
    assert "ptrace_scope" in refused[-1]


def test_the_json_form_has_processes_and_groups() -> None:
    data = parse_stacks(STUCK).to_json()
    assert json.loads(json.dumps(data)) == data
    first = data["groups"][0]
    assert (first["ranks"], first["count"], first["of"]) == ([3], 1, 8)
    assert data["processes"][first["processes"][0]]["threads"][0]["frames"] == [
        {"function": "read", "file": "/src/read.py", "line": 1},
        {"function": "fetch", "file": "/src/fetch.py", "line": 2},
    ]


def test_parts_are_ordered_by_role_replica_and_rank() -> None:
    one = parse_stacks(answer(process(5, 1, "b/1", rank=3), process(6, 1, "b/0", rank=1)))
    two = parse_stacks(answer(process(5, 1, ""), process(6, 1, "b/0", rank=0)), "a", 7)
    assert [(p.role, p.replica, p.rank) for p in combine([one, two], ["a", "b"]).processes] == [
        ("a", 7, None),
        ("b", 0, 0),
        ("b", 0, 1),
        ("b", 1, 3),
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"host": 1, "processes": [{}]}', '{"processes": 3}', "[" * 500]
)
def test_other_answers_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_stacks(text)
