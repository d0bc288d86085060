"""Random histories: the recorded source is restored byte by byte.

A thousand of them: ``TORCHX_HISTORIES=1000 pytest tests/provenance/test_histories.py``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from gits import again, git, tree
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("TORCHX_HISTORIES", "8"))

NAMES = st.sampled_from(
    [
        b"a", b"b.txt", b"-rf", b"--", b"new\nline", b"tab\t", b'"quote"', b"back\\slash", b"sp ace ",
        b"\xff\xfe", "é".encode(), b"*", b"[a]", b":(top)x", b"git~1", b"#c", b"!d", b"$HOME", b"'",
    ]
)  # fmt: skip
FOLDERS = st.sampled_from([b"", b"d", b"d/e", b"-d", b"d\n", b"\xfe", b"a", b"b.txt"])
PATHS = st.builds(os.path.join, FOLDERS, NAMES)
CONTENTS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"", b"line\n", b"crlf\r\n", b"no end", b"$Id$\n", b"\0binary", b"x" * 70_000]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), PATHS, CONTENTS),
        st.tuples(st.just("link"), PATHS, st.sampled_from([b"a", b"../x", b"/nowhere", b"\xff", b"d"])),
        st.tuples(st.just("remove"), PATHS, st.just(b"")),
        st.tuples(st.just("exec"), PATHS, st.just(b"")),
        st.tuples(st.just("rename"), PATHS, PATHS),
        st.tuples(st.just("add"), PATHS, st.just(b"")),
        st.tuples(st.just("uncache"), PATHS, st.just(b"")),
        st.tuples(st.just("commit"), st.just(b""), st.just(b"")),
        st.tuples(
            st.just("attributes"), st.just(b""), st.sampled_from([b"* text=auto\n", b"* eol=crlf ident\n"])
        ),
    ),
    min_size=3,
    max_size=25,
)


def step(folder: Path, kind: str, path: bytes, other: bytes) -> None:
    """Changes a working tree or its index; what does not fit the state of the tree has no effect."""
    full = os.path.join(os.fsencode(folder), path)
    with contextlib.suppress(OSError):
        if kind in ("write", "link", "rename") and not os.path.isdir(full):
            os.makedirs(os.path.dirname(full), exist_ok=True)
        if kind == "write" and not os.path.islink(full):
            Path(os.fsdecode(full)).write_bytes(other)
        elif kind == "link":
            os.symlink(other, full)
        elif kind == "remove":
            shutil.rmtree(full) if os.path.isdir(full) and not os.path.islink(full) else os.unlink(full)
        elif kind == "exec" and not os.path.islink(full):
            os.chmod(full, 0o755)
        elif kind == "rename":
            os.makedirs(os.path.dirname(os.path.join(os.fsencode(folder), other)), exist_ok=True)
            os.rename(full, os.path.join(os.fsencode(folder), other))
        elif kind == "attributes":
            (folder / ".gitattributes").write_bytes(other)
    if kind == "add":
        git(folder, "--literal-pathspecs", "add", "--", path, check=False)
    elif kind == "uncache":
        git(folder, "--literal-pathspecs", "rm", "-q", "-r", "--cached", "--", path, check=False)
    elif kind == "commit":
        git(folder, "commit", "-q", "-m", "x", check=False)


@settings(max_examples=EXAMPLES)
@given(STEPS, st.sampled_from([(), ("core.autocrlf", "true"), ("core.autocrlf", "input")]))
def test_a_history_is_restored_byte_by_byte(
    steps: list[tuple[str, bytes, bytes]], setting: tuple[str, ...]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "r")
        folder.mkdir()
        git(folder, "init", "-q")
        git(folder, "config", "core.protectNTFS", "false")
        if setting:
            git(folder, "config", *setting)
        for kind, path, other in steps:
            step(folder, kind, path, other)
        before = tree(folder)
        target, notes, provenance = again(folder, Path(place))
        assert tree(target) == before, (notes, provenance.source)
        assert tree(folder) == before  # and the working tree is unchanged
