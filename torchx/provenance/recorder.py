"""The process that records source, Python and machine of a submission, after its handle is printed.

The application neither waits for it nor fails if it fails. It has limits of time and of bytes, and a low
priority.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from torchx.errors import StateError
from torchx.printable import few
from torchx.provenance.git import Deadline, GitError
from torchx.provenance.model import Provenance
from torchx.provenance.source import NO_REPOSITORY, Reader
from torchx.provenance.store import Store
from torchx.provenance.surroundings import read_machine, read_python
from torchx.supervisor.process import separate

LONGEST = 120.0
"""Maximum seconds of the recording."""

PRIORITY = 10


def main(argv: list[str]) -> None:
    """Completes the record of a submission.

    Args:
        argv: the folder of the record, the state home, the path of the first role's program, and the folder
            of an earlier record with the same source; the last two may be empty. This process also holds
            the lock of the record.
    """
    separate()
    os.umask(0o077)
    os.nice(PRIORITY)
    signal.alarm(int(2 * LONGEST))  # the record then says that the recording was interrupted
    store = Store(Path(argv[0]))
    try:
        begun = store.read()
        if begun is not None:
            if argv[3] and begun.source is not None:
                store.adopt(Store(Path(argv[3])), begun.source)
            store.write(complete(store, begun, home=argv[1], program=argv[2]))
    except (OSError, StateError):
        pass  # the application was deleted, or the disk is full: then the record says that it is incomplete
    finally:
        shutil.rmtree(store.folder / "git", ignore_errors=True)


def complete(store: Store, begun: Provenance, *, home: str, program: str) -> Provenance:
    """Returns the complete record of a submission.

    Args:
        store: the files of the record; the diff and the changed files are added.
        begun: the facts that are known so far.
        home: the state home.
        program: the path of the first role's program; empty if it does not run on this machine.
    """
    deadline, notes = Deadline(LONGEST), [*begun.notes]
    source = begun.source
    if source is None:
        notes += [] if notes else [NO_REPOSITORY]
    elif not source.complete:  # otherwise it is that of an earlier application
        reader = Reader(store, deadline, home, begun.submitted_at)
        source = reader.read(source)
        if reader.changed_since:
            notes.append(_changed_since(sorted(reader.changed_since), begun.live))
    recorded_at = time.time()
    store.write(begun._replace(source=source, recorded_at=recorded_at, notes=tuple(notes)))
    python = None
    try:
        python = read_python(program, store.folder, deadline)
    except (StateError, GitError, OSError) as error:
        notes.append(f"the packages are not known: {error}")
    return begun._replace(
        source=source,
        recorded_at=recorded_at,
        python=python,
        machine=read_machine(os.environ, deadline),
        notes=tuple(notes),
        recording=False,
    )


def _changed_since(paths: list[str], live: bool) -> str:
    count = "one file was"
    if len(paths) > 1:
        count = f"{len(paths):,} files were"
    also = ", where the program runs" if live else ""
    return f"{count} changed between the submission and the recording{also}: {few(paths)}"
