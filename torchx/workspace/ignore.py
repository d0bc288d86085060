"""What of a folder stays behind: a short built-in list, `.dockerignore`, then `.torchxignore`.

The matcher of the ``docker`` package would take longer to load than all the rest, and it folds case, knows no
backslash and misses `**/name` above the last folder; `pathspec` knows the rules of git, which are others. So
the patterns become regular expressions here, and a test compares them with a real ``docker build``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from torchx.errors import UsageError
from torchx.workspace import docker_patterns
from torchx.workspace.private import KEYS, MAYBE_KEYS, SECRETS

DOCKER = ".dockerignore"
FILES = (DOCKER, ".torchxignore")
"""The files of a project's root that tell what stays behind, in the order in which they count."""

CLUTTER = (
    ".git", ".hg", ".svn", ".torchx", ".venv", "__pycache__", "*.pyc", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".tox", ".nox", ".ipynb_checkpoints", ".DS_Store",
)  # fmt: skip
"""Names of what each machine makes for itself."""

BUILT_IN = "built in"
"""Where the short list stands, beside the two files."""

PRIVATE = "private keys"
"""The reason for which a private key stays behind, beside the list."""

_LITERAL = frozenset(name for name in (*SECRETS, *CLUTTER, *KEYS) if "*" not in name)
_STARTS = (".env.",)
_KEY_ENDS = tuple(name.removeprefix("*") for name in KEYS if name.startswith("*"))
_ENDS = (".pyc", ".kubeconfig", *_KEY_ENDS)
_SAMPLES = (*_LITERAL, ".env.local", "module.pyc", *(f"some{end}" for end in (*_ENDS, *MAYBE_KEYS)))
_WILD = re.compile(r"[*?\[\\]")
_FLAGS = re.DOTALL | re.ASCII
_FOLDER = r"\x00"
"""Stands behind the path of a folder when it is matched; no name has it."""


LARGEST = 1 << 20
"""Characters of an ignore file that are read."""


def is_built_in(name: str) -> bool:
    """Tells whether a name stands on the built-in list.

    >>> is_built_in(".git"), is_built_in(".env.local"), is_built_in("a.pyc"), is_built_in("env")
    (True, True, True, False)
    """
    return name in _LITERAL or name.endswith(_ENDS) or name.startswith(_STARTS)


def maybe_key(name: str) -> bool:
    """Returns True if a private key or a public certificate may stand in a file of this name.

    >>> maybe_key("cacert.pem"), maybe_key("a.py")
    (True, False)
    """
    return name.endswith(MAYBE_KEYS)


@dataclass(frozen=True)
class Rule:
    """A line of an ignore file.

    Attributes:
        text: the line.
        source: the file it stands in.
        pattern: a regular expression of the paths it means.
        takes: it begins with ``!``: what it means comes along after all.
        names_built_in: it names something of the built-in list, so it counts for that as well.
        prefix: the folders that all its paths begin with.
        path: its pattern in the shortest form.
    """

    text: str
    source: str
    pattern: str
    takes: bool
    names_built_in: bool
    prefix: str
    path: str


def parse(text: str, source: str) -> list[Rule]:
    """Reads an ignore file.

    Raises:
        UsageError: a line cannot be understood.
    """
    if len(text) > LARGEST:
        raise UsageError(f"{source} has {len(text):,} characters, more than the {LARGEST:,} that are read")
    rules = []
    space = docker_patterns.SPACE if source == DOCKER else None
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.strip(space)
        if raw.startswith("#") or not line:
            continue
        takes = line.startswith("!")
        pattern = line[1:].strip(space) if takes else line
        try:
            rule = _rule(pattern, line, source, takes=takes)
            re.compile(rule.pattern, _FLAGS)
        except (ValueError, re.error) as error:
            raise UsageError(
                f"{source} line {number}: `{line}` is not a valid pattern ({error})",
                hint="a pattern is a path with *, ** and ?; \\ takes the next character as it is",
            ) from None
        if rule.path != ".":
            rules.append(rule)
    return rules


