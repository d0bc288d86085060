"""What is kept of an application: facts in a label, all of it in a private file.

Labels appear in ``docker ps``, in the engine's events and in whatever exports metrics of containers. So the
label holds no value of the environment, no argument and no metadata of other engines, only names and the
places of macros. Who may inspect a container sees its environment and its command anyway: from these the
application is put together again on every machine. The user who submitted it has a file with all of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from torchx import settings
from torchx.errors import StateError
from torchx.jobs.paths import file_name, user_home
from torchx.machine import files
from torchx.schedulers.docker.labels import SCHEMA, DamageError, check_job, is_app_id
from torchx.schedulers.docker.request import OWN

if TYPE_CHECKING:
    from torchx.schedulers.docker.containers import Container
    from torchx.specs.app import AppDef
    from torchx.specs.run_options import CfgVal

LONGEST_FILE = 64 << 20
"""Bytes of a file that is still read."""
OLD = 24 * 3600.0
"""Seconds after which a file belongs to no submission that is still under way."""
LONGEST_NAME = 200
"""Characters of an id that go into the name of its file; the last ones, which no other has."""
_HIDDEN = ("entrypoint", "args", "env", "metadata", "workspace")
"""Fields of a role that are not in the label: each may hold what only the user is to see."""


def job_data(app: AppDef, cfg: Mapping[str, CfgVal], session: str) -> dict[str, Any]:
    """Returns all of an application as plain data, for the private file."""
    from torchx.specs.serialize import app_to_dict

    return {
        "schema": SCHEMA,
        "session": session,
        "submitted_at": round(time.time(), 6),
        "app": app_to_dict(app, strict=False),
        "cfg": dict(cfg),
    }


def label_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the label of an application's containers holds: no values, see above.

    Args:
        data: as :func:`job_data` makes it.
    """
    app, cfg = data["app"], dict(data["cfg"])
    env = cfg.pop("env", None)
    roles = [_label_role(role) for role in app["roles"]]
    label = {**data, "app": {**app, "roles": roles}, "cfg": cfg}
    return {**label, "cfg_env": sorted(env)} if isinstance(env, dict) else label


def _label_role(role: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in role.items() if name not in _HIDDEN}
    own = (role.get("metadata") or {}).get(OWN)
    if isinstance(own, dict):
        shown["metadata"] = {OWN: {k: v for k, v in own.items() if k not in ("entrypoint", "healthcheck")}}
    macros = {
        "args": {str(n): spans for n, arg in enumerate(role["args"]) if (spans := spans_of(arg))},
        "env": {name: spans for name, value in role["env"].items() if (spans := spans_of(value))},
    }
    return {**shown, "env_names": list(role["env"]), "macros": macros}


_MACROS = ("img_root", "app_id", "replica_id", "rank0_env")
_DOLLAR = "$"
"""Stands for the two signs that mean one."""


def spans_of(text: str) -> list[int | str]:
    """Returns where macros stand in a text: lengths of what is between them, and their names.

    Empty when it has none.

    >>> spans_of("--out=${replica_id}/x"), spans_of("$$HOME"), spans_of("$HOME")
    ([6, 'replica_id', 2], [0, '$', 4], [])
    """
    spans: list[int | str] = []
    length = at = 0
    for found in Template.pattern.finditer(text):
        length += found.start() - at
        at = found.end()
        name = _DOLLAR if found["escaped"] is not None else found["named"] or found["braced"]
        if name == _DOLLAR or name in _MACROS:
            spans += [length, name]
            length = 0
        else:
            length += len(found[0])
    return [*spans, length + len(text) - at] if spans else []


def restored(text: str, spans: object, values: Mapping[str, str]) -> str:
    """Returns a text with its macros as they were before they were replaced.

    Args:
        text: with the values of the macros.
        spans: as :func:`spans_of` returned them; what does not fit the text is passed over.
        values: what the macros stand for there.

    >>> restored("--out=0/x$HOME", [6, "replica_id", 2, "$", 4], {"replica_id": "0"})
    '--out=${replica_id}/x$$HOME'
    """
    known = {**values, _DOLLAR: "$"}
    pieces: list[str] = []
    at = 0
    for span in spans if isinstance(spans, list) else [len(text)]:
        if isinstance(span, str) and span in known and text.startswith(known[span], at):
            pieces.append("$$" if span == _DOLLAR else f"${{{span}}}")
            at += len(known[span])
        elif isinstance(span, int) and 0 <= span <= len(text) - at:
            pieces.append(text[at : at + span])
            at += span
        else:
            return text
    return "".join(pieces) if at == len(text) else text


