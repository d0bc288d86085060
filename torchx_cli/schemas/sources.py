"""The output of `torchx describe --source`, as types."""

from __future__ import annotations

from typing import Literal, TypedDict


class SourceFile(TypedDict):
    """A changed file of the working tree."""

    path: str
    """the path in the working tree, with slashes"""
    change: Literal["modified", "added", "deleted", "untracked", "converted"]
    """the difference from the commit; converted: unchanged for git, but with other bytes"""
    mode: int
    """the mode, as git has it; 0 if deleted"""
    size: int
    """bytes"""
    digest: str
    """SHA-256 of the content; empty if the content is not kept"""
    omitted: str
    """why the content is not kept"""


class Submodule(TypedDict):
    """A submodule of the working tree."""

    path: str
    """the folder in the working tree"""
    commit: str
    """the commit; empty if it was not checked out"""
    objects: str
    """the folder of its objects; empty if it was not checked out"""
    expected: str
    """the commit that the outer repository has for it"""


class Repository(TypedDict):
    """The git repository of the working directory."""

    folder: str
    """the root of the working tree"""
    commit: str
    """the commit; empty before the first"""
    branch: str
    """the branch; empty if none is checked out"""
    remote: str
    """the address of the remote, without credentials"""
    objects: str
    """the folder of its objects"""
    files: list[SourceFile]
    """the changed and untracked files"""
    diff_size: int | None
    """bytes of the diff of the tracked files; null without one"""
    submodules: list[Submodule]
    """the submodules"""
    notes: list[str]
    """missing parts and other facts, one sentence each"""
    complete: bool
    """false if the files were not compared with the commit"""
    ignored: list[str]
    """files and folders that git ignores; not all of many"""
    dirty: bool
    """whether the files differed from the commit"""


class EditablePackage(TypedDict):
    """A package that is installed from a folder."""

    path: str
    """the folder"""
    commit: str
    """the commit of its repository; empty outside of one"""
    dirty: bool | None
    """whether a tracked file differed from the commit; null if unknown"""


class PythonData(TypedDict):
    """A Python with its packages."""

    version: str
    """the version of Python"""
    executable: str
    """the path of the interpreter"""
    origin: Literal["program", "launcher"]
    """program: of the first role; launcher: of torchx"""
    packages: dict[str, str]
    """the version of each installed package by name"""
    editable: dict[str, EditablePackage]
    """packages that are installed from a folder"""


class MachineData(TypedDict):
    """The machine of the submission."""

    host: str
    """the name of the machine"""
    user: str
    """the user"""
    platform: str
    """operating system, kernel and architecture"""
    gpus: list[str]
    """the names of the GPUs"""
    driver: str
    """the version of the driver of the GPUs"""


class SourceDetails(TypedDict):
    """The source, the Python and the machine of a submission."""

    handle: str
    """the handle: SCHEDULER://SESSION/APP_ID"""
    submitted_at: str
    """the time of the submission"""
    torchx_version: str
    """the version of torchx"""
    command_line: str
    """the command line, with secrets masked; empty for a submission from Python"""
    directory: str
    """the working directory"""
    live: bool
    """whether the program runs in the working tree itself"""
    recorded_at: str | None
    """the time at which the working tree had been read"""
    source: Repository | None
    """the repository of the working directory; null without one"""
    python: PythonData | None
    """the Python of the program, or that of torchx"""
    machine: MachineData | None
    """the machine of the submission"""
    notes: list[str]
    """missing parts and other facts, one sentence each"""
    recording: bool
    """true while it is recorded: missing parts may follow"""