def _rule(pattern: str, line: str, source: str, *, takes: bool) -> Rule:
    clean = docker_patterns.clean(pattern, takes=takes)
    if source == DOCKER:
        expression = docker_patterns.regex(clean)
    else:
        expression = _regex(re.sub(r"(\*\*/)+", "**/", clean)) + (
            _FOLDER if pattern.endswith("/") else f"{_FOLDER}?"
        )
    segments = clean.split("/")
    plain = next((n for n, segment in enumerate(segments) if _WILD.search(segment)), len(segments))
    return Rule(
        text=line,
        source=source,
        pattern=expression,
        takes=takes,
        names_built_in=takes and any(map(_names_built_in, segments)),
        prefix="/".join(segments[:plain]),
        path=clean,
    )


def _names_built_in(segment: str) -> bool:
    """Tells whether a part of a pattern means a name of the built-in list, and not just any name.

    >>> [_names_built_in(s) for s in (".env", ".env*", "*.pyc", "*", ".*", "src")]
    [True, True, True, False, False, False]
    """
    said = len(segment) - sum(map(segment.count, "*?[]"))
    known = is_built_in(segment) or maybe_key(segment)
    return said > 2 and (known or any(fnmatchcase(sample, segment) for sample in _SAMPLES))


def _regex(pattern: str) -> str:
    """Returns the regular expression of a pattern of `.torchxignore`: ``*`` and ``?`` also match slashes."""
    found, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            deep = pattern.startswith("*/", at) and at + 2 < len(pattern)
            while pattern.startswith("*", at):
                at += 1
            at += deep
            found += "(?:.*/)?" if deep else ".*"
        elif char == "?":
            found += f"[^{_FOLDER}]"
        elif char == "[":
            one, at = _class(pattern, at)
            found += one
        elif char == "\\":
            if at == len(pattern):
                raise ValueError("no character follows the \\")
            found += re.escape(pattern[at])
            at += 1
        else:
            found += re.escape(char)
    return found


def _class(pattern: str, at: int) -> tuple[str, int]:
    """Returns the regular expression of a class of characters and where it ends; a ``[`` alone is itself.

    Args:
        pattern: the pattern.
        at: what follows its ``[``.
    """
    start = at
    negated = pattern[at : at + 1] in ("^", "!")
    at += negated
    members = ""
    while at < len(pattern) and (pattern[at] != "]" or not members):
        escaped = pattern[at] == "\\" and at + 1 < len(pattern)
        at += escaped
        # a range stands between two characters; elsewhere a dash is one of them
        dash = pattern[at] == "-" and not escaped and members != "" and pattern[at + 1 : at + 2] not in "]-"
        members += "-" if dash else re.escape(pattern[at])
        at += 1
    if at >= len(pattern) or not members:
        return r"\[", start
    return f"[{f'^{_FOLDER}' if negated else ''}{members}]", at + 1


class State(NamedTuple):
    """What was found of a folder, which counts for what is in it as well.

    Attributes:
        hidden: it is on the built-in list, or below such a folder, and nobody asked for it.
        matched: for each run of like lines, whether one of them has decided about the folder.
        closed: `.dockerignore` leaves it out with all that is in it.
    """

    hidden: bool
    matched: tuple[bool, ...]
    closed: bool = False


