"""Begins the record of a submission; a process of its own reads the parts that take time."""

from __future__ import annotations

import os
from pathlib import Path

from torchx.machine import files, locks, processes
from torchx.provenance.model import Provenance, Source
from torchx.provenance.store import Store
from torchx.provenance.submission import Submission
from torchx.supervisor.process import python_command
from torchx.version import __version__

MODULE = "torchx.provenance.recorder"


def source_of(submission: Submission) -> Source | None:
    """Returns the known part of the source of a submission; None without a repository."""
    repository, head = submission.repository, submission.head
    if submission.inherited is not None or repository is None:
        return submission.inherited
    return Source(repository.top, head.commit or "", head.branch, objects=repository.objects)


def start(
    folder: Path, submission: Submission, command_line: str, home: Path, program: str, *, live: bool
) -> int:
    """Begins a record and starts the process that completes it, without waiting for it.

    Args:
        folder: the folder of the record.
        submission: the facts that were read before the submission.
        command_line: the command line, with secrets masked.
        home: the state home.
        program: the path of the first role's program; empty if it does not run on this machine.
        live: the program runs in the working tree itself.

    Returns:
        The pid of the process, which ends as soon as the recording one has separated from the caller.

    Raises:
        OSError: the record cannot be written, or the process cannot be started.
    """
    files.make_folder(folder)
    store = Store(folder)
    held = locks.acquire(store.lock)
    if held is None:
        raise FileExistsError(f"{folder} is being recorded")
    try:
        begun = Provenance(
            submitted_at=submission.at,
            torchx_version=__version__,
            command_line=command_line,
            directory=submission.directory,
            live=live,
            source=source_of(submission),
            notes=submission.notes,
            recording=True,
        )
        store.write(begun)
        args = [str(folder), str(home), program, submission.earlier]
        return processes.spawn(python_command(MODULE, args), pass_fds=[held]).pid
    finally:
        os.close(held)
