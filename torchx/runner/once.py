"""Idempotent submission: an application that is submitted under a name exists at most once.

The name is in the metadata of the application. The state home has a file for each name: a lock that is held
during the submission, and an entry with the parts of the application, and its handle once it is submitted.
Values are compared by digests with a private key of the state home, so an entry reveals no secret.
The kernel releases the lock of a killed process. If that process has not recorded the handle, the next one
searches the engine for an application with the name in its metadata.
"""

from __future__ import annotations

import hmac
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx import json_shape, settings
from torchx.errors import StateError, UsageError
from torchx.json_limits import Data, Object, load_json, without_none
from torchx.machine import files, locks
from torchx.masking import mask_arguments, mask_text
from torchx.printable import shortened
from torchx.scheduling.notes import as_note
from torchx.scheduling.query import AppQuery
from torchx.specs.app import AppDef
from torchx.specs.handles import parse_app_handle
from torchx.specs.home import TORCHX_HOME
from torchx.specs.serialize import app_to_dict

if TYPE_CHECKING:
    from torchx.runner.host import Host
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.specs.app import AnyDryRunInfo

FOLDER = "once"
LARGEST = 1 << 22
"""Maximum bytes of an entry."""

SKEW = timedelta(minutes=5)
"""Maximum difference between the clocks of this machine and of an engine."""

_KEY = ".key"
_KEY_BYTES = 32

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_SHOWN = 80
_COMPARED = (": entrypoint", ": args", ": num_replicas")
"""The parts that every engine records unchanged."""

_OF_SUBMISSION = (
    settings.COMMAND_LINE,
    settings.COMMAND_NAMES,
    settings.SOURCE,
    settings.RUN,
    settings.ONCE,
)
"""The metadata that describe a submission."""

_OF_LAUNCHER = (settings.TORCHX_JOB_ID, settings.TORCHX_INTERNAL_SESSION_ID)
"""The variables that a runner sets in each replica."""

_HIDDEN = (": variable ", "notifications")
"""The parts whose values are not shown."""


class _Entry(NamedTuple):
    """A name in use.

    Attributes:
        salt: added to the values before they are hashed.
        at: the time of the submission.
        parts: a digest of each part of the application, and its value for display.
        handle: the application; empty until it is submitted.
        key: a digest of the key of the other digests.
    """

    salt: str
    at: str
    parts: dict[str, tuple[str, str]]
    handle: str = ""
    key: str = ""

    @classmethod
    def of(cls, parts: Data, key: bytes) -> _Entry:
        salt = os.urandom(16).hex()
        shown = {part: (_digest(key, salt, value), _shown(part, value)) for part, value in parts.items()}
        return cls(salt, datetime.now(timezone.utc).isoformat(), shown, key=_digest(key, salt, None))

    def has_key(self, key: bytes) -> bool:
        """Returns True if this key made the digests; an older version used none."""
        return self.key == _digest(key, self.salt, None)

    def changes(self, parts: Data, key: bytes) -> list[_Change]:
        """Returns the parts that differ from those of this entry."""
        now = {part: _digest(key, self.salt, value) for part, value in parts.items()}
        names = dict.fromkeys([*self.parts, *now])
        return [
            _Change(
                part,
                self.parts[part][1] if part in self.parts else None,
                _shown(part, parts[part]) if part in parts else None,
            )
            for part in names
            if now.get(part) != self.parts.get(part, [None])[0]
        ]


class _Change(NamedTuple):
    """A part that differs; None where an application does not have it."""

    part: str
    before: str | None
    now: str | None


def _parts(info: AnyDryRunInfo) -> Object:
    """Returns the parts of a request that differ if anything else is given for it."""
    assert info.app is not None
    parts: Object = {f"run option {key}": value for key, value in info.cfg.items()}
    parts |= _parts_of_app(info.app, info.scheduler or "")
    for role in info.app.roles:  # with the values of secrets
        name = f"role {role.name}: variable"
        parts |= {f"{name} {key}": value for key, value in role.env.items() if key not in _OF_LAUNCHER}
    if info.notify is not None:
        parts["notifications"] = [sorted(info.notify.targets), sorted(info.notify.on)]
    return without_none(parts)


