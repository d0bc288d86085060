"""`torchx cp`: copy files from or to a replica."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from torchx.errors import UsageError
from torchx.machine.files import expanded
from torchx.scheduling.progress import Ongoing, Part
from torchx.specs.handles import UnknownAppException
from torchx.specs.status import is_terminal
from torchx_cli.applications import ACTIVE, find, target_of
from torchx_cli.commands.exec import requested_replica
from torchx_cli.contexts import members, places
from torchx_cli.contexts.connection import Connection, context_of
from torchx_cli.flags import argument
from torchx_cli.session import session_of
from torchx_cli.terminal.output import counted, note, note_all, say
from torchx_cli.terminal.progress import ProgressReporter

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx_cli.contexts.places import Place

STREAM = "-"
EXAMPLES = """\b
Examples:
  torchx cp @last:out.json .
  torchx cp @last/train/0:checkpoints ./
  torchx cp config.yaml @last/train/0:/tmp/
  torchx cp @last:checkpoints - | tar t
"""


class Side(NamedTuple):
    """The source or the target of a copy.

    Attributes:
        handle: the replica, as it was written; empty for this machine.
        path: the path.
    """

    handle: str
    path: str

    @property
    def name(self) -> str:
        """The name of the copy in a folder; empty if the content of the source is copied."""
        name = self.path.rstrip("/").rpartition("/")[2]
        if name in (".", "..") or self.path.endswith("/."):
            return ""
        return name


def sides_of(text: str) -> list[Side]:
    """Returns the meanings of a source or target: ids of some engines contain a colon.

    >>> sides_of("@last/train/0:out.json"), sides_of("./a:b")
    ([Side(handle='@last/train/0', path='out.json')], [Side(handle='', path='./a:b')])
    >>> [side.path for side in sides_of("kubernetes://torchx/default:train:/tmp/a")]
    ['train:/tmp/a', '/tmp/a']
    """
    scheme = re.match("[^/:]+://|", text)
    assert scheme is not None
    colons = [found.start() for found in re.finditer(":", text) if found.start() > scheme.end()]
    if not colons or text.startswith((".", "/", "~")):
        return [Side("", text)]
    return [Side(text[:at], text[at + 1 :] or ".") for at in colons]


def cp_(
    ctx: typer.Context,
    source: Annotated[
        str, argument(metavar="SOURCE", help="A file or folder: a path, or HANDLE[/ROLE[/REPLICA]]:PATH.")
    ],
    target: Annotated[
        str, argument(metavar="TARGET", help="A path, or HANDLE[/ROLE[/REPLICA]]:PATH; - is a tar archive.")
    ],
    resume: Annotated[
        bool, typer.Option("--resume", hidden=True, help="Leave out the files that the other side lists.")
    ] = False,
    name: Annotated[
        str, typer.Option("--as", metavar="NAME", hidden=True, help="The name of the copy.")
    ] = "",
) -> int:
    """Copy files and folders from or to a replica, running or ended.

    A relative path begins at the working directory of the replica. Without a role and a replica, the first
    ones are used. `-` is a tar archive on stdin or stdout. If you repeat an interrupted copy, it continues:
    files of the same size and time of change are not copied again.
    """
    here, there = sides_of(source), sides_of(target)
    if bool(here[0].handle) == bool(there[0].handle):
        hint = "e.g. torchx cp @last/train/0:out.json .   or: torchx cp data.csv @last/train/0:"
        raise UsageError("one of SOURCE and TARGET is HANDLE:PATH, the other a path here", hint=hint)
    downloads = bool(here[0].handle)
    sides = there
    if downloads:
        sides = here
    session = session_of(ctx)
    with session.runner() as runner:
        if session.context:
            place: Place = places.Machine(Connection(context_of(session.context)), sides[-1].handle)
            side = sides[-1]
        else:
            place, side = _place_of(runner, sides)
        if resume and not downloads:
            say(json.dumps(place.have(side.path, name)), flush=True)
        with ProgressReporter(lambda _: None) as report, Ongoing(report, f"copying {source}") as ongoing:
            total = 0
            if not downloads and source != STREAM:
                total = sum(each.size for each in members.walk(expanded(source), members.Log()))
            done = 0

            def moved(count: int) -> None:
                nonlocal done
                done += count
                ongoing.update(parts=(Part("", done=done, total=max(total, done)),))

            log = members.Log(moved)
            if downloads:
                _download(place, side, target, log, resume=resume)
            else:
                _upload(place, here[0], side.path, log, name)
        note_all(log.notes)
        if target != STREAM:
            note(f"copied {counted(log.files, 'file')}")
    return 0


def _place_of(runner: Runner, sides: Sequence[Side]) -> tuple[Place, Side]:
    """Returns the files of the replica, and the side that names it."""
    *first, last = sides
    for side in first:
        with suppress(UnknownAppException):
            return _place(runner, side.handle), side
    return _place(runner, last.handle), last


def _place(runner: Runner, text: str) -> Place:
    parsed = target_of(runner, text, acts=True)
    handle, described = find(runner, parsed.handle, prefer=ACTIVE, acts=True)
    role, replica = requested_replica(parsed, described)
    return places.place_of(runner, handle, role, replica, not is_terminal(described.state))


def _download(place: Place, source: Side, target: str, log: members.Log, *, resume: bool) -> None:
    if target != STREAM:
        to, own = str(expanded(target)) + "/" * target.endswith("/"), places.Here(Path.cwd())
        with place.read(source.path, log, own.have(to, source.name)) as files:
            own.write(files, to, source.name, log)
        return
    with place.read(source.path, log) as files:
        if sys.stdout.isatty():
            hint = "e.g. torchx cp HANDLE:PATH - | tar t"
            raise UsageError("an archive is not written to a terminal", hint=hint)
        known: members.Have = {}
        if resume:
            known = members.read_have(sys.stdin.buffer.read())
        with open(os.dup(sys.stdout.fileno()), "wb", buffering=0) as out:
            members.write(files, out, log, have=known, top=source.name or ".")


def _upload(place: Place, source: Side, path: str, log: members.Log, name: str) -> None:
    if source.path == STREAM:
        with open(os.dup(sys.stdin.fileno()), "rb", buffering=0) as archive:
            place.write(members.Archive(archive), path, name, log)
    else:
        place.write(members.walk(expanded(source.path), log), path, source.name, log)
