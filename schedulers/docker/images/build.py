"""Builds images on an engine, streaming the files; a failed build leaves nothing on the engine."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote

from torchx.errors import StateError
from torchx.json_limits import Data
from torchx.printable import counted, shortened
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.image_plan import ImagePlan
from torchx.schedulers.docker.images.pull import inspect_image
from torchx.schedulers.docker.request import LABEL
from torchx.scheduling.progress import MB, Ongoing, Part
from torchx.workspace.ignore import BUILT_IN

LARGE_UPLOAD = 50 * MB
"""Bytes from which the upload is announced before it starts."""

CHUNK = 1 << 18
"""Bytes sent at a time."""

LINES_SHOWN = 10
"""Lines shown of a failed step."""

LONGEST = 200
"""Characters shown of a line or a step."""

TRIES = 3
"""Attempts of a build whose cached layers are removed while it runs."""

_STEP = r"(?i)step (\d+)/(\d+) ?: (.*)"
_MADE = r"-+> ([0-9a-f]{10,64})"
_RUNS = r"(?i)-+> running in ([0-9a-f]{10,64})"
_CACHED = r"(?i)-+> using cache"
_NOISE = r"---> |Removing intermediate container|Successfully (?:built|tagged) "
_LOST = r"(?i)(?:unable to find image|no such image:?) \"?sha256:"
_NOT_FOUND = r"excluded by \.dockerignore: stat (.+): file does not exist"
_CONTROL = r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[@-_])|[\x00-\x08\x0b-\x1f\x7f-\x9f]"


class StepLostError(StateError):
    """An image that a build depends on was removed while it ran."""


@dataclass
class Output:
    """The output of a build.

    Attributes:
        step: the current step, such as ``step 2 of 3: COPY a b``; empty before the first.
        last: the last lines of this step.
        made: the intermediate images it has created.
        image: the id of the resulting image.
        container: the id of the container in which the current step runs; empty if it runs none.
        pulling: whether the current step pulls an image.
    """

    step: str = ""
    last: deque[str] = field(default_factory=lambda: deque(maxlen=LINES_SHOWN))
    made: list[str] = field(default_factory=list)
    image: str = ""
    container: str = ""
    pulling: bool = False
    _rest: str = ""
    _cached: bool = False

    @property
    def runs_program(self) -> bool:
        """Whether the current step runs a program."""
        return ": RUN " in f"{self.step.upper()} "

    def add(self, line: Data) -> None:
        """Processes one line of the engine's response."""
        self.image = str((line.get("aux") or {}).get("ID") or self.image)
        self.pulling = "status" in line
        *complete, self._rest = (self._rest + str(line.get("stream") or "")).split("\n")
        for text in complete:
            self._line(re.sub(_CONTROL, "", text.rpartition("\r")[2] or text).rstrip())

    def _line(self, text: str) -> None:
        bare = text.strip()
        if step := re.fullmatch(_STEP, bare):
            self.container = ""
            if step[3].replace('"', "").startswith(f"LABEL {LABEL}"):
                self._cached = False
                return  # one of our labels, not shown
            self.step = f"step {step[1]} of {step[2]}: {shortened(step[3], LONGEST)}"
            self._cached = step[3].upper().startswith("FROM")  # the base image already exists
            self.last.clear()
        elif runs := re.fullmatch(_RUNS, bare):
            self.container = runs[1]
        elif re.match(_CACHED, bare):
            self._cached = True
        elif made := re.fullmatch(_MADE, bare):
            self.made += [] if self._cached else [made[1]]
        elif bare and not re.match(_NOISE, bare):
            self.last.append(text[:LONGEST])


def build(
    engine: Engine,
    plan: ImagePlan,
    query: Data,
    pack: Callable[[Writer], None],
    report: Callable[[str], None],
) -> str:
    """Builds an image and returns its id.

    Args:
        engine: the engine.
        plan: the image.
        query: the build parameters of the engine's API.
        pack: writes the files as a tar archive.
        report: called with a progress message if the build takes long.

    Raises:
        StateError: the build failed; its intermediate images are removed.
    """

    def send(take: Callable[[bytes], None]) -> None:
        writer = Writer(take, plan, ongoing)
        pack(writer)
        writer.flush()

    for left in reversed(range(TRIES)):
        output = Output()
        ongoing = Ongoing(report, f"building {plan.name}", at_once=plan.tree.size > LARGE_UPLOAD)
        try:
            Writer(lambda piece: None, plan, ongoing).report()
            with ongoing:
                try:
                    with engine.upload("/build", query, send) as lines:
                        try:
                            _follow(lines, plan, output, ongoing)
                        except KeyboardInterrupt:
                            ongoing.update(f"stopping {output.step}")
                            _end(engine, lines, output)
                            raise
                except EngineError as error:  # the Dockerfile is invalid
                    raise _failed(plan, output, error.message) from error
                ongoing.done(f"built {plan.name} from {plan.about} in {ongoing.seconds:.1f} s")
            break
        except BaseException as error:
            if output.image and isinstance(error, KeyboardInterrupt):  # it ended before it could be stopped
                with suppress(StateError):
                    engine.call("DELETE", f"/images/{quote(plan.name, safe='/:')}")
            _remove_intermediate(engine, output.made)
            # builds share cached layers: removing another image right now also removes the layers this build
            # has found in the cache but not used yet
            if not (isinstance(error, StepLostError) and left):
                raise
    if not output.image:
        raise StateError(f"the engine has built {plan.name}, but did not return its id")
    return output.image