def _parts_of_app(app: AppDef, scheduler: str) -> Object:
    """Returns the parts of an application without its variables; empty ones are equal to absent ones."""
    data = app_to_dict(app, strict=False)
    parts: Object = {"scheduler": scheduler}
    for role in data["roles"]:
        name, resource = f"role {role.pop('name')}", role.pop("resource") or {}
        parts |= {f"{name}: {key}": value for key, value in {**role, **resource}.items() if key != "env"}
    parts |= {f"metadata {k}": v for k, v in data["metadata"].items() if k not in _OF_SUBMISSION}
    return {part: value for part, value in parts.items() if value not in (None, "", [], {})}


def _digest(key: bytes, salt: str, value: Any) -> str:
    text = salt + json.dumps(value, sort_keys=True, default=repr)
    return hmac.digest(key, text.encode(), "sha256").hex()


def _shown(part: str, value: Any) -> str:
    if any(hidden in part for hidden in _HIDDEN):
        return "set"
    if not isinstance(value, list):
        text = mask_text(str(value))
    else:
        text = " ".join(mask_arguments([*map(str, value)]))
    return shortened(text, _SHOWN)


def marked(app: AppDef, name: str) -> AppDef:
    """Returns an application with the name of its submission in its metadata; without it if it is empty.

    Raises:
        UsageError: the name is invalid.
    """
    if name and re.fullmatch(_NAME, name) is None:
        raise UsageError(
            f"`{name}` cannot be the name of a submission",
            code="invalid_value",
            hint="use at most 63 letters, digits, `-`, `_` and `.`, as in nightly-2026-05-01",
        )
    metadata = {key: value for key, value in app.metadata.items() if key != settings.ONCE}
    return replace(app, metadata={**metadata, settings.ONCE: name} if name else metadata)


def submit(runner: Host, info: AnyDryRunInfo, schedule: Callable[[], str]) -> str:
    """Submits a request with a name, unless an application of this name exists; returns the handle of either.

    Args:
        runner: used to find the application.
        info: the request; ``existed`` is set.
        schedule: submits it.

    Raises:
        UsageError: the name belongs to an application with other arguments.
        StateError: the state home cannot be used, or the engine does not answer.
    """
    assert info.app is not None
    assert info.scheduler is not None
    name = info.app.metadata[settings.ONCE]
    parts = _parts(info)
    path = TORCHX_HOME(FOLDER) / f"{name}.json"
    try:
        key = _private_key(path.parent)
        with _locked(path, info, name):
            entry = _read(path)
            handle = _existing(runner, info.scheduler, info.app.name, name, entry)
            if handle:
                known = None
                if entry is not None and entry.has_key(key):
                    known = entry
                _check(runner, known, handle, parts, key, name)
                if known is None or known.handle != handle:
                    _write(path, (known or _Entry.of(parts, key))._replace(handle=handle))
                info.existed = True
                _note(runner, info, name, handle)
                return handle
            entry = _Entry.of(parts, key)
            _write(path, entry)
            handle = schedule()
            with as_note(info.notes, f"the name `{name}` is looked up at the next submission"):
                _write(path, entry._replace(handle=handle))
            return handle
    except OSError as error:
        raise StateError(f"the file {path} cannot be used: {error.strerror or error}") from error


def handle_of(name: str) -> str:
    """Returns the handle of the application that was submitted under a name; empty without one."""
    if re.fullmatch(_NAME, name):
        with suppress(OSError, StateError):
            entry = _read(files.user_home() / FOLDER / f"{name}.json")
            if entry is not None:
                return entry.handle
    return ""


