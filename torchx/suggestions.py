"""Suggestions for misspelled names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from torchx.lazy import lazy_imports

with lazy_imports:
    import difflib


LEAST = 0.75
"""Minimum similarity of a suggested name; an agent follows a wrong one."""

_MEANT = "did you mean `([^`]*)`"


def nearest(word: str, known: Iterable[str], likeness: float = LEAST) -> str | None:
    """Returns the known name that is closest to the given one, None if no name is close.

    A name with the same letters in another order is close, and the only one that begins with the given one; a
    name that is only the beginning of the given one is not, except for a last letter.

    Args:
        word: the given name.
        known: the known names.
        likeness: the least share of letters in common, from 0 to 1.

    >>> nearest("log_dri", ["log_dir", "prepend_cwd"])
    'log_dir'
    >>> nearest("zzz", ["log_dir"]) is None
    True
    """
    candidates = [name for name in known if not _begins(name.lower(), word.lower())]
    by_lower = {c.lower(): c for c in reversed(candidates)}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=likeness)
    found = found or [name for name in by_lower if sorted(name) == sorted(word.lower())]
    begun = [name for name in by_lower if len(word) > 2 and name.startswith(word.lower())]
    if not found and len(begun) == 1:
        found = begun
    if found:
        return by_lower[found[0]]
    return None


def _begins(name: str, text: str) -> bool:
    """Returns True if a text is a name and more than one further letter: `login` does not mean `log`."""
    return text.startswith(name) and len(text) > len(name) + 1


def did_you_mean(word: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """Returns the hint of an error about an unknown name.

    >>> did_you_mean("ehco", ["echo", "sh"], "all components: torchx builtins")
    'did you mean `echo`?   all components: torchx builtins'
    >>> did_you_mean("zzz", ["echo"], "all components: torchx builtins")
    'all components: torchx builtins'
    """
    close = nearest(word, known)
    parts = ([f"did you mean `{close}`?"] if close else []) + ([otherwise] if otherwise else [])
    return "   ".join(parts) or None


def near_path(path: str, pattern: str = "*", name: str = "") -> str:
    """Returns the hint of an error about a file or folder that does not exist: a similar one, or its place.

    Args:
        path: the path.
        pattern: the names to suggest.
        name: the path as the user wrote it (default: the same).

    >>> near_path("/no-such-folder/train.py"), near_path("/no-such-folder/train.py", name="train.py")
    ('to see the folder: ls /', 'looked for /no-such-folder/train.py   to see the folder: ls /')
    """
    place = Path(path).absolute()
    close = nearest(place.name, [each.name for each in place.parent.glob(pattern)])
    if close:
        return f"did you mean `{Path(name or path).with_name(close)}`?"
    folder = next(each for each in place.parents if each.is_dir())
    hint = f"to see the folder: ls {shlex.quote(str(folder))}"
    if str(place) == (name or path):
        return hint
    return f"looked for {place}   {hint}"


def meant_in(hint: str) -> str | None:
    """Returns the name that a hint of :func:`did_you_mean` suggests, None if it suggests none.

    >>> meant_in("did you mean `echo`?   all components: torchx builtins")
    'echo'
    """
    found = re.match(_MEANT, hint)
    if found:
        return found[1]
    return None


def without_password(text: str) -> str:
    """Returns a text with the passwords of its URLs masked.

    >>> without_password("ftp://me:secret@host/src")
    'ftp://me:***@host/src'
    """
    if "@" in text:
        return re.sub(r"(\w://[^\s/@:]*:)[^\s/@]*@", r"\1***@", text)
    return text
