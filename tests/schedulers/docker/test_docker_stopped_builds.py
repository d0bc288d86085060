"""Builds that are stopped or killed leave no image, also if the engine is busy."""

from __future__ import annotations

import io
import os
import tarfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from containers import sh
from engine import IMAGE
from workspaces import Runs, dockerfile, steps_left

from torchx.schedulers.docker.dockerfile import CONTENT_LABEL
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.images import prune as docker_images_prune
from torchx.schedulers.docker.images.prune import remove_leftovers
from torchx.schedulers.docker.images.workspace import provide_image

pytestmark = [pytest.mark.long, pytest.mark.docker]


class StoppedLines:
    """The lines of a build that is stopped once: before the first line, or after the first with a text.

    Attributes:
        complete: whether they were read to their end.
    """

    def __init__(self, lines: Iterable[bytes], when: bytes) -> None:
        self._lines, self._when = iter(lines), when
        self._stops = not when
        self.complete = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._stops:
            self._stops, self._when = False, b"stopped"
            raise KeyboardInterrupt
        try:
            line = next(self._lines)
        except StopIteration:
            self.complete = True
            raise
        self._stops = self._when in line
        return line


class Stopped(Engine):
    """An engine whose builds are stopped: while they are sent, or at a line of the response."""

    def __init__(self, when: bytes | None) -> None:
        super().__init__()
        self.when = when
        self.lines: list[StoppedLines] = []

    @contextmanager
    def upload(
        self, path: str, query: Mapping[str, Any], send: Callable[[Callable[[bytes], None]], None]
    ) -> Iterator[Iterable[bytes]]:
        taken: list[bytes] = []

        def cut_off(piece: bytes) -> None:
            assert not taken, "nothing comes after a piece that was not sent whole"
            taken.append(piece)
            raise KeyboardInterrupt

        cuts = self.when is None
        with super().upload(path, query, (lambda take: send(cut_off)) if cuts else send) as lines:
            self.lines.append(StoppedLines(lines, self.when or b""))
            yield self.lines[-1]


def test_build_stopped_while_it_is_sent_leaves_none(runs: Runs, folder: Path) -> None:
    with (folder / "data").open("wb") as file:
        file.truncate(60_000_000)
    (plan,) = runs.dryrun(folder, sh("true")).request.builds
    with pytest.raises(KeyboardInterrupt):
        provide_image(Stopped(None), plan, runs.answer.append)
    assert runs.images() == {}


@pytest.mark.usefixtures("_docker_alone")
@pytest.mark.parametrize("when", [b"", b" : COPY", b"Successfully built"])
@pytest.mark.parametrize("own", [False, True])
def test_build_that_is_stopped_while_engine_copies_leaves_none(
    runs: Runs, folder: Path, when: bytes, own: bool
) -> None:
    mark = uuid.uuid4().hex
    (folder / "data").write_bytes(os.urandom(1000) * 10_000)
    if own:
        dockerfile(folder, f"LABEL mark={mark}", "COPY . /a", "RUN sleep 60", "COPY . /b")
        when = b" : COPY . /a" if when.startswith(b" :") else b"Running in" if when else b""
    (plan,) = runs.dryrun(folder, sh("true")).request.builds
    engine = Stopped(when)
    with pytest.raises(KeyboardInterrupt):
        provide_image(engine, plan, runs.answer.append)
    # an engine continues a copy after a disconnect: nothing can follow only if it has ended the response
    assert [lines.complete for lines in engine.lines] == [True]
    assert (runs.images(), steps_left(mark)) == ({}, [])


@pytest.mark.usefixtures("_docker_alone")
def test_image_of_killed_build_is_removed_by_next(
    runs: Runs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plan,) = runs.dryrun(folder, sh("true")).request.builds
    with Engine().upload("/build", {"labels": {CONTENT_LABEL: plan.digest}}, send_dockerfile) as lines:
        assert b"Successfully built" in b"".join(lines)
    (left,) = runs.images()
    provide_image(Engine(), plan, runs.answer.append)
    assert left in runs.images(), "it may belong to another build"
    mine, listed = Engine(), Engine.call

    def call(self: Engine, method: str, path: str, *args: Any, **params: Any) -> Any:
        answer = listed(self, method, path, *args, **params)
        if path != "/images/json":
            return answer
        return [
            image for image in answer if image["Labels"][CONTENT_LABEL] == plan.digest
        ]  # not those of others

    monkeypatch.setattr(Engine, "call", call)
    monkeypatch.setattr(docker_images_prune, "ABANDONED", -60.0)
    remove_leftovers(mine)
    (image,) = runs.images().values()
    assert image["RepoTags"] == [plan.name], "the complete one stays"


def send_dockerfile(take: Callable[[bytes], None]) -> None:
    """Sends a context with a Dockerfile alone."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        text = f"FROM {IMAGE}\nENV A={uuid.uuid4()}\n".encode()
        info = tarfile.TarInfo("Dockerfile")
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text))
    take(packed.getvalue())
