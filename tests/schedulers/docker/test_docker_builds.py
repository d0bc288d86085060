"""Builds: their progress, those that fail or are stopped, and unused images."""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from containers import Jobs, scheduler, sh
from engine import IMAGE
from program import on_terminal, start, torchx
from support import wait_until
from workspaces import Runs, dockerfile, steps_left, tag

from torchx.errors import StateError
from torchx.schedulers.docker import prune as docker_prune
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.images.prune import OldImage, remove_images, unused_images
from torchx.schedulers.docker.images.pull import inspect_image
from torchx.schedulers.docker.images.workspace import provide_image

pytestmark = [pytest.mark.long, pytest.mark.docker]

SLOW = "RUN for i in 1 2 3 4; do echo slow $i; sleep 0.4; done"


def failure(runs: Runs, folder: Path) -> StateError:
    """Builds what cannot be built."""
    with pytest.raises(StateError) as caught:
        runs.run(folder, sh("true"))
    return caught.value


def test_a_build_that_fails_says_where_and_leaves_nothing(runs: Runs, folder: Path) -> None:
    mark = uuid.uuid4().hex
    dockerfile(folder, f"LABEL mark={mark}", "RUN printf '\\033[31mout of\\033[0m luck\\n'; exit 3")
    message = failure(runs, folder).message
    assert steps_left(mark) == []
    first, *rest = message.splitlines()
    assert first.startswith(f"the image of workspace {folder} could not be built by its Dockerfile.torchx at")
    assert re.search(r"at step [34] of \d: RUN printf .*: exit code 3$", first)
    assert rest == ["│ out of luck"]


def test_a_dockerfile_that_cannot_be_read_is_one_sentence(runs: Runs, folder: Path) -> None:
    dockerfile(folder, "BUILD it")
    message = failure(runs, folder).message
    assert message.startswith(
        f"the image of workspace {folder} could not be built by its Dockerfile.torchx: "
    )
    assert "BUILD" in message
    (folder / "Dockerfile.torchx").write_text("FROM registry.invalid/no/image:1\n")
    assert failure(runs, folder).message.startswith(
        "the image registry.invalid/no/image:1 is not on the engine and cannot be pulled"
    )


@pytest.mark.usefixtures("_docker_alone")
def test_step_that_lacks_excluded_file_has_hint(runs: Runs, folder: Path) -> None:
    (folder / ".env").write_text("A=1\n")
    dockerfile(folder, "COPY .env /there")
    hint = "files of this name are excluded by default; to include it, write in .torchxignore: !.env"
    assert failure(runs, folder).hint == hint
    (folder / ".torchxignore").write_text(f"{hint.rpartition(' ')[2]}\n")
    assert runs.run(folder, sh("cat /there")) == "A=1\n"
    dockerfile(folder, "COPY no-such-file /there")
    assert failure(runs, folder).hint is None


def test_image_may_be_named_by_several_arguments_on_line(runs: Runs, folder: Path) -> None:
    repository, _, tag_of = IMAGE.rpartition(":")
    steps = [f"ARG A={repository} B='{tag_of}'", "FROM $A:$B", "COPY train.py /"]
    (folder / "Dockerfile.torchx").write_text("\n".join(steps) + "\n")
    assert runs.run(folder, sh("ls /train.py")) == "/train.py\n"


@pytest.mark.usefixtures("_docker_alone")
def test_a_build_that_needs_another_builder_is_reported(runs: Runs, folder: Path) -> None:
    dockerfile(folder, "RUN --mount=type=cache,target=/x true")
    error = failure(runs, folder)
    assert "BuildKit" in error.message
    assert "docker buildx build" in (error.hint or "")


def test_steps_are_reported_in_lines_when_they_take_long(runs: Runs, folder: Path) -> None:
    above = f"ENV A={uuid.uuid4()}"
    dockerfile(folder, above)
    runs.run(folder, sh("true"))  # so that of the next build nothing but the slow step takes long
    dockerfile(folder, above, SLOW)
    runs.run(folder, sh("true"))
    # on a slow machine, the context may take long too
    first, *_, last = [line for line in runs.answer if not re.match("building .*, sending", line)]
    name = runs.dryrun(folder, sh("true")).request.builds[0].name
    assert re.match(rf"building {name}, step [34] of \d: RUN for i in", first)
    assert re.fullmatch(rf"built {name} from {IMAGE} with workspace {folder} by its .* in \d\.\d s", last)
    assert len(runs.answer) <= 4, "a line every two seconds"
    (folder / "more").write_text("")
    runs.run(folder, sh("true"), quiet=True)
    assert runs.answer == []


def run_words(folder: Path, *more: str) -> tuple[str, ...]:
    words = ("run", "-s", "local_docker", "--workspace", str(folder), *more)
    return (*words, "utils.sh", "--image", IMAGE, "echo done")


