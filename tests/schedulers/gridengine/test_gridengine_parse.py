"""The output of qstat and qacct, as recorded from Grid Engine 8.1.9."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx.schedulers.gridengine.parse import JobFacts, read_accounts, read_queue, reasons_of


def text(resources: Path, name: str) -> str:
    return (resources / "gridengine" / name).read_text()


def test_jobs_of_the_queue_are_read(resources: Path) -> None:
    facts = list(read_queue(text(resources, "qstat.xml")))
    assert [(each.key, each.state, each.name) for each in facts] == [
        ("225", "r", "train-b1c2"),
        ("226_1", "r", "sweep-b1c3"),
        ("226_2", "r", "sweep-b1c3"),
        ("229", "qw", "big-b1c6"),
        ("230", "Eqw", "error-b1c7"),
        ("226_3", "qw", "sweep-b1c3"),
        ("226_4", "qw", "sweep-b1c3"),
        ("226_5", "qw", "sweep-b1c3"),
        ("227", "hqw", "held-b1c4"),
    ]
    assert facts[0].host == "genode1"
    assert facts[0].at is not None
    assert [each.is_running for each in facts[:4]] == [True, True, True, False]
    assert [each.has_failed for each in facts if each.has_failed] == [True]


@pytest.mark.parametrize(
    ("state", "running", "waiting"),
    [
        ("r", True, False),
        ("Rr", True, False),
        ("dr", True, False),
        ("ts", True, False),
        ("Rq", False, True),
        ("hRwq", False, True),
        ("zz", False, False),
        ("", False, False),
    ],
)
def test_letters_of_a_state(state: str, running: bool, waiting: bool) -> None:
    facts = JobFacts(1, None, state)
    assert (facts.is_running, facts.is_waiting) == (running, waiting)


def test_broken_queue_has_no_jobs() -> None:
    assert list(read_queue("<job_list><JB_job_number>x</JB_job_number></job_list>")) == []
    assert list(read_queue("<job_list><JB_job_number>7</JB_job_number>")) == []
    odd = "<job_list><JB_job_number>7</JB_job_number><JB_name>a&lt;&amp;b</JB_name></job_list>"
    assert [each.name for each in read_queue(odd)] == ["a<&b"]


def test_ends_in_the_accounting(resources: Path) -> None:
    (killed,) = read_accounts(text(resources, "qacct-killed.txt"))
    assert (killed.failed, killed.text, killed.exit_code) == (100, "assumedly after job", 137)
    first, second = read_accounts(text(resources, "qacct-requeued.txt"))
    assert (first.failed, first.exit_code) == (25, 99)
    assert (second.failed, second.exit_code, second.text) == (0, 143, "")
    assert first.started is not None
    assert second.ended is not None
    assert first.started < second.ended
    assert read_accounts("error: job id 7 not found") == []


def test_reasons_of_jobs_that_wait(resources: Path) -> None:
    waiting = reasons_of(text(resources, "qstat-j-waiting.txt"))
    assert waiting == ['cannot run in PE "smp" because it only offers 0 slots']
    (error, *_) = reasons_of(text(resources, "qstat-j-error.txt"))
    assert error.endswith("can't chdir to /home/user1/gone: No such file or directory")