# --- the application once more -------------------------------------------------------------------


def whole(app_id: str, data: Mapping[str, Any], containers: Sequence[Container]) -> Mapping[str, Any]:
    """Returns all that is known of an application: from its file, else from its containers.

    Args:
        app_id: the application.
        data: what its label holds.
        containers: its containers, in the order of creation.
    """
    if data.get("schema") != SCHEMA:
        return data  # the label of an older version holds all of it
    kept = load(app_id)
    if kept is not None and kept.get("submitted_at") == data.get("submitted_at"):
        return kept
    roles = [_rebuilt(app_id, role, containers) for role in data["app"]["roles"]]
    cfg = dict(data.get("cfg") or {})
    names = data.get("cfg_env")
    if names is not None:
        seen = dict(line.partition("=")[::2] for c in containers[:1] for line in c.env)
        cfg["env"] = {name: seen[name] for name in names if name in seen}
    return {**data, "app": {**data["app"], "roles": roles}, "cfg": cfg}


def _rebuilt(app_id: str, role: Mapping[str, Any], containers: Sequence[Container]) -> dict[str, Any]:
    """Returns a role with the values that its first container has."""
    mine = [c for c in containers if c.role == role["name"]]
    if not mine:
        return dict(role)
    first = min(mine, key=lambda c: (c.replica, c.attempt))
    macros = role.get("macros") or {}
    of_args, of_env = (m if isinstance(m := macros.get(n), dict) else {} for n in ("args", "env"))
    values = {
        "img_root": "",
        "app_id": app_id,
        "replica_id": str(first.replica),
        "rank0_env": settings.TORCHX_RANK0_HOST,
    }
    seen = dict(line.partition("=")[::2] for line in first.env)
    args = [restored(arg, of_args.get(str(n)), values) for n, arg in enumerate(first.command[1:])]
    env = {
        name: restored(seen[name], of_env.get(name), values)
        for name in role.get("env_names", ())
        if name in seen
    }
    return {**role, "entrypoint": "".join(first.command[:1]), "args": args, "env": env}


# --- the private file ----------------------------------------------------------------------------


def _folder() -> Path:
    return user_home() / "docker" / "records"


def _path(app_id: str) -> Path:
    return _folder() / f"{file_name(app_id)[-LONGEST_NAME:]}.json"


def save(app_id: str, data: Mapping[str, Any], engine: str) -> None:
    """Writes the file of an application, whole or not at all, for this user alone.

    Args:
        app_id: the application.
        data: all of it.
        engine: the address of its engine.

    Raises:
        StateError: it cannot be written.
    """
    path = _path(app_id)
    text = json.dumps({"app_id": app_id, "engine": engine, **data}, separators=(",", ":"))
    try:
        files.make_folder(path.parent)
        files.write_file(path, text.encode())
    except OSError as error:
        raise StateError(f"the job cannot be recorded at {path}: {error.strerror}") from error


def load(app_id: str) -> dict[str, Any] | None:
    """Returns what the file of an application holds; None when there is none that can be believed.

    It must be a file of this user, and be about this application.
    """
    if not is_app_id(app_id):
        return None
    try:
        data = json.loads(files.read_file(_path(app_id), LONGEST_FILE))
    except (OSError, StateError, ValueError, RecursionError):
        return None
    sound = isinstance(data, dict) and data.get("app_id") == app_id and data.get("schema") == SCHEMA
    return data if sound and _is_whole(data) else None


def _is_whole(data: Mapping[str, Any]) -> bool:
    """Returns True when an application can be made of the data."""
    from torchx.errors import UsageError
    from torchx.specs.serialize import app_from_dict

    try:
        check_job(data)
        app_from_dict(data["app"])
    except (DamageError, UsageError, RecursionError):
        return False
    return True


def forget(app_id: str) -> None:
    """Removes the file of an application, there or not."""
    if is_app_id(app_id):
        with suppress(OSError, StateError):
            _path(app_id).unlink()


def forget_absent(engine: str, present: Mapping[str, object]) -> None:
    """Removes the old files of applications of an engine that are no longer there.

    Args:
        engine: the address of the engine.
        present: the applications that it has, by id.
    """
    with suppress(OSError, StateError):
        for path in _folder().glob("*.json"):
            app_id = path.stem
            old = path.lstat().st_mtime < time.time() - OLD
            found = load(app_id) if old and app_id not in present else None
            if found is not None and found.get("engine") == engine:
                forget(app_id)
