"""An image built by an engine from files that are sent as they are read; one that fails leaves nothing."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from torchx.errors import StateError
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.images.dockerfile import CONTENT_LABEL
from torchx.schedulers.docker.images.plan import ImagePlan, counted
from torchx.schedulers.docker.images.pull import inspect_image
from torchx.schedulers.docker.request import LABEL
from torchx.scheduling.progress import MB, Ongoing, Part
from torchx.workspace.ignore import BUILT_IN

MUCH = 50 * MB
"""Bytes from which on it is told beforehand that they are sent to the engine."""

PIECE = 1 << 18
"""Bytes that are sent at a time."""

SHOWN = 10
"""Lines of a failed step that are told."""

LONGEST = 200
"""Characters of a line or a step that are told."""

COPIED = 50 * MB
"""Bytes that an engine copies in a second, at the least, when it has much to do."""

TRIES = 3
"""How often a build is begun that loses what it stands on."""

_STEP = re.compile(r"step (\d+)/(\d+) ?: (.*)", re.IGNORECASE)
_MADE = re.compile(r"-+> ([0-9a-f]{10,64})")
_CACHED = re.compile(r"-+> using cache", re.IGNORECASE)
_NOISE = re.compile(r"---> |Removing intermediate container|Successfully (?:built|tagged) ")
_LOST = re.compile(r"(?:unable to find image|no such image:?) \"?sha256:", re.IGNORECASE)
_NOT_FOUND = re.compile(r"excluded by \.dockerignore: stat (.+): file does not exist")
_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[@-_])|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class StepLostError(StateError):
    """What a build had made, or found made, was removed while it went on."""


@dataclass
class Output:
    """What a build has printed.

    Attributes:
        step: the step it is at, such as ``step 2 of 3: COPY a b``; empty before the first.
        last: the last lines of this step.
        made: the images that it has made on the way; not those that were there.
        image: the image that came of it.
        begun: all was sent that it needs, so it goes on by itself.
    """

    step: str = ""
    last: deque[str] = field(default_factory=lambda: deque(maxlen=SHOWN))
    made: list[str] = field(default_factory=list)
    image: str = ""
    begun: bool = False
    _rest: str = ""
    _known: bool = False

    def add(self, line: Mapping[str, Any]) -> None:
        """Takes one line of what the engine tells."""
        self.image = str((line.get("aux") or {}).get("ID") or self.image)
        *whole, self._rest = (self._rest + str(line.get("stream") or "")).split("\n")
        for text in whole:
            self._line(_CONTROL.sub("", text.rpartition("\r")[2] or text).rstrip())

    def _line(self, text: str) -> None:
        bare = text.strip()
        if found := _STEP.fullmatch(bare):
            if found[3].replace('"', "").startswith(f"LABEL {LABEL}"):
                self._known = False
                return  # of ours, and of no interest
            self.step = f"step {found[1]} of {found[2]}: {_short(found[3])}"
            self._known = found[3].upper().startswith("FROM")  # what is below is there already
            self.last.clear()
        elif _CACHED.match(bare):
            self._known = True
        elif made := _MADE.fullmatch(bare):
            self.made += [] if self._known else [made[1]]
        elif bare and not _NOISE.match(bare):
            self.last.append(text[:LONGEST])


def build(
    engine: Engine,
    plan: ImagePlan,
    query: Mapping[str, Any],
    pack: Callable[[Writer], None],
    tell: Callable[[str], None],
) -> str:
    """Builds an image and returns its id.

    Args:
        engine: the engine.
        plan: the image.
        query: how, in the words of the engine's interface.
        pack: writes what is sent as a tar archive.
        tell: called with a line about what is going on, when it takes long.

    Raises:
        StateError: it cannot be built; what was made on the way is removed.
    """
    # builds share the steps that are the same, and who removes the image of one of them at this very moment
    # takes along what only that image, and for now nobody's, was made of
    for _ in range(TRIES - 1):
        with suppress(StepLostError):
            return _build_once(engine, plan, query, pack, tell)
    return _build_once(engine, plan, query, pack, tell)


def _build_once(
    engine: Engine,
    plan: ImagePlan,
    query: Mapping[str, Any],
    pack: Callable[[Writer], None],
    tell: Callable[[str], None],
) -> str:
    output = Output()
    ongoing = Ongoing(tell, f"building {plan.name}", at_once=plan.tree.size > MUCH)

    def send(take: Callable[[bytes], None]) -> None:
        writer = Writer(take, plan, ongoing)
        pack(writer)
        writer.flush()
        output.begun = True

    try:
        Writer(lambda piece: None, plan, ongoing).tell()
        with ongoing:
            try:
                with engine.upload("/build", query, send) as lines:
                    _follow(lines, plan, output, ongoing)
            except EngineError as error:  # it cannot even read the Dockerfile
                raise _failed(plan, output, error.message) from error
            ongoing.done(f"built {plan.name} from {plan.about} in {ongoing.seconds:.1f} s")
    except BaseException as error:
        _clear_away(engine, output.made)
        if isinstance(error, KeyboardInterrupt) and output.begun and not plan.dockerfile:
            _clear_away_late(engine, plan)
        raise
    if not output.image:
        raise StateError(f"the engine has built {plan.name}, and does not say what came of it")
    return output.image


def _follow(lines: Iterable[bytes], plan: ImagePlan, output: Output, ongoing: Ongoing) -> None:
    """Reads what an engine tells of a build, and tells where it is."""
    for line in map(json.loads, filter(None, map(bytes.strip, lines))):
        output.add(line)
        if "error" in line:
            output.add({"stream": "\n"})
            raise _failed(plan, output, str(line["error"]))
        ongoing.update(output.step, last=tuple(output.last)[-3:])


class Writer:
    """Takes what an archive is written to, sends it in larger pieces, and tells how far it is.

    Args:
        take: sends some bytes.
        plan: what is sent.
        ongoing: what is told.
    """

    def __init__(self, take: Callable[[bytes], None], plan: ImagePlan, ongoing: Ongoing) -> None:
        self._take, self._tree, self._ongoing = take, plan.tree, ongoing
        self._held, self._count = bytearray(), 0
        self._broken = False

    def write(self, data: bytes, /) -> None:
        """Takes some bytes."""
        self._held.extend(data)
        if len(self._held) >= PIECE:
            self.flush()

    def flush(self) -> None:
        """Sends what is held; nothing after a piece that was broken off, which has to be the last."""
        if self._held and not self._broken:
            self._broken = True
            self._take(bytes(self._held))
            self._broken = False
            self._count += len(self._held)
            self._held.clear()
            self.tell()

    def tell(self) -> None:
        """Tells how far it is."""
        size = self._tree.size
        part = Part("", "", min(self._count, size), size)
        self._ongoing.update(f"sending {counted(self._tree.files)}", (part,))


def _failed(plan: ImagePlan, output: Output, error: str) -> StateError:
    reason = " ".join(_CONTROL.sub("", error).split())
    if code := re.search(r"(?:returned a non-zero code:|exit status) (\d+)$", reason):
        reason = f"exit code {code[1]}"
    reason = _short(reason)
    where = f" at {output.step}" if output.step else ""
    told = "".join(f"\n│ {text}" for text in output.last if text.strip() != reason)
    by = f" by its {plan.dockerfile}" if plan.dockerfile else ""
    kind = StepLostError if _LOST.search(reason) else StateError
    hint = _takes_along(plan, reason)
    if "buildkit" in reason.lower():
        hint = "build it yourself: docker buildx build -t NAME --load .   then: --image NAME"
    return kind(
        f"the image of workspace {plan.workspace} could not be built{by}{where}: {reason}{told}", hint=hint
    )


def _takes_along(plan: ImagePlan, reason: str) -> str | None:
    """Returns how a file that a step has not found comes along, where the built-in list leaves it behind."""
    found = _NOT_FOUND.search(reason)
    path = found[1].strip("/") if found else ""
    left = [name.rstrip("/") for name in plan.tree.left.get(BUILT_IN, ())]
    if not path or not any(path == name or path.startswith(f"{name}/") for name in left):
        return None
    return f"files of this name are left behind unasked; a line in .torchxignore takes it along: !{path}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 2] + ".."


def _clear_away(engine: Engine, made: list[str]) -> None:
    """Removes what a build that failed, or was stopped, has made on the way."""
    for image in reversed(made):
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            try:
                told = inspect_image(engine, image)
                if told is not None and not told.get("RepoTags"):
                    engine.call("DELETE", f"/images/{image}", {"noprune": 1})
                break
            except EngineError as error:
                # its container goes a moment after we do; and what others build on stays
                if error.status != 409 or "container" not in error.message:
                    break
                time.sleep(0.1)
            except StateError:
                return  # the engine is gone, which is told already


def _clear_away_late(engine: Engine, plan: ImagePlan) -> None:
    """Removes what a build makes that was stopped: an engine does not break off a step that copies files."""
    asked = {"filters": {"dangling": ["true"], "label": [f"{CONTENT_LABEL}={plan.digest}"]}}
    end = time.monotonic() + 1.0 + plan.tree.size / COPIED
    with suppress(StateError):  # what stays is taken by a prune
        while time.monotonic() < end:
            for image in engine.call("GET", "/images/json", asked):
                engine.call("DELETE", f"/images/{image['Id']}")
                return
            time.sleep(0.1)
