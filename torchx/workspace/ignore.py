"""The exclusion rules of a folder: a short built-in list, `.dockerignore`, then `.torchxignore`.

The matcher of the ``docker`` package is slow to import, ignores case, has no escapes and mismatches
`**/name`; `pathspec` follows git's rules, which differ. So patterns are converted to regular expressions
here, and a test compares them with a real ``docker build``.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import NamedTuple

from torchx.errors import UsageError
from torchx.workspace import docker_patterns
from torchx.workspace.private import KEYS, MAYBE_KEYS, SECRETS

DOCKER = ".dockerignore"
FILES = (DOCKER, ".torchxignore")
"""The ignore files at a project's root; later ones override earlier ones."""

CLUTTER = (
    ".git", ".hg", ".svn", ".torchx", ".venv", "__pycache__", "*.pyc", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".tox", ".nox", ".ipynb_checkpoints", ".DS_Store",
)  # fmt: skip
"""Names of generated and machine-specific files."""

BUILT_IN = "built in"
"""The source of exclusions by the built-in list."""

PRIVATE = "private keys"
"""The source of exclusions of private keys."""

_LITERAL = frozenset(name for name in (*SECRETS, *CLUTTER, *KEYS) if "*" not in name)
_STARTS = (".env.",)
_KEY_ENDS = tuple(name.removeprefix("*") for name in KEYS if name.startswith("*"))
_ENDS = (".pyc", ".kubeconfig", *_KEY_ENDS)
_SAMPLES = (*_LITERAL, ".env.local", "module.pyc", *(f"some{end}" for end in (*_ENDS, *MAYBE_KEYS)))
_WILD = r"[*?\[\\]"
_FLAGS = re.DOTALL | re.ASCII
_FOLDER = r"\x00"
"""Follows the path of a folder in a match; no name contains it."""

LARGEST = 1 << 20
"""Maximum characters of an ignore file."""


def is_built_in(name: str) -> bool:
    """Returns True if a name is on the built-in list.

    >>> is_built_in(".git"), is_built_in(".env.local"), is_built_in("a.pyc"), is_built_in("env")
    (True, True, True, False)
    """
    return name in _LITERAL or name.endswith(_ENDS) or name.startswith(_STARTS)


def maybe_key(name: str) -> bool:
    """Returns True if a file of this name may be a private key or a public certificate.

    >>> maybe_key("cacert.pem"), maybe_key("a.py")
    (True, False)
    """
    return name.endswith(MAYBE_KEYS)


class Rule(NamedTuple):
    """A line of an ignore file.

    Attributes:
        text: the line.
        source: the name of the file.
        pattern: the regular expression of the matching paths.
        includes: whether it begins with ``!``, which includes matching paths again.
        names_built_in: whether it names an item of the built-in list, and so overrides that too.
        prefix: the literal folders that all matching paths begin with.
        path: the normalized pattern.
    """

    text: str
    source: str
    pattern: str
    includes: bool
    names_built_in: bool
    prefix: str
    path: str


def parse(text: str, source: str) -> list[Rule]:
    """Parses an ignore file.

    Raises:
        UsageError: a line is invalid, or the file is too large.
    """
    if len(text) > LARGEST:
        raise UsageError(f"{source} has {len(text):,} characters, more than the maximum of {LARGEST:,}")
    rules = []
    space = None
    if source == DOCKER:
        space = docker_patterns.SPACE
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.strip(space)
        if raw.startswith("#") or not line:
            continue
        includes = line.startswith("!")
        if includes:
            pattern = line[1:].strip(space)
        else:
            pattern = line
        try:
            rule = _rule(pattern, line, source, includes=includes)
            re.compile(rule.pattern, _FLAGS)
        except (ValueError, re.error) as error:
            raise UsageError(
                f"{source} line {number}: `{line}` is not a valid pattern ({error})",
                hint="a pattern is a path with *, ** and ?; \\ escapes the next character",
            ) from None
        if rule.path != ".":
            rules.append(rule)
    return rules


