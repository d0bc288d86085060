"""The source, the Python and the machine of an application, for display."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from torchx.errors import StateError
from torchx.masking import mask_text
from torchx.provenance.model import PROGRAM, Editable, File, Provenance, Source
from torchx_cli.terminal.output import counted
from torchx_cli.terminal.times import duration, iso
from torchx_cli.terminal.units import size

MOST_FILES = 20
"""Maximum number of changed files in the text; all are in the JSON."""

SHORT = 12
"""Characters of a commit in the text."""


def not_recorded(handle: str) -> StateError:
    """Returns the error for an application without a recorded source."""
    return StateError(
        f"the source of {handle} is not recorded",
        hint="it was submitted by an older version, from another machine, or with TORCHX_PROVENANCE=0",
        code="not_recorded",
        facts={"handle": handle},
    )


def source_data(handle: str, found: Provenance) -> dict[str, Any]:
    """Returns the provenance of an application as plain data, with secrets masked."""
    data = found.to_json()
    del data["schema"]
    for name in ("submitted_at", "recorded_at"):
        if data[name] is None:
            data[name] = None
        else:
            data[name] = iso(datetime.fromtimestamp(data[name], timezone.utc))
    if data["source"] is not None:
        data["source"]["dirty"] = found.source is not None and found.source.dirty
    shown: dict[str, Any] = _shown({"handle": handle, **data})
    return shown


def _shown(data: Any) -> Any:
    """Masks the texts in plain data, not by the names of their keys: those of packages may look secret."""
    if isinstance(data, str):
        return mask_text(data.encode("utf-8", "replace").decode())
    if isinstance(data, dict):
        return {_shown(key): _shown(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_shown(item) for item in data]
    return data


def source_rows(found: Provenance) -> list[tuple[str, str]]:
    """Returns labels and values of the provenance of an application, with secrets masked."""
    rows = [("source", _commit(found.source) if found.source is not None else "not recorded")]
    if found.source is not None:
        rows += _source_rows(found.source)
    rows += [("recorded", _recorded(found))]
    if found.python is not None:
        whose = "of torchx"
        if found.python.origin == PROGRAM:
            whose = "of the program"
        rows.append(("python", f"{found.python.version}  {found.python.executable} ({whose})"))
        rows.append(("packages", f"{counted(len(found.python.packages), 'package')}, listed by -o json"))
        rows += [("editable", _editable(name, each)) for name, each in found.python.editable.items()]
    if found.machine is not None:
        machine = found.machine
        rows.append(("machine", ", ".join(filter(None, (machine.host, machine.user, machine.platform)))))
        driver = ""
        if machine.driver:
            driver = f", driver {machine.driver}"
        rows.append(("GPUs", (", ".join(machine.gpus) or "none") + driver))
    rows += [
        ("folder", found.directory),
        ("submitted by", found.command_line),
        ("torchx", found.torchx_version),
    ]
    rows += [("note", note) for note in found.notes]
    return [(label, mask_text(value)) for label, value in rows]


def _source_rows(source: Source) -> Iterator[tuple[str, str]]:
    yield "remote", source.remote
    yield "tree", source.folder
    for file in source.files[:MOST_FILES]:
        yield file.change, _file(file)
    if len(source.files) > MOST_FILES:
        yield "more", f"{counted(len(source.files) - MOST_FILES, 'file')}, listed by -o json"
    if source.diff_size:
        yield "diff", f"source.diff, {size(source.diff_size)}"
    for submodule in source.submodules:
        moved = submodule.commit not in ("", submodule.expected)
        state = "not checked out"
        if submodule.commit:
            state = f"at {submodule.commit[:SHORT]}"
        expected = ""
        if moved:
            expected = f", the commit has {submodule.expected[:SHORT] or 'none'}"
        yield "submodule", f"{submodule.path} {state}{expected}"
    for note in source.notes:
        yield "note", note


def _commit(source: Source) -> str:
    """Returns the commit, the branch and the number of changed files.

    >>> _commit(Source("/r", "3f2a91c" + "0" * 33, "main", files=(File("a", "modified"),), complete=True))
    'git 3f2a91c00000 (main) + 1 changed file'
    """
    text = "git, before the first commit"
    if source.commit:
        text = f"git {source.commit[:SHORT]}"
    if source.branch:
        text += f" ({source.branch})"
    if not source.complete:
        return text
    return text + (f" + {counted(len(source.changed), 'changed file')}" if source.changed else ", no changes")


def _file(file: File) -> str:
    kept = ""
    if file.omitted:
        kept = f"  not kept: {file.omitted}"
    if file.change != "deleted":
        return f"{file.path}  {size(file.size)}{kept}"
    return file.path


def _recorded(found: Provenance) -> str:
    if found.recording:
        return "in progress"
    if found.recorded_at is None:
        return "not completely"
    after = f"{duration(max(0.0, found.recorded_at - found.submitted_at))} after the submission"
    return after + ("; the program runs in the working tree itself" if found.live else "")


def _editable(name: str, editable: Editable) -> str:
    commit = ""
    if editable.commit:
        commit = f" at {editable.commit[:SHORT]}"
    return f"{name}  {editable.path}{commit}{' with changes' if editable.dirty else ''}"