class Rules:
    """What of one project stays behind.

    As with Docker, the last line that means a path or a folder above it decides; and as with Docker and git,
    a line with ``!`` that means a folder says nothing of what other lines leave behind in it.

    The classic builder of ``docker build`` enters a folder that is left out only if a line with ``!`` begins
    with the path of this folder, letter by letter: after ``*``, the line ``!**/*.txt`` brings back files of
    the top alone. BuildKit would enter all folders. The stricter reading counts, and :attr:`short` names the
    lines for which it matters.

    Args:
        rules: the lines of its ignore files, in their order.
        whole: the built-in list does not count.

    Attributes:
        short: lines with ``!`` that do not reach into a folder which is left out, with the first such folder.
    """

    def __init__(self, rules: list[Rule], *, whole: bool = False) -> None:
        self._whole = whole
        self._runs: list[_Run] = []
        for rule in rules:
            kind = (rule.source, rule.takes, rule.names_built_in)
            if self._runs and self._runs[-1].kind == kind:
                self._runs[-1].rules.append(rule)
            else:
                self._runs.append(_Run(kind, [rule]))
        for run in self._runs:
            run.prepare()
        self.top = State(False, (False,) * len(self._runs))
        self._docker = sum(run.source == DOCKER for run in self._runs)
        self._exceptions = [rule for rule in rules if rule.takes and rule.source == DOCKER]
        self.short: dict[str, str] = {}

    def look(self, path: str, name: str, above: State, *, is_dir: bool) -> tuple[str | None, State]:
        """Tells what is to be done with a path.

        Args:
            path: the path within the project.
            name: the last part of it.
            above: what was found of the folder it lies in.
            is_dir: it is a folder.

        Returns:
            The file whose line leaves it behind, None when it comes along; and what was found.
        """
        hidden = above.hidden or (not self._whole and is_built_in(name))
        listed = PRIVATE if name in KEYS or name.endswith(_KEY_ENDS) else BUILT_IN
        if not self._runs:
            return (listed if hidden else None), State(hidden, ())
        why: str | None = None
        matched = []
        closed = above.closed
        for place, (run, found) in enumerate(zip(self._runs, above.matched, strict=True)):
            docker = place < self._docker
            if place == self._docker and is_dir and why is not None:
                closed = closed or self._closes(path)
            wanted = path + "\0" if is_dir and not docker else path
            if run.names_built_in and hidden and run.matches(wanted):
                hidden = False
            if not found and run.takes is (why is not None) and not (above.closed and docker and run.takes):
                found = run.matches(wanted) is not None
            matched.append(found)
            if found:
                why = None if run.takes else run.source
        if self._docker == len(self._runs) and is_dir and why is not None:
            closed = closed or self._closes(path)
        return why or (listed if hidden else None), State(hidden, tuple(matched), closed)

    def _closes(self, folder: str) -> bool:
        """Returns True if no line of `.dockerignore` leads into a folder that another one leaves out."""
        inside = f"{folder}/"
        if any(f"{rule.path}/".startswith(inside) for rule in self._exceptions):
            return False
        for rule in self._exceptions:
            if _leads(f"{rule.prefix}/" if rule.prefix else "", inside) and _WILD.search(rule.path):
                self.short.setdefault(rule.text, inside)
        return True

    def names_key(self, path: str) -> bool:
        """Returns True if a line with ``!`` names a file like this one, and not just any file."""
        return any(run.names_built_in and run.matches(path) for run in self._runs)

    def notes(self) -> list[str]:
        """Returns a note on each line of `.dockerignore` that brings back less than one might think."""
        return [
            f"`{line}` in {DOCKER} does not reach into {folder}, which another line leaves out; "
            f"write the folder out, as in !{folder}{line.rpartition('/')[2].lstrip('!')}"
            for line, folder in self.short.items()
        ]

    def names(self, folder: str) -> bool:
        """Tells whether a line asks for just this folder."""
        return any(run.takes and folder + "/" in run.prefixes for run in self._runs)

    def may_take_below(self, folder: str, state: State) -> bool:
        """Tells whether something in a folder that stays behind may have to come along after all."""
        inside = folder + "/"
        for run, found in zip(reversed(self._runs), reversed(state.matched), strict=True):
            if found and not run.takes:
                return False  # it counts for all of the folder, whatever was said before
            if state.closed and run.source == DOCKER:
                return False
            wanted = run.takes and (run.names_built_in or not state.hidden)
            if wanted and any(_leads(prefix, inside) for prefix in run.prefixes):
                return True
        return False


def _leads(prefix: str, inside: str) -> bool:
    """Returns True if a path that begins with a prefix may lie in a folder."""
    return prefix.startswith(inside) or inside.startswith(prefix)


class _Run:
    """Like lines that follow each other: one search for all of them.

    Args:
        kind: their file, whether they begin with ``!``, and whether they name something built in.
        rules: the lines.
    """

    def __init__(self, kind: tuple[str, bool, bool], rules: list[Rule]) -> None:
        self.kind = kind
        self.source, self.takes, self.names_built_in = kind
        self.rules = rules

    def prepare(self) -> None:
        """Makes the expression of all lines."""
        whole = "|".join(f"(?:{rule.pattern})" for rule in self.rules)
        self.matches = re.compile(whole, _FLAGS).fullmatch
        self.prefixes = [rule.prefix + "/" if rule.prefix else "" for rule in self.rules]
