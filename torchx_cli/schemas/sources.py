"""The output of `torchx describe --source`, as types."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict


class SourceFile(TypedDict):
    """A changed file of the working tree."""

    path: Annotated[str, "the path in the working tree, with slashes"]
    change: Annotated[
        Literal["modified", "added", "deleted", "untracked", "converted"],
        "the difference from the commit; converted: unchanged for git, but with other bytes",
    ]
    mode: Annotated[int, "the mode, as git has it; 0 if deleted"]
    size: Annotated[int, "bytes"]
    digest: Annotated[str, "SHA-256 of the content; empty if the content is not kept"]
    omitted: Annotated[str, "why the content is not kept"]


class Submodule(TypedDict):
    """A submodule of the working tree."""

    path: Annotated[str, "the folder in the working tree"]
    commit: Annotated[str, "the commit; empty if it was not checked out"]
    objects: Annotated[str, "the folder of its objects; empty if it was not checked out"]
    expected: Annotated[str, "the commit that the outer repository has for it"]


class Repository(TypedDict):
    """The git repository of the working directory."""

    folder: Annotated[str, "the root of the working tree"]
    commit: Annotated[str, "the commit; empty before the first"]
    branch: Annotated[str, "the branch; empty if none is checked out"]
    remote: Annotated[str, "the address of the remote, without credentials"]
    objects: Annotated[str, "the folder of its objects"]
    files: Annotated[list[SourceFile], "the changed and untracked files"]
    diff_size: Annotated[int | None, "bytes of the diff of the tracked files; null without one"]
    submodules: Annotated[list[Submodule], "the submodules"]
    notes: Annotated[list[str], "missing parts and other facts, one sentence each"]
    complete: Annotated[bool, "false if the files were not compared with the commit"]
    ignored: Annotated[list[str], "files and folders that git ignores; not all of many"]
    dirty: Annotated[bool, "whether the files differed from the commit"]


class EditablePackage(TypedDict):
    """A package that is installed from a folder."""

    path: Annotated[str, "the folder"]
    commit: Annotated[str, "the commit of its repository; empty outside of one"]
    dirty: Annotated[bool | None, "whether a tracked file differed from the commit; null if unknown"]


class PythonData(TypedDict):
    """A Python with its packages."""

    version: Annotated[str, "the version of Python"]
    executable: Annotated[str, "the path of the interpreter"]
    origin: Annotated[Literal["program", "launcher"], "program: of the first role; launcher: of torchx"]
    packages: Annotated[dict[str, str], "the version of each installed package by name"]
    editable: Annotated[dict[str, EditablePackage], "packages that are installed from a folder"]


class MachineData(TypedDict):
    """The machine of the submission."""

    host: Annotated[str, "the name of the machine"]
    user: Annotated[str, "the user"]
    platform: Annotated[str, "operating system, kernel and architecture"]
    gpus: Annotated[list[str], "the names of the GPUs"]
    driver: Annotated[str, "the version of the driver of the GPUs"]


class SourceDetails(TypedDict):
    """The source, the Python and the machine of a submission."""

    handle: Annotated[str, "the handle: SCHEDULER://SESSION/APP_ID"]
    submitted_at: Annotated[str, "the time of the submission"]
    torchx_version: Annotated[str, "the version of torchx"]
    command_line: Annotated[str, "the command line, with secrets masked; empty for a submission from Python"]
    directory: Annotated[str, "the working directory"]
    live: Annotated[bool, "whether the program runs in the working tree itself"]
    recorded_at: Annotated[str | None, "the time at which the working tree had been read"]
    source: Annotated[Repository | None, "the repository of the working directory; null without one"]
    python: Annotated[PythonData | None, "the Python of the program, or that of torchx"]
    machine: Annotated[MachineData | None, "the machine of the submission"]
    notes: Annotated[list[str], "missing parts and other facts, one sentence each"]
    recording: Annotated[bool, "true while it is recorded: missing parts may follow"]
