"""Notes about steps after a submission that have failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torchx.errors import TorchxError


@contextmanager
def as_note(notes: list[str], lost: str) -> Iterator[None]:
    """Turns any error of a step after a submission into a note: the handle must be returned all the same.

    Args:
        notes: gets the note.
        lost: the effect for the user.
    """
    try:
        yield
    except TorchxError as error:
        notes.append(f"{lost}: {error.message}")
    except Exception as error:
        notes.append(f"{lost}: {type(error).__name__}: {error}")
