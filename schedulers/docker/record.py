"""The data of an application: public data in a label, all data in its private folder.

Labels appear in ``docker ps``, in the engine's events and in exported metrics. So the label holds no
environment values, arguments or metadata of other engines, only names and the positions of macros. Every user
allowed to inspect a container sees its environment and command anyway; any machine can restore the
application from these. The submitting user has a folder with all data, see folder.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from torchx import settings
from torchx.errors import StateError, UsageError
from torchx.jobs.paths import LONGEST_NAME, Home, file_name, user_home
from torchx.jobs.record import LARGEST, JobRecord
from torchx.json_shape import typed_at, value_at
from torchx.machine import files
from torchx.masking import MASK
from torchx.masking.data import readable_by_others
from torchx.schedulers.docker.container_options import without_secrets
from torchx.schedulers.docker.folder import own_folder
from torchx.schedulers.docker.labels import SCHEMA, DamageError, check_job
from torchx.schedulers.docker.request import OWN
from torchx.scheduling.preflight import without_checks
from torchx.settings import AFTER, POLICIES, SERVICE
from torchx.specs.serialize import app_from_dict, app_to_dict

if TYPE_CHECKING:
    from torchx.json_limits import Data, Object
    from torchx.schedulers.docker.containers import Container
    from torchx.specs.app import AppDef
    from torchx.specs.run_options import RunOptions

_HIDDEN = ("entrypoint", "args", "env", "metadata", "workspace")
"""Fields of a role that are not in the label, as they may hold secrets."""


def job_data(app: AppDef, cfg: RunOptions, session: str) -> Object:
    """Returns all data of an application."""
    return {
        "schema": SCHEMA,
        "session": session,
        "submitted_at": round(time.time(), 6),
        "app": app_to_dict(app, strict=False),
        "cfg": dict(cfg),
    }


def label_data(data: Data) -> Object:
    """Returns the data for the label of an application's containers.

    Args:
        data: the result of :func:`job_data`.
    """
    app, cfg = data["app"], dict(data["cfg"])
    env = cfg.pop("env", None)
    roles = [_label_role(role) for role in app["roles"]]
    metadata = readable_by_others(app["metadata"])
    label = {**data, "app": {**app, "metadata": metadata, "roles": roles}, "cfg": cfg}
    label.pop(POLICIES, None)  # of folders of this machine
    if isinstance(env, dict):
        return {**label, "cfg_env": sorted(env)}
    return label


def _label_role(role: Data) -> Object:
    shown = {name: value for name, value in role.items() if name not in _HIDDEN}
    metadata = role.get("metadata") or {}
    own, order = metadata.get(OWN), public_order(metadata)
    if isinstance(own, dict) or order:
        shown["metadata"] = order | ({OWN: without_secrets(own)} if isinstance(own, dict) else {})
    macros = {
        "args": {str(n): spans for n, arg in enumerate(role["args"]) if (spans := spans_of(arg))},
        "env": {name: spans for name, value in role["env"].items() if (spans := spans_of(value))},
    }
    secret = [name for name, value in role["env"].items() if value == MASK]
    return {**shown, "env_names": list(role["env"]), "secret_names": secret, "macros": macros}


_MACROS = ("img_root", "app_id", "replica_id", "rank0_env")
_DOLLAR = "$"
"""Denotes an escaped ``$``."""


def spans_of(text: str) -> list[int | str]:
    """Returns the positions of macros in a text: the lengths of the texts between them, and their names.

    Returns an empty list without macros.

    >>> spans_of("--out=${replica_id}/x"), spans_of("$$HOME"), spans_of("$HOME")
    ([6, 'replica_id', 2], [0, '$', 4], [])
    """
    spans: list[int | str] = []
    length = at = 0
    for match in Template.pattern.finditer(text):
        length += match.start() - at
        at = match.end()
        if match["escaped"] is not None:
            name = _DOLLAR
        else:
            name = match["named"] or match["braced"]
        if name == _DOLLAR or name in _MACROS:
            spans += [length, name]
            length = 0
        else:
            length += len(match[0])
    if spans:
        return [*spans, length + len(text) - at]
    return []


def restored(text: str, spans: object, values: Mapping[str, str]) -> str:
    """Returns a text with its macros restored.

    Args:
        text: the text with the values of the macros.
        spans: the result of :func:`spans_of`; ignored if it does not match the text.
        values: the values of the macros.

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
    if at == len(text):
        return "".join(pieces)
    return text


# --- restore the application ---------------------------------------------------------------------