def _rule(pattern: str, line: str, source: str, *, includes: bool) -> Rule:
    clean = docker_patterns.clean(pattern, includes=includes)
    if source == DOCKER:
        expression = docker_patterns.regex(clean)
    else:
        expression = _regex(re.sub(r"(\*\*/)+", "**/", clean)) + (
            _FOLDER if pattern.endswith("/") else f"{_FOLDER}?"
        )
    segments = clean.split("/")
    plain = next((n for n, segment in enumerate(segments) if re.search(_WILD, segment)), len(segments))
    return Rule(
        text=line,
        source=source,
        pattern=expression,
        includes=includes,
        names_built_in=includes and any(map(_names_built_in, segments)),
        prefix="/".join(segments[:plain]),
        path=clean,
    )


def _names_built_in(segment: str) -> bool:
    """Returns True if a part of a pattern names an item of the built-in list, and not just any name.

    >>> [_names_built_in(s) for s in (".env", ".env*", "*.pyc", "*", ".*", "src")]
    [True, True, True, False, False, False]
    """
    literal = len(segment) - sum(map(segment.count, "*?[]"))
    known = is_built_in(segment) or maybe_key(segment)
    return literal > 2 and (known or any(fnmatchcase(sample, segment) for sample in _SAMPLES))


def _regex(pattern: str) -> str:
    """Converts a pattern of `.torchxignore` to a regular expression; ``*`` and ``?`` also match slashes."""
    expression, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            deep = pattern.startswith("*/", at) and at + 2 < len(pattern)
            while pattern.startswith("*", at):
                at += 1
            at += deep
            expression += "(?:.*/)?" if deep else ".*"
        elif char == "?":
            expression += f"[^{_FOLDER}]"
        elif char == "[":
            characters, at = _class(pattern, at)
            expression += characters
        elif char == "\\":
            if at == len(pattern):
                raise ValueError("no character follows the \\")
            expression += re.escape(pattern[at])
            at += 1
        else:
            expression += re.escape(char)
    return expression


def _class(pattern: str, at: int) -> tuple[str, int]:
    """Converts a character class; returns the expression and the end position. An unclosed ``[`` is literal.

    Args:
        pattern: the pattern.
        at: the position after the ``[``.
    """
    start = at
    negated = pattern[at : at + 1] in ("^", "!")
    at += negated
    members = ""
    while at < len(pattern) and (pattern[at] != "]" or not members):
        escaped = pattern[at] == "\\" and at + 1 < len(pattern)
        at += escaped
        # a dash between two characters makes a range; elsewhere it is literal
        dash = pattern[at] == "-" and not escaped and members != "" and pattern[at + 1 : at + 2] not in "]-"
        members += "-" if dash else re.escape(pattern[at])
        at += 1
    if at >= len(pattern) or not members:
        return r"\[", start
    return f"[{f'^{_FOLDER}' if negated else ''}{members}]", at + 1


class State(NamedTuple):
    """The matches of a folder, inherited by its content.

    Attributes:
        hidden: whether the built-in list excludes it or a parent, and no line overrides that.
        matched: for each run of lines of the same kind, whether one matches the folder or a parent.
        closed: whether `.dockerignore` excludes it with all its content.
    """

    hidden: bool
    matched: tuple[bool, ...]
    closed: bool = False


