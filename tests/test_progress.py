"""Slow steps are reported in time and not too often, quick ones are not; a drawn bar needs no lines."""

from __future__ import annotations

import pytest
from support import wait_until

from torchx.scheduling.progress import Ongoing, Part


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchx.scheduling.progress.PATIENCE", 0.01)
    monkeypatch.setattr("torchx.scheduling.progress.EVERY", 0.02)
    monkeypatch.setattr("torchx.scheduling.progress.STILL", 0.1)


def test_quick_work_is_not_reported() -> None:
    lines: list[str] = []
    with Ongoing(lines.append, "pulling a:1") as ongoing:
        ongoing.update("1 of 2 layers")
        ongoing.done("pulled a:1")
    assert lines == []


@pytest.mark.usefixtures("_impatient")
def test_slow_work_is_reported_on_change_and_occasionally() -> None:
    lines: list[str] = []
    with Ongoing(lines.append, "pulling a:1") as ongoing:
        wait_until(lambda: lines == ["pulling a:1"], "it is reported")
        ongoing.update("1 of 2 layers", (Part("x", "", 2_000_000, 4_000_000),))
        wait_until(lambda: lines[1:] == ["pulling a:1, 1 of 2 layers, 2.0 of 4.0 MB"], "so is the change")
        wait_until(lambda: len(lines) > 2, "it is reported that it continues")
        assert lines[2] == f"{lines[1]}, since 0 s"
        ongoing.done("pulled a:1")
    assert lines[-1] == "pulled a:1"


def test_what_will_take_long_is_reported_at_once() -> None:
    lines: list[str] = []
    with Ongoing(lines.append, "sending", at_once=True):
        assert lines == ["sending"]


@pytest.mark.usefixtures("_impatient")
def test_drawing_observer_gets_last_line_and_end_after_error() -> None:
    class Drawing(list[str]):
        """Takes lines, and draws."""

        here: Ongoing | None = None

        def __call__(self, line: str) -> None:
            self.append(line)

        def began(self, ongoing: Ongoing) -> bool:
            self.here = ongoing
            return True

        def ended(self, ongoing: Ongoing) -> None:
            self.here = None

    drawing = Drawing()
    with Ongoing(drawing, "building") as ongoing:
        assert drawing.here is ongoing
        wait_until(lambda: ongoing.seconds > 0.05, "a while has passed")
        ongoing.done("built")
        assert drawing.here is None
    assert drawing == ["built"]
    with pytest.raises(KeyboardInterrupt), Ongoing(drawing, "building"):
        raise KeyboardInterrupt
    assert drawing.here is None
    assert drawing == ["built"]
