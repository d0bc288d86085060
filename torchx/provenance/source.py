"""Reads the source of a submission: the repository with its submodules, compared with its commit."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from torchx.errors import StateError
from torchx.machine import files
from torchx.masking import mask_text
from torchx.provenance import repository as repositories
from torchx.provenance.changes import Budget, WorkingTree
from torchx.provenance.git import Deadline, Git, GitError, run, settings
from torchx.provenance.model import File, Source, Submodule
from torchx.provenance.repository import Repository
from torchx.provenance.store import Store

DEEPEST = 10
"""Levels of submodules within one another."""

MOST_SUBMODULES = 200

_USER = "(?<=//)[^/]*@"

NO_REPOSITORY = "the working directory is not in a git repository"


class Reader:
    """Reads repositories as data.

    Args:
        store: the content of changed files is kept there.
        deadline: the time until which files are read.
        home: the state home, whose files are not kept.

    Attributes:
        changed_since: the paths of files that were changed after ``since``.
    """

    def __init__(self, store: Store, deadline: Deadline, home: str, since: float) -> None:
        self._store, self._deadline, self._home, self._since = store, deadline, home, since
        self._budget = Budget(deadline)
        self._files: list[File] = []
        self._submodules: list[Submodule] = []
        self._notes: list[str] = []
        self._diff: list[bytes] = []
        self._ignored: list[str] = []
        self.changed_since: list[str] = []

    def read(self, source: Source) -> Source:
        """Returns the complete source of a working tree, given its root and, if known, its commit."""
        repository = repositories.at_root(source.folder)
        if repository is None:
            return source._replace(notes=("the repository was removed before it was read",))
        try:
            commit = self._commit(repository, source)
            facts = self._tree(repository, commit, "")
        except (GitError, OSError, ValueError) as error:
            return source._replace(notes=(*self._notes, f"the changed files are not known: {_reason(error)}"))
        diff = b"".join(self._diff)
        if diff:
            files.write_file(self._store.diff_file, diff)
        if Path(repository.common_dir, "shallow").exists():
            self._notes.append("the repository is shallow: it has only part of the history")
        return source._replace(
            commit=commit,
            remote=source.remote or remote_of(facts, source.branch),
            objects=repository.objects,
            files=tuple(self._files),
            diff_size=len(diff) if diff or not any(file.digest for file in self._files) else None,
            submodules=tuple(self._submodules),
            notes=tuple(self._notes),
            complete=True,
            ignored=tuple(self._ignored),
        )

    def _commit(self, repository: Repository, source: Source) -> str:
        """Returns the commit to compare with: that of the submission if it is known."""
        head = repositories.head(repository)
        now = head.commit
        if now is None:
            env = {"GIT_DIR": repository.git_dir, "GIT_OPTIONAL_LOCKS": "0"}
            now = run(["rev-parse", "--verify", "HEAD"], self._deadline, env=env).decode().strip()
        if source.commit and now != source.commit:
            self._notes.append(f"the commit changed during the submission, to {now[:12] or 'none'}")
        return source.commit or now

    def _tree(self, repository: Repository, commit: str, prefix: str, depth: int = 0) -> Mapping[str, str]:
        """Compares a working tree and its submodules; returns the settings of its repository."""
        facts = settings(repository, self._deadline)
        sha256 = facts.get("extensions.objectformat") == "sha256"
        ignored, folder = facts.get("core.excludesfile", ""), self._store.folder / "git"
        with Git(repository, folder, self._deadline, ignored, sha256=sha256) as git:
            tree = WorkingTree(
                repository,
                git,
                commit,
                self._budget,
                self._store,
                sha256=sha256,
                prefix=prefix,
                home=self._home,
            )
            self._files += tree.compare(converts=converts(facts, repository))
            self._ignored += tree.ignored()
        self._diff.append(tree.diff)
        self._notes += tree.notes
        self.changed_since += [prefix + path for path, at in tree.latest.items() if at > self._since]
        for path, expected in tree.submodules.items():
            self._submodule(repository, path, prefix, expected, depth + 1)
        return facts

    def _submodule(self, outer: Repository, path: str, prefix: str, expected: str, depth: int) -> None:
        inner = repositories.at_root(f"{outer.top}/{path}")
        if inner is None or depth > DEEPEST or len(self._submodules) >= MOST_SUBMODULES:
            self._submodules.append(Submodule(prefix + path, expected=expected))
            if inner is not None:
                self._notes.append(f"submodule {prefix}{path} is not recorded: there are too many")
            return
        commit = repositories.head(inner).commit or ""
        self._submodules.append(Submodule(prefix + path, commit, inner.objects, expected))
        try:
            self._tree(inner, commit, f"{prefix}{path}/", depth)
        except (GitError, OSError, ValueError) as error:
            self._notes.append(
                f"the changed files of submodule {prefix}{path} are not known: {_reason(error)}"
            )


def is_changed(repository: Repository, folder: Path, deadline: Deadline) -> bool:
    """Returns True if a tracked file of a repository differs from its commit.

    Args:
        repository: the repository.
        folder: a folder of our own, which is created and removed.
        deadline: git is killed then.

    Raises:
        GitError: git failed.
        OSError: the folder cannot be created.
    """
    sha256 = settings(repository, deadline).get("extensions.objectformat") == "sha256"
    with Git(repository, folder, deadline, sha256=sha256) as git:
        commit = repositories.head(repository).commit or ""
        return WorkingTree(repository, git, commit, Budget(deadline), sha256=sha256).is_changed()


def converts(facts: Mapping[str, str], repository: Repository) -> bool:
    """Returns True if git may convert the contents of files, besides by attributes in the tree."""
    attributes = facts.get("core.attributesfile") or "~/.config/git/attributes"
    places = (
        Path(repository.common_dir, "info/attributes"),
        Path(os.path.expanduser(attributes)),  # noqa: PTH111  # there may be no home
    )
    unset = facts.get("core.autocrlf", "false").lower() in ("false", "0", "no", "off")
    return not unset or any(place.is_file() and place.stat().st_size > 0 for place in places)


def remote_of(facts: Mapping[str, str], branch: str) -> str:
    """Returns the address of the remote of a branch, without credentials; by default that of `origin`.

    >>> remote_of({"remote.origin.url": "https://me:secret@host/r.git?token=x"}, "main")
    'https://host/r.git'
    >>> remote_of({"remote.up.url": "git@host:r.git", "branch.a.remote": "up"}, "a")
    'git@host:r.git'
    """
    addresses = {
        name.removeprefix("remote.").removesuffix(".url"): value
        for name, value in facts.items()
        if name.startswith("remote.") and name.endswith(".url")
    }
    name = facts.get(f"branch.{branch}.remote", "origin")
    address = addresses.get(name) or next(iter(addresses.values()), "")
    if "://" in address:  # also `helper::https://...`
        address = re.split("[?#]", re.sub(_USER, "", address))[0]
    return mask_text(address)[:1000]


def _reason(error: Exception) -> str:
    if isinstance(error, StateError):
        return error.message
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)