class Rules:
    """The exclusion rules of one project.

    As in Docker, the last line that matches a path or a parent folder decides; as in Docker and git, a line
    with ``!`` that matches a folder does not override other lines that match its content.

    The classic builder of ``docker build`` enters an excluded folder only if a line with ``!`` literally
    begins with the path of the folder: after ``*``, the line ``!**/*.txt`` includes only files at the top.
    BuildKit enters all folders. The rules follow the classic builder, and :attr:`short` has the lines for
    which the two differ.

    Args:
        rules: the lines of the ignore files, in order.
        unfiltered: ignore the built-in list.

    Attributes:
        short: lines with ``!`` that do not apply in an excluded folder -> the first such folder.
    """

    def __init__(self, rules: list[Rule], *, unfiltered: bool = False) -> None:
        self._unfiltered = unfiltered
        self._runs: list[_Run] = []
        for rule in rules:
            kind = (rule.source, rule.includes, rule.names_built_in)
            if self._runs and self._runs[-1].kind == kind:
                self._runs[-1].rules.append(rule)
            else:
                self._runs.append(_Run(kind, [rule]))
        for run in self._runs:
            run.prepare()
        self.top = State(False, (False,) * len(self._runs))
        self._docker = sum(run.source == DOCKER for run in self._runs)
        self._exceptions = [rule for rule in rules if rule.includes and rule.source == DOCKER]
        self.short: dict[str, str] = {}

    def match(self, path: str, name: str, above: State, *, is_dir: bool) -> tuple[str | None, State]:
        """Applies the rules to a path.

        Args:
            path: the path in the project.
            name: the last part of the path.
            above: the state of its parent folder.
            is_dir: whether it is a folder.

        Returns:
            The source of the rule that excludes it, or None if it is included; and its state.
        """
        hidden = above.hidden or (not self._unfiltered and is_built_in(name))
        if name in KEYS or name.endswith(_KEY_ENDS):
            listed = PRIVATE
        else:
            listed = BUILT_IN
        if not self._runs:
            return (listed if hidden else None), State(hidden, ())
        why: str | None = None
        matched = []
        closed = above.closed
        for index, (run, decided) in enumerate(zip(self._runs, above.matched, strict=True)):
            docker = index < self._docker
            if index == self._docker and is_dir and why is not None:
                closed = closed or self._closes(path)
            if is_dir and not docker:
                subject = path + "\0"
            else:
                subject = path
            if run.names_built_in and hidden and run.matches(subject):
                hidden = False
            closed_to_run = above.closed and docker and run.includes
            if not decided and run.includes is (why is not None) and not closed_to_run:
                decided = run.matches(subject) is not None
            matched.append(decided)
            if decided:
                why = None if run.includes else run.source
        if self._docker == len(self._runs) and is_dir and why is not None:
            closed = closed or self._closes(path)
        return why or (listed if hidden else None), State(hidden, tuple(matched), closed)

    def _closes(self, folder: str) -> bool:
        """Returns True if no line of `.dockerignore` includes files in an excluded folder; fills `short`."""
        inside = f"{folder}/"
        if any(f"{rule.path}/".startswith(inside) for rule in self._exceptions):
            return False
        for rule in self._exceptions:
            if _may_contain(f"{rule.prefix}/" if rule.prefix else "", inside) and re.search(_WILD, rule.path):
                self.short.setdefault(rule.text, inside)
        return True

    def names_key(self, path: str) -> bool:
        """Returns True if a line with ``!`` names this kind of file, and not just any file."""
        return any(run.names_built_in and run.matches(path) for run in self._runs)

    def notes(self) -> list[str]:
        """Returns a note on each line of `.dockerignore` that includes less than with BuildKit."""
        return [
            f"`{line}` in {DOCKER} does not apply in {folder}, which another line excludes; "
            f"name the folder, as in !{folder}{line.rpartition('/')[2].lstrip('!')}"
            for line, folder in self.short.items()
        ]

    def names(self, folder: str) -> bool:
        """Returns True if a line includes exactly this folder."""
        return any(run.includes and folder + "/" in run.prefixes for run in self._runs)

    def may_include_below(self, folder: str, state: State) -> bool:
        """Returns True if an excluded folder may contain included files."""
        inside = folder + "/"
        for run, decided in zip(reversed(self._runs), reversed(state.matched), strict=True):
            if decided and not run.includes:
                return False  # it overrides earlier lines for all of the folder
            if state.closed and run.source == DOCKER:
                return False
            applies = run.includes and (run.names_built_in or not state.hidden)
            if applies and any(_may_contain(prefix, inside) for prefix in run.prefixes):
                return True
        return False


def _may_contain(prefix: str, inside: str) -> bool:
    """Returns True if a path that begins with a prefix may be in a folder."""
    return prefix.startswith(inside) or inside.startswith(prefix)


class _Run:
    """Consecutive lines of the same kind, matched as one expression.

    Args:
        kind: their file, whether they begin with ``!``, and whether they name a built-in item.
        rules: the lines.
    """

    def __init__(self, kind: tuple[str, bool, bool], rules: list[Rule]) -> None:
        self.kind = kind
        self.source, self.includes, self.names_built_in = kind
        self.rules = rules

    def prepare(self) -> None:
        """Compiles the expression of all lines."""
        combined = "|".join(f"(?:{rule.pattern})" for rule in self.rules)
        self.matches = re.compile(combined, _FLAGS).fullmatch
        self.prefixes = [rule.prefix + "/" if rule.prefix else "" for rule in self.rules]
