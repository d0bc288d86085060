"""Records are read once, and a former state is never shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchx.jobs import catalog as module
from torchx.jobs.catalog import catalog
from torchx.jobs.paths import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.jobs.mkdir()
    return home


def job(home: Home, app_id: str) -> None:
    (home.jobs / app_id).mkdir()
    with home.ended.open("a") as file:
        file.write(f'{{"app_id":"{app_id}","submitted_at":1.0}}\n')


def old(path: Path) -> None:
    os.utime(path, (1000.0, 1000.0))


def test_without_a_home_there_is_nothing(tmp_path: Path) -> None:
    assert catalog(Home(tmp_path / "none")).app_ids == frozenset()


def test_each_change_is_seen_at_once(home: Home) -> None:
    for number in range(200):
        job(home, f"job-{number}")
        found = catalog(home)
        assert len(found.app_ids) == len(found.lines) == number + 1
    for number in range(200):
        (home.jobs / f"job-{number}").rmdir()
        assert len(catalog(home).app_ids) == 199 - number


def test_it_is_read_once_while_nothing_changes(home: Home, tmp_path: Path) -> None:
    job(home, "one")
    old(home.jobs)
    old(home.ended)
    found = catalog(home)
    assert catalog(home) is found
    assert catalog(Home(tmp_path / "other")) is not found
    again = catalog(home)
    job(home, "two")
    old(home.jobs)  # the list alone has another time
    assert catalog(home).lines.keys() == {b"one", b"two"}
    assert again.lines.keys() == {b"one"}


def test_changes_of_the_same_moment_are_not_kept(home: Home) -> None:
    job(home, "one")
    catalog(home)
    assert module._read is None
