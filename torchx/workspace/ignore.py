"""What of a folder stays behind: a short built-in list, `.dockerignore`, then `.torchxignore`.

The matcher of the ``docker`` package would take longer to load than all the rest, and it folds case, knows no
backslash and misses `**/name` above the last folder; `pathspec` knows the rules of git, which are others. So
the patterns become regular expressions here, and a test holds them against a slow and obvious reading.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torchx.errors import UsageError

FILES = (".dockerignore", ".torchxignore")
"""The files of a project's root that tell what stays behind, in the order in which they count."""

SECRETS = (
    ".env", ".env.*", ".netrc", ".pypirc", ".git-credentials", ".ssh", ".aws", ".azure", ".gnupg", ".kube",
    ".docker",
)  # fmt: skip
"""Names of what holds passwords and keys."""

CLUTTER = (
    ".git", ".hg", ".svn", ".torchx", ".venv", "__pycache__", "*.pyc", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".tox", ".nox", ".ipynb_checkpoints", ".DS_Store",
)  # fmt: skip
"""Names of what each machine makes for itself."""

BUILT_IN = "built in"
"""Where the short list stands, beside the two files."""

_LITERAL = frozenset(name for name in (*SECRETS, *CLUTTER) if "*" not in name)
_SAMPLES = (*_LITERAL, ".env.local", "module.pyc")
_WILD = re.compile(r"[*?\[\\]")
_FOLDER = r"\x00"
"""Stands behind the path of a folder when it is matched; no name has it."""


def is_built_in(name: str) -> bool:
    """Tells whether a name stands on the built-in list.

    >>> is_built_in(".git"), is_built_in(".env.local"), is_built_in("a.pyc"), is_built_in("env")
    (True, True, True, False)
    """
    return name in _LITERAL or name.endswith(".pyc") or name.startswith(".env.")


@dataclass(frozen=True)
class Rule:
    """A line of an ignore file.

    Attributes:
        text: the line.
        source: the file it stands in.
        pattern: a regular expression of the paths it means, with all that is below them.
        takes: it begins with ``!``: what it means comes along after all.
        names_built_in: it names something of the built-in list, so it counts for that as well.
        prefix: the folders that all its paths begin with.
    """

    text: str
    source: str
    pattern: str
    takes: bool
    names_built_in: bool
    prefix: str


def parse(text: str, source: str) -> list[Rule]:
    """Reads an ignore file.

    Raises:
        UsageError: a line cannot be understood.
    """
    rules = []
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.strip()
        if raw.startswith("#") or not line:
            continue
        takes = line.startswith("!")
        pattern = line[1:].strip() if takes else line
        try:
            rules += [_rule(pattern, line, source, takes=takes)] if pattern != "." else []
        except (ValueError, re.error) as error:
            raise UsageError(
                f"{source} line {number}: `{line}` cannot be understood ({error})",
                hint="a pattern is a path with *, ** and ?; \\ takes the next character as it is",
            ) from None
    return rules


def _rule(pattern: str, line: str, source: str, *, takes: bool) -> Rule:
    if not pattern:
        raise ValueError("nothing stands behind the !")
    loose = source == ".torchxignore"
    only_folders = loose and pattern.endswith("/")
    clean = posixpath.normpath(pattern).lstrip("/") or "/"
    segments = clean.split("/")
    plain = next((n for n, segment in enumerate(segments) if _WILD.search(segment)), len(segments))
    return Rule(
        text=line,
        source=source,
        pattern=_regex(clean, loose=loose)
        + (rf"(?:/.*|{_FOLDER})" if only_folders else rf"(?:/.*|{_FOLDER})?"),
        takes=takes,
        names_built_in=takes and any(map(_names_built_in, segments)),
        prefix="/".join(segments[:plain]),
    )


def _names_built_in(segment: str) -> bool:
    """Tells whether a part of a pattern means a name of the built-in list, and not just any name.

    >>> [_names_built_in(s) for s in (".env", ".env*", "*.pyc", "*", ".*", "src")]
    [True, True, True, False, False, False]
    """
    said = len(segment) - sum(map(segment.count, "*?[]"))
    return said > 2 and any(fnmatchcase(sample, segment) for sample in _SAMPLES)