def full_data(app_id: str, data: Data, containers: Sequence[Container]) -> Data:
    """Returns all data of an application, from its folder or else from its containers.

    Args:
        app_id: the application.
        data: the data of its label.
        containers: its containers, in order of creation.
    """
    if data.get("schema") != SCHEMA:
        return data  # the label of an older version holds all data
    kept = load_data(app_id)
    if kept is not None and kept.get("submitted_at") == data.get("submitted_at"):
        return kept
    roles = [_restored_role(app_id, role, containers) for role in data["app"]["roles"]]
    cfg = dict(data.get("cfg") or {})
    names = data.get("cfg_env")
    if names is not None:
        seen = dict(line.partition("=")[::2] for c in containers[:1] for line in c.env)
        cfg["env"] = {name: seen[name] for name in names if name in seen}
    # a command line there is not ours, and `rerun --set` would run the component that it names
    metadata = readable_by_others(data["app"].get("metadata") or {})
    return {**data, "app": {**data["app"], "metadata": metadata, "roles": roles}, "cfg": cfg}


def _restored_role(app_id: str, role: Data, containers: Sequence[Container]) -> Object:
    """Returns a role with the values of its first container."""
    mine = [c for c in containers if c.role == role["name"] and not c.removed]
    if not mine:
        return dict(role)
    first = min(mine, key=lambda c: (c.replica, c.attempt))
    of_args, of_env = (typed_at(role, dict, "macros", name) for name in ("args", "env"))
    values = {
        "img_root": "",
        "app_id": app_id,
        "replica_id": str(first.replica),
        "rank0_env": settings.TORCHX_RANK0_HOST,
    }
    seen = dict(line.partition("=")[::2] for line in first.env)
    command = without_checks(first.command)
    args = [restored(arg, of_args.get(str(n)), values) for n, arg in enumerate(command[1:])]
    env = {
        name: restored(seen[name], of_env.get(name), values)
        for name in role.get("env_names", ())
        if name in seen
    }
    env |= {name: MASK for name in role.get("secret_names", ()) if name in env}
    return {**role, "entrypoint": "".join(command[:1]), "args": args, "env": env}


# --- all data ------------------------------------------------------------------------------------


def load_data(app_id: str) -> Object | None:
    """Returns all data of an application that was submitted here, or None without a valid record."""
    paths = own_folder(app_id)
    try:
        if paths is None:
            data = json.loads(files.read_file(_old_path(app_id), LARGEST))
        else:
            data = data_of(JobRecord.load(paths.record))
    except (OSError, StateError, ValueError, RecursionError):
        return None
    sound = value_at(data, "app_id") == app_id and value_at(data, "schema") == SCHEMA
    return data if sound and _is_complete(data) else None


def data_of(record: JobRecord) -> Object:
    """Returns all data of an application from its record."""
    return {
        "schema": SCHEMA,
        "app_id": record.app_id,
        "session": record.session,
        "submitted_at": record.submitted_at,
        "app": record.app,
        "cfg": record.cfg,
        POLICIES: record.policies,
    }


def _old_path(app_id: str) -> Path:
    """Returns the file with the data of an application of version 0.1.0, which had no folder."""
    return Home(user_home()).containers.path / "records" / f"{file_name(app_id)[-LONGEST_NAME:]}.json"


def _is_complete(data: Data) -> bool:
    """Returns True if an application can be created from the data."""
    try:
        check_job(data)
        app_from_dict(data["app"])
    except (DamageError, UsageError, RecursionError):
        return False
    return True


def forget_old(app_id: str) -> None:
    """Removes the file of an application of version 0.1.0."""
    with suppress(OSError, StateError):
        _old_path(app_id).unlink()


def public_order(metadata: Data) -> Object:
    """Returns the metadata of a role that its start and end need."""
    order = {name: metadata[name] for name in (SERVICE, AFTER) if name in metadata}
    service = order.get(SERVICE)
    if isinstance(service, Mapping) and isinstance(service.get("ready"), str):
        order[SERVICE] = {**service, "ready": public_probe(service["ready"])}
    return order


def public_probe(ready: str) -> str:
    """Returns a probe without the arguments of its program and the query of its request.

    >>> public_probe("http:web/health?key=1"), public_probe("cmd:ping -k 1"), public_probe("tcp:web")
    ('http:web/health?********', 'cmd:ping ********', 'tcp:web')
    """
    mark = {"http": "?", "cmd": " "}.get(ready.partition(":")[0])
    if mark:
        head, found, _ = ready.partition(mark)
    else:
        head, found, _ = (ready, "", "")
    if found:
        return f"{head}{found}{MASK}"
    return ready