def _private_key(folder: Path) -> bytes:
    """Returns the key of the digests; makes one for a new state home.

    Raises:
        OSError: it cannot be read or written.
    """
    with locks.exclusive(folder / f"{_KEY}.lock"):
        with suppress(FileNotFoundError):
            key = files.read_file(folder / _KEY, _KEY_BYTES)
            if len(key) == _KEY_BYTES:
                return key
        key = os.urandom(_KEY_BYTES)
        files.write_file(folder / _KEY, key, sync=True)
        return key


@contextmanager
def _locked(path: Path, info: AnyDryRunInfo, name: str) -> Iterator[None]:
    """Holds the lock of a name; reports that it waits for another submission."""
    lock = path.with_suffix(".lock")
    if locks.is_held(lock):
        info.on_progress(f"waiting for another submission of the name `{name}`")
    with locks.exclusive(lock):
        yield


def _read(path: Path) -> _Entry | None:
    try:
        data = load_json(files.read_file(path, LARGEST).decode())
        entry: _Entry = json_shape.read(_Entry, data, "entry", optional=("key",))
        since = datetime.fromisoformat(entry.at) - SKEW
        if since.tzinfo is not None:
            return entry
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, OverflowError):
        pass
    raise StateError(f"{path} is damaged", hint="remove it to use its name again", code="damaged_record")


def _write(path: Path, entry: _Entry) -> None:
    files.write_file(path, json.dumps(entry._asdict()).encode(), sync=True)


def _existing(runner: Host, scheduler: str, called: str, name: str, entry: _Entry | None) -> str:
    """Returns the handle of the application of a name of submissions, or an empty string."""
    if entry is not None and entry.handle:
        if runner.exists(entry.handle):
            return entry.handle
        return ""
    if entry is None and runner.scheduler(scheduler).cheap_to_list:  # its records are here too
        return ""
    # a killed process has not recorded the handle, or another machine has submitted it
    if entry is None:
        since = None
    else:
        since = datetime.fromisoformat(entry.at) - SKEW
    for app in runner.select(scheduler, AppQuery(called=called, since=since)):
        if app.is_own and app.name == called:
            described = runner.description(app.app_handle)
            if described is not None and described.metadata.get(settings.ONCE) == name:
                return app.app_handle
    return ""


def _check(runner: Host, entry: _Entry | None, handle: str, parts: Data, key: bytes, name: str) -> None:
    """Checks that the application of a name has the same arguments.

    Raises:
        UsageError: it has others.
    """
    if entry is not None:
        changed = entry.changes(parts, key)
    else:  # it was submitted from another machine, or by an older version
        described = runner.description(handle)
        changed = []
        if described is not None:
            changed = _recorded_differences(handle, described, parts, key)
    if changed:
        first, more = changed[0], f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        before, now = ("absent" if value is None else f"`{value}`" for value in first[1:])
        if first.before == first.now:
            before, now = "set", "set to another value"
        raise UsageError(
            f"the name `{name}` belongs to {handle}, which was submitted with other arguments: "
            f"{first.part} was {before}, now {now}{more}",
            hint=f"use another name; to free this one: torchx delete {handle}",
            code="name_in_use",
        )


def _recorded_differences(
    handle: str, described: DescribeAppResponse, parts: Data, key: bytes
) -> list[_Change]:
    app = AppDef(described.name, described.roles)
    before = _parts_of_app(app, parse_app_handle(handle).scheduler_backend)
    known = [
        {part: value for part, value in each.items() if part.endswith(_COMPARED)} for each in (before, parts)
    ]
    return _Entry.of(known[0], key).changes(known[1], key)


def _note(runner: Host, info: AnyDryRunInfo, name: str, handle: str) -> None:
    status = runner.status(handle)
    state = ""
    if status is not None:
        state = f" and is {status.state.name}"
    info.notes.append(
        f"nothing was submitted: {parse_app_handle(handle).app_id} has the name `{name}`{state}"
    )