def test_terminal_shows_where_build_is_and_then_one_line(runs: Runs, folder: Path) -> None:
    dockerfile(folder, f"ENV A={uuid.uuid4()}", SLOW)
    name = runs.dryrun(folder, sh("true")).request.builds[0].name
    shown, code = on_terminal(*run_words(folder), columns=70)
    assert code == 0
    torchx("delete", "--force", "@last")
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]|\r", "\n", shown)
    assert f"building {name}, 1 s\n" in plain
    assert re.search(r"  step [34] of \d: RUN for i", plain)
    assert "slow 2" in plain
    # a line that is wrapped by the terminal cannot be taken back
    assert max(map(len, plain.partition("\nbuilt ")[0].splitlines())) <= 70
    # the last that is drawn is taken away whole, and one line stays in its place
    assert re.search(r"\n\r(?:\x1b\[1A\x1b\[2K){2,5}built " + name, shown)


def test_a_large_workspace_is_reported_before_it_is_sent(
    runs: Runs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (folder / "data").open("wb") as file:
        file.truncate(60_000_000)
    monkeypatch.setattr("torchx.scheduling.progress.PATIENCE", 60.0)
    runs.run(folder, sh("true"))
    assert runs.answer[0].endswith("sending 2 files, 0.0 of 60.0 MB")


@pytest.mark.usefixtures("_docker_alone")
class Losing(Engine):
    """An engine that some builds on it lose a step of, as when somebody removes it at that moment."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times

    @contextmanager
    def upload(
        self, path: str, query: Mapping[str, Any], send: Callable[[Callable[[bytes], None]], None]
    ) -> Iterator[Iterable[bytes]]:
        if self.left:
            self.left -= 1
            yield [
                b'{"stream": "Step 3/6 : COPY workspace/ /workspace/\\n"}',
                b'{"error": "unable to find image \\"sha256:80534f84abdc\\""}',
            ]
            return
        with super().upload(path, query, send) as lines:
            yield lines


def test_build_whose_step_is_removed_begins_again(runs: Runs, folder: Path) -> None:
    (plan,) = runs.dryrun(folder, sh("true")).request.builds
    with pytest.raises(StateError, match="at step 3 of 6: COPY"):
        provide_image(Losing(3), plan, runs.answer.append)
    image, _ = provide_image(Losing(2), plan, runs.answer.append)
    assert image in runs.images()


def test_ctrl_c_stops_a_build_and_leaves_nothing(runs: Runs, folder: Path) -> None:
    mark = uuid.uuid4().hex
    dockerfile(folder, f"LABEL mark={mark}", "RUN sleep 60")
    runs.dryrun(folder, sh("true"))
    process = start(*run_words(folder))
    runs_now = {"filters": {"label": [f"mark={mark}"], "status": ["running"]}}
    wait_until(lambda: Engine().call("GET", "/containers/json", runs_now), "the step runs")
    os.killpg(process.pid, signal.SIGINT)
    said, complained = process.communicate(timeout=50)
    assert (said, process.returncode) == ("", 130)
    assert complained.splitlines()[-1] == "stopped before anything was started"
    wait_until(lambda: not steps_left(mark), "nothing of the step is left")


def test_the_command_line_says_what_failed_and_nothing_else(runs: Runs, folder: Path) -> None:
    dockerfile(folder, "RUN echo no luck; exit 4")
    done = torchx(*run_words(folder))
    assert (done.returncode, done.stdout) == (1, "")
    first, second = done.stderr.splitlines()[-2:]
    assert first.startswith("error: the image of workspace")
    assert second == "  │ no luck"


# --- unused images ----------------------------------------------------------------------


def test_unused_images_are_removed_when_they_are_old(
    runs: Runs, jobs: Jobs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.run(folder, sh("true"))
    (image,) = runs.images()

    def unused() -> list[OldImage]:
        return [one for one in unused_images(Engine()) if one.id == image]

    assert not unused(), "its container is there"
    scheduler().delete(jobs.ids[-1])
    (found,) = unused()
    assert "torchx-workspace:" in found.name
    assert not [one for one in scheduler().prune([]) if one.path == found.name], "it is not old"
    monkeypatch.setattr(docker_prune, "IMAGES_KEPT", -60.0)
    monkeypatch.setattr(docker_prune, "unused_images", lambda engine: unused())  # others' stay
    assert [one.path for one in scheduler().prune([], dryrun=True)] == [found.name]
    assert inspect_image(Engine(), image) is not None
    assert [one.path for one in scheduler().prune([])] == [found.name]
    assert inspect_image(Engine(), image) is None


def test_image_with_another_name_or_child_stays(runs: Runs, jobs: Jobs, folder: Path) -> None:
    runs.run(folder, sh("true"))
    (image,) = runs.images()
    scheduler().delete(jobs.ids[-1])
    name = f"torchx-mine:{uuid.uuid4().hex}"
    tag(image, name)
    try:
        assert image not in {one.id for one in unused_images(Engine())}
    finally:
        Engine().call("DELETE", f"/images/{name}")
    body = {"Image": image, "Cmd": ["true"]}
    container = Engine().call("POST", "/containers/create", None, body)["Id"]
    try:
        # it has begun to use it after somebody looked
        assert remove_images(Engine(), [OldImage(image, "any", 0, 0.0)]) == []
        assert inspect_image(Engine(), image) is not None
    finally:
        Engine().call("DELETE", f"/containers/{container}")
