"""The pages of the documentation and the blocks of code on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT")
PAGES = [*(ROOT / f"{name}.md" for name in TOP), *sorted((ROOT / "docs").glob("*.md"))]

FENCE = re.compile(
    r"^(?:<!-- (?P<note>[^\n]*) -->\n)?```(?P<language>[a-z]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        page: the file.
        line: the first line of its text.
        language: console, python, …
        text: its text.
        note: the comment above it: ``torch`` if it needs PyTorch, ``file: NAME`` if it is the text of a file,
            ``not run: REASON``.
    """

    page: Path
    line: int
    language: str
    text: str
    note: str

    @property
    def needs_torch(self) -> bool:
        return self.note == "torch"

    @property
    def file(self) -> str | None:
        return self.note.removeprefix("file: ") if self.note.startswith("file: ") else None

    @property
    def is_run(self) -> bool:
        return not self.note.startswith("not run: ")

    def commands(self) -> Iterator[tuple[int, str, list[str]]]:
        """Yields line, command and expected output of each ``$ …`` in the block."""
        found: list[tuple[int, str, list[str]]] = []
        for number, line in enumerate(self.text.splitlines(), self.line):
            if line.startswith("$ "):
                found.append((number, line[2:], []))
            elif found:
                found[-1][2].append(line)
        return iter(found)


def blocks(page: Path) -> list[Block]:
    """Returns all blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, match.start("text")) + 1,
            match["language"],
            match["text"],
            match["note"] or "",
        )
        for match in FENCE.finditer(text)
    ]


SLOW = [
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^\S+ (?:is being cancelled[:,] |SUCCEEDED after ).*\n",
        r"^(?:usage  |  note: .* used).*\n",
    )
]
"""Lines about slow jobs, which a busy machine prints for quick jobs too."""


def matches(expected: list[str], output: str) -> bool:
    """Returns True if an output matches; ``…`` matches any text, on a line of its own any lines.

    >>> matches(["app-…  RUNNING"], "app-x1  RUNNING\\n"), matches(["a", "…", "d"], "a\\nb\\nc\\nd\\n")
    (True, True)
    >>> matches(["a"], "a\\nb\\n")
    False
    >>> matches(["a"], "a\\napp-x1 SUCCEEDED after 1.2 s\\n"), matches(["a"], "a\\nusage  mean CPU 1.0\\n")
    (True, True)
    """
    pattern = ""
    for line in expected:
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(re.escape(part) for part in line.rstrip().split("…")) + r"[ \t]*\n"
    for slow in SLOW:
        if not any(slow.match(f"{line}\n") for line in expected):
            output = slow.sub("", output)
    # empty lines at the end do not matter
    return re.fullmatch(pattern, output.rstrip("\n") + "\n" if output.strip() else "") is not None
