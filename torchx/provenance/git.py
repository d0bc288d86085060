"""Git, run as a program on a repository that is only data: none of its settings, hooks or filters count.

A repository may belong to another user, and its settings name programs that git runs: monitors of files,
filters of contents, viewers of differences. So git gets a repository of our own with fixed settings, which
reads the index and the objects of the other one. All files are compared and written byte by byte, whatever
line ends and filters are set.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchx.machine import files
from torchx.masking import mask_text
from torchx.provenance.repository import Repository

LONGEST_OUTPUT = 1 << 28
"""Maximum bytes of the output of a command."""

_SETTINGS = """\
[core]
	repositoryformatversion = 1
	bare = false
	filemode = true
	symlinks = true
	ignorecase = false
	precomposeunicode = false
	protectNTFS = false
	protectHFS = false
	autocrlf = false
	safecrlf = false
	hooksPath = /dev/null
	attributesFile = /dev/null
[diff]
	renames = false
[index]
	threads = 1
[pack]
	threads = 1
"""
_ATTRIBUTES = "* -text !eol -ident !filter !working-tree-encoding !diff !merge\n"
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}


class GitError(Exception):
    """Git failed, or is not installed; the text says why."""


class Deadline:
    """The time until which commands may run.

    Args:
        seconds: their duration from now.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The remaining seconds."""
        return max(0.0, self._end - time.monotonic())


def run(
    arguments: Sequence[str | bytes],
    deadline: Deadline,
    *,
    limit: int = LONGEST_OUTPUT,
    env: Mapping[str, str] = _ENVIRONMENT,
) -> bytes:
    """Runs git and returns its output.

    Args:
        arguments: its arguments.
        deadline: git is killed then.
        limit: maximum bytes of the output.
        env: its variables in addition to PATH and the place of the user's settings.

    Raises:
        GitError: it is not installed, fails, takes too long, or has more output.
    """
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_CONFIG_HOME") if name in os.environ}
    with tempfile.TemporaryFile() as errors:
        try:
            child = subprocess.Popen(
                ["git", "--no-pager", *arguments],
                env={**kept, **env},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        except OSError as error:
            missing = error.errno == errno.ENOENT
            raise GitError("git is not installed" if missing else f"git: {error.strerror}") from error
        timer = threading.Timer(deadline.left, child.kill)
        timer.daemon = True
        timer.start()
        try:
            with child:
                assert child.stdout is not None
                output = child.stdout.read(limit + 1)
                if len(output) > limit:
                    child.kill()
        finally:
            timer.cancel()
        errors.seek(0)
        text = errors.read(1 << 16).decode("utf-8", "replace").strip().split("\n")[0]
    if not deadline.left:
        raise GitError("git took too long")
    if len(output) > limit:
        raise GitError(f"the output of git has more than {limit >> 20} MB")
    if child.returncode:
        reason = mask_text(text)[:300] or f"exit code {child.returncode}"
        raise GitError(f"git {os.fsdecode(arguments[0])}: {reason}")
    return output


def settings(repository: Repository, deadline: Deadline) -> dict[str, str]:
    """Returns the settings of a repository and of its user, which git only reads here.

    Raises:
        GitError: git failed.
    """
    env = {name: value for name, value in _ENVIRONMENT.items() if not name.startswith("GIT_CONFIG")}
    env["GIT_DIR"] = repository.git_dir
    items = run(["config", "--list", "-z"], deadline, env=env).split(b"\0")
    pairs = (os.fsdecode(item).partition("\n") for item in items)
    return {name: value for name, _, value in pairs}


class Git:
    """Git with fixed settings, on the index and the objects of a repository; a context manager.

    Args:
        repository: the repository.
        folder: a folder of our own for the settings; created, and removed at the end.
        deadline: commands are killed then.
        ignored: the file with the user's patterns of ignored files; empty for the default one.
        sha256: the names of its objects are SHA-256.

    Raises:
        OSError: the folder cannot be created.
    """

    def __init__(
        self,
        repository: Repository,
        folder: Path,
        deadline: Deadline,
        ignored: str = "",
        *,
        sha256: bool = False,
    ) -> None:
        self._deadline, self._folder = deadline, folder
        folder.mkdir(files.PRIVATE_FOLDER)
        try:
            self._write_settings(repository, sha256=sha256)
        except BaseException:
            self.__exit__()
            raise
        if ignored:
            self._options = ["-c", f"core.excludesFile={ignored}"]
        else:
            self._options = []
        self._env = {
            **_ENVIRONMENT,
            "GIT_DIR": str(folder),
            "GIT_WORK_TREE": repository.top,
            "GIT_INDEX_FILE": f"{repository.git_dir}/index",
            "GIT_OBJECT_DIRECTORY": repository.objects,
        }

    def _write_settings(self, repository: Repository, *, sha256: bool) -> None:
        folder = self._folder
        for name in ("refs", "info"):
            (folder / name).mkdir()
        text = _SETTINGS + ("[extensions]\n\tobjectformat = sha256\n" if sha256 else "")
        (folder / "config").write_text(text)
        (folder / "HEAD").write_text("ref: refs/heads/none\n")
        (folder / "info" / "attributes").write_text(_ATTRIBUTES)
        with contextlib.suppress(OSError):
            excluded = files.read_file(
                f"{repository.common_dir}/info/exclude", 1 << 20, own=False, follow=True
            )
            (folder / "info" / "exclude").write_bytes(excluded)
        for shared in Path(repository.git_dir).glob("sharedindex.*"):  # the other half of a split index
            (folder / shared.name).symlink_to(shared)

    def __enter__(self) -> Git:
        return self

    def __exit__(self, *exception: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, *arguments: str | bytes, limit: int = LONGEST_OUTPUT, **env: str) -> bytes:
        """Runs a command that changes neither the repository nor its working tree, and returns its output.

        Args:
            arguments: its arguments.
            limit: maximum bytes of the output.
            env: variables that differ.

        Raises:
            GitError: it failed.
        """
        return run([*self._options, *arguments], self._deadline, limit=limit, env={**self._env, **env})