def _end(engine: Engine, lines: Iterable[bytes], output: Output) -> None:
    """Ends a build, and returns when the engine has ended it, so that all images it has made are known.

    An engine continues the current step after a disconnect, and keeps its image. So the response is read to
    its end: a step that runs a program ends with its container, one that copies files takes as long as the
    copy. Another interrupt disconnects immediately, as does a pull, which the engine stops then.

    Args:
        engine: the engine.
        lines: the response, from the interrupt on.
        output: the output of the build, continued.
    """
    removed = ""
    with suppress(StateError, OSError, http.client.HTTPException, ValueError):
        received = iter(lines)
        while not output.pulling and not (engine.is_podman and output.runs_program):
            if output.container != removed:
                removed = output.container
                if removed:
                    _remove_container(engine, removed)
            line = next(received, None)
            if line is None:
                return
            if line.strip():
                output.add(json.loads(line))


def _remove_container(engine: Engine, container: str) -> None:
    """Kills and removes the container of a step, also before it has started: the step fails."""
    with suppress(EngineError):  # it has ended
        engine.call("DELETE", f"/containers/{container}", {"force": 1})


def _follow(lines: Iterable[bytes], plan: ImagePlan, output: Output, ongoing: Ongoing) -> None:
    """Reads the engine's response to a build and reports its progress."""
    for line in map(json.loads, filter(None, map(bytes.strip, lines))):
        output.add(line)
        if "error" in line:
            output.add({"stream": "\n"})
            raise _failed(plan, output, str(line["error"]))
        ongoing.update(output.step, last=tuple(output.last)[-3:])


class Writer:
    """A buffered writer for the archive that reports progress.

    Args:
        take: sends a chunk.
        plan: the image.
        ongoing: the progress to update.
    """

    def __init__(self, take: Callable[[bytes], None], plan: ImagePlan, ongoing: Ongoing) -> None:
        self._take, self._tree, self._ongoing = take, plan.tree, ongoing
        self._held, self._count = bytearray(), 0
        self._broken = False

    def write(self, data: bytes, /) -> None:
        """Buffers data, and sends full chunks."""
        self._held.extend(data)
        if len(self._held) >= CHUNK:
            self.flush()

    def flush(self) -> None:
        """Sends the buffered data; does nothing after an interrupted send, as the stream is incomplete."""
        if self._held and not self._broken:
            self._broken = True
            self._take(bytes(self._held))
            self._broken = False
            self._count += len(self._held)
            self._held.clear()
            self.report()

    def report(self) -> None:
        """Updates the progress."""
        size = self._tree.size
        part = Part("", "", min(self._count, size), size)
        self._ongoing.update(f"sending {counted(self._tree.files, 'file')}", (part,))


def _failed(plan: ImagePlan, output: Output, error: str) -> StateError:
    reason = " ".join(re.sub(_CONTROL, "", error).split())
    if code := re.search(r"(?:returned a non-zero code:|exit status) (\d+)$", reason):
        reason = f"exit code {code[1]}"
    reason = shortened(reason, LONGEST)
    where = f" at {output.step}" if output.step else ""
    lines = "".join(f"\n│ {text}" for text in output.last if text.strip() != reason)
    by = f" by its {plan.dockerfile}" if plan.dockerfile else ""
    kind = StepLostError if re.search(_LOST, reason) else StateError
    hint = _include_hint(plan, reason)
    if "buildkit" in reason.lower():
        hint = "build it yourself: docker buildx build -t NAME --load .   then: --image NAME"
    return kind(
        f"the image of workspace {plan.workspace} could not be built{by}{where}: {reason}{lines}", hint=hint
    )


def _include_hint(plan: ImagePlan, reason: str) -> str | None:
    """Returns how to include a file that a step did not find, if the built-in list excludes it, or None."""
    match = re.search(_NOT_FOUND, reason)
    path = match[1].strip("/") if match else ""
    left = [name.rstrip("/") for name in plan.tree.left.get(BUILT_IN, ())]
    if not path or not any(path == name or path.startswith(f"{name}/") for name in left):
        return None
    return f"files of this name are excluded by default; to include it, write in .torchxignore: !{path}"


def _remove_intermediate(engine: Engine, made: list[str]) -> None:
    """Removes the intermediate images of a failed or stopped build."""
    for image in reversed(made):
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            try:
                info = inspect_image(engine, image)
                if info is not None and not info.get("RepoTags"):
                    engine.call("DELETE", f"/images/{image}", {"noprune": 1})
                break
            except EngineError as error:
                # its container is removed a moment later; images used by other builds stay
                if error.status != 409 or "container" not in error.message:
                    break
                time.sleep(0.1)
            except StateError:
                return  # the engine does not answer, which is reported already