def _regex(pattern: str, *, loose: bool) -> str:
    """Returns the regular expression of a pattern.

    Args:
        pattern: the pattern.
        loose: as in `.torchxignore`: ``*`` and ``?`` go over slashes.
    """
    any_text, any_one = (".*", rf"[^{_FOLDER}]") if loose else ("[^/]*", rf"[^/{_FOLDER}]")
    found, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*" and pattern[at : at + 1] == "*":
            at += 1
            deep = pattern[at : at + 1] == "/"
            at += deep
            if at == len(pattern):
                found += ".*"
            else:
                found += "(?:.*/)?" if deep or not loose else ".*"
        elif char == "*":
            found += any_text
        elif char == "?":
            found += any_one
        elif char == "[":
            one, at = _class(pattern, at, loose=loose)
            found += one
        elif char == "\\":
            if at == len(pattern):
                raise ValueError("nothing stands behind the \\")
            found += re.escape(pattern[at])
            at += 1
        else:
            found += re.escape(char)
    return found


def _class(pattern: str, at: int, *, loose: bool) -> tuple[str, int]:
    """Returns the regular expression of a class of characters and where it ends.

    Args:
        pattern: the pattern.
        at: what follows its ``[``.
        loose: as in `.torchxignore`: ``!`` negates like ``^``, and a ``[`` alone is one.
    """
    start = at
    negated = pattern[at : at + 1] in (("^", "!") if loose else ("^",))
    at += negated
    members = ""
    while at < len(pattern) and (pattern[at] != "]" or (loose and not members)):
        escaped = pattern[at] == "\\" and at + 1 < len(pattern)
        at += escaped
        dash = pattern[at] == "-" and not escaped
        members += "-" if dash else re.escape(pattern[at])
        at += 1
    if at >= len(pattern) or not members:
        if loose:
            return r"\[", start
        raise ValueError("a [ without its ]" if at >= len(pattern) else "nothing stands in the []")
    return f"[{f'^{_FOLDER}' if negated else ''}{members}]", at + 1


class Rules:
    """What of one project stays behind.

    Args:
        rules: the lines of its ignore files, in their order; the last one that means a path decides.
    """

    def __init__(self, rules: list[Rule]) -> None:
        # one expression for each run of like lines: few searches for many lines
        runs: list[list[Rule]] = []
        for rule in rules:
            if runs and _kind(runs[-1][0]) == _kind(rule):
                runs[-1].append(rule)
            else:
                runs.append([rule])
        self._runs = [
            (re.compile("|".join(f"(?:{r.pattern})" for r in run), re.DOTALL).fullmatch, run[0])
            for run in reversed(runs)
        ]
        self._takes = [
            [(r.prefix + "/" if r.prefix else "", r.names_built_in) for r in run if r.takes]
            for run in reversed(runs)
        ]

    def why_left(self, path: str, *, is_dir: bool, built_in: bool) -> str | None:
        """Returns the file whose line leaves a path behind, None when it comes along.

        Args:
            path: the path within the project.
            is_dir: it is a folder.
            built_in: it, or a folder above it, is on the built-in list.
        """
        wanted = path + "\0" if is_dir else path
        for matches, first in self._runs:
            if built_in and first.takes and not first.names_built_in:
                continue
            if matches(wanted):
                return None if first.takes else first.source
        return BUILT_IN if built_in else None

    def names(self, folder: str) -> bool:
        """Tells whether a line asks for just this folder."""
        return any(prefix == folder + "/" for prefixes in self._takes for prefix, _ in prefixes)

    def may_take_below(self, folder: str, *, built_in: bool) -> bool:
        """Tells whether something in a folder that stays behind may have to come along after all."""
        inside = folder + "/"
        for (matches, first), prefixes in zip(self._runs, self._takes, strict=True):
            if not first.takes and matches(folder + "\0"):
                return False  # whatever is said before this line, it means all of the folder
            for prefix, names_built_in in prefixes:
                if (names_built_in or not built_in) and (
                    prefix.startswith(inside) or inside.startswith(prefix)
                ):
                    return True
        return False


def _kind(rule: Rule) -> tuple[str, bool, bool]:
    return rule.source, rule.takes, rule.names_built_in
