"""The record of an application, an annotation of its job: the data that manifests cannot hold.

Annotations are copied more widely than the specification of a pod: into audit logs, metrics and listings.
The record therefore holds no arguments and no values of the environment, only their names, numbers and the
positions of macros; :mod:`torchx.schedulers.kubernetes.application` reads the values from the pod template.
"""

from __future__ import annotations

import base64
import functools
import json
import zlib
from collections.abc import Sequence
from types import NoneType
from typing import Any

from torchx import settings
from torchx.errors import StateError
from torchx.json_limits import MOST_REPLICAS, Data, compact_json, load_json
from torchx.json_shape import ANY_KEY, check
from torchx.masking import SecretValue
from torchx.masking.data import readable_by_others
from torchx.schedulers.kubernetes.api.objects import Object, annotation
from torchx.schedulers.kubernetes.names import RUN_IDS
from torchx.specs.app import AppDef, Role
from torchx.specs.macro import macro_pattern
from torchx.specs.overlay_merge import operator_of
from torchx.specs.run_options import RunOptions
from torchx.specs.serialize import app_to_dict
from torchx.suggestions import without_password

SCHEMA = 2
"""Version of the format. Schema 1, written by version 0.1.0, includes values and arguments."""
MAX_PLAIN = 32_000
"""Maximum bytes of a record in plain text; a longer one is compressed."""
MAX_LENGTH = 90_000
"""Maximum bytes of a record; a longer one is omitted. The annotations of an object are limited to 256 KiB,
and ``kubectl apply`` adds a copy of the object to them."""
MAX_UNPACKED = 8_000_000
"""Maximum bytes of a decompressed record."""
NOT_KEPT = "<not kept>"
"""Placeholder for the environment, command and arguments of containers in overlays."""
HIDDEN = "hidden"
"""Key of a role in a record: the names of its environment, and the positions of macros in its values."""
_MACROS = ("img_root", "app_id", "replica_id", "rank0_env")
_PACKED = "gzip:"
_SHAPE = {
    "schema": int,
    "cfg": dict,
    "app": {
        "name": str,
        "metadata": dict,
        "roles": [
            {
                "name": str,
                "image": str,
                "entrypoint": str,
                "args": [str],
                "env": {ANY_KEY: str},
                "num_replicas": int,
                "min_replicas": (int, NoneType),
                "max_retries": int,
                "retry_policy": str,
                "resource": {
                    "cpu": float,
                    "gpu": float,
                    "memMB": float,
                    "capabilities": dict,
                    "devices": {ANY_KEY: int},
                    "tags": dict,
                },
                "port_map": {ANY_KEY: int},
                "metadata": dict,
                "mounts": [dict],
                "workspace": ({ANY_KEY: (str, NoneType)}, NoneType),
                HIDDEN: {"args": {ANY_KEY: [[(int, str)]]}, "env": {ANY_KEY: [[(int, str)]]}},
            }
        ],
    },
}


class RecordError(StateError):
    """The record of an application is damaged, or was written by a newer version."""

    code = "damaged_record"


def write_record(app: AppDef, cfg: RunOptions) -> str | None:
    """Returns an application and its run options as text, or None if that is too long.

    Values of the environment, arguments, and options of the caller, such as the path of a kubeconfig, are
    omitted.
    """
    options = {
        key: value for key, value in cfg.items() if value is not None and key not in ("kubeconfig", "context")
    }
    plain = app_to_dict(app, strict=False)
    for role, data in zip(app.roles, plain["roles"], strict=True):
        _hide(role, data)
    plain["metadata"] = readable_by_others(_without_values(plain["metadata"]))
    data = {"schema": SCHEMA, "app": plain, "cfg": options}
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    if text != text.encode("utf-8", "ignore").decode():
        text = compact_json(data)  # a lone surrogate needs ASCII escapes
    if len(text.encode()) > MAX_PLAIN:
        packer = zlib.compressobj(wbits=31)
        packed = packer.compress(text.encode()) + packer.flush()
        text = _PACKED + base64.b64encode(packed).decode()
    if len(text) <= MAX_LENGTH:
        return text
    return None


def read_record(text: str) -> Object:
    """Returns the ``schema``, ``app`` and ``cfg`` of a record as plain data.

    Field types and numbers of replicas are validated.

    Raises:
        RecordError: the text is not a record, or was written by a newer version.

    >>> read_record(write_record(AppDef("a"), {"quiet": True}))["cfg"]
    {'quiet': True}
    """
    try:
        if text.startswith(_PACKED):
            text = _unpacked(text.removeprefix(_PACKED))
        data = load_json(text)
    except (ValueError, zlib.error):
        raise RecordError("its record cannot be read: it is damaged") from None
    if not isinstance(data, dict) or not isinstance(data.get("app"), dict):
        raise RecordError("its record cannot be read: it holds no application")
    schema = data.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise RecordError(f"its record was written by a newer version (schema {schema}, known is {SCHEMA})")
    try:
        check(data, _SHAPE, "")
    except ValueError as error:
        raise RecordError(f"its record cannot be read: {error}") from None
    _check_counts(data["app"])
    # a command line there is not ours, and `rerun --set` would run the component that it names
    data["app"]["metadata"] = readable_by_others(data["app"].get("metadata", {}))
    return data


def packed_ids(ids: Sequence[str]) -> str:
    """Returns the ids of runs in their sweep as text for an annotation; empty if there are none, or too many.

    >>> run_ids(packed_ids(["a-1", "a-2"])), packed_ids(["", ""]), run_ids("x")
    (['a-1', 'a-2'], '', [])
    """
    text = ""
    if any(ids):
        text = base64.b64encode(zlib.compress("\n".join(ids).encode())).decode()
    if len(text) <= MAX_LENGTH:
        return text
    return ""


@functools.lru_cache(maxsize=4)
def run_ids(text: str) -> list[str]:
    """Returns the ids of runs in an annotation; none if it is damaged."""
    try:
        return zlib.decompressobj().decompress(base64.b64decode(text), MAX_UNPACKED).decode().split("\n")
    except (ValueError, zlib.error):
        return []


def run_record(text: str, main: Object, run: int) -> Object:
    """Returns the record of a run, made from that of its Job.

    Args:
        text: the record of the Job.
        main: the Job.
        run: the index of the run.

    Raises:
        RecordError: the record is damaged, or was written by a newer version.
    """
    record = _known_record(text)
    roles = [{**role, "num_replicas": 1} for role in record["app"].get("roles", [])]
    ids = run_ids(annotation(main, RUN_IDS))
    own = {}
    if run < len(ids) and ids[run]:
        own = {settings.RUN: ids[run]}
    metadata = {**record["app"].get("metadata", {}), **own}
    return {**record, "app": {**record["app"], "roles": roles, "metadata": metadata}}


_known_record = functools.lru_cache(maxsize=4)(read_record)  # of thousands of runs


def _check_counts(app: Data) -> None:
    roles = app.get("roles", [])
    if "roles" not in app or any("name" not in role for role in roles):
        raise RecordError("its record cannot be read: it has no roles, or one without a name")
    _check_marks(roles)
    if any(not 0 <= role.get(key, 1) <= MOST_REPLICAS for role in roles for key in _COUNTS):
        raise RecordError(f"its record cannot be read: a count is not from 0 to {MOST_REPLICAS}")
    if sum(role.get("num_replicas", 1) for role in roles) > MOST_REPLICAS:
        raise RecordError(f"its record cannot be read: more than {MOST_REPLICAS} replicas")


def _check_marks(roles: list[Data]) -> None:
    """Checks the places of the macros in arguments and variables."""
    parts = [role.get(HIDDEN, {}).get(part, {}) for role in roles for part in ("args", "env")]
    marks = [mark for part in parts for entries in part.values() for mark in entries]
    if any([type(item) for item in mark] != [int, str] for mark in marks):
        raise RecordError("its record cannot be read: the place of a macro is not a number and a string")


_COUNTS = ("num_replicas", "max_retries")


def _unpacked(text: str) -> str:
    unpacker = zlib.decompressobj(wbits=31)
    data = unpacker.decompress(base64.b64decode(text), MAX_UNPACKED)
    if not unpacker.eof:
        raise ValueError("it is cut off, or larger than any record")
    return data.decode()


def _hide(role: Role, data: Object) -> None:
    """Removes values from a role's data, in place; keeps the keys to find them in the pod template."""
    marked = {str(number): marks for number, arg in enumerate(role.args) if (marks := marks_of(arg))}
    env = {n: [] if isinstance(v, SecretValue) else marks_of(v) for n, v in role.env.items()}
    data[HIDDEN] = {"args": marked, "env": env}
    del data["args"], data["env"]
    data["metadata"] = _without_values(data["metadata"])
    if data["workspace"]:
        data["workspace"] = {without_password(key): value for key, value in data["workspace"].items()}


def marks_of(text: str) -> list[list[int | str]]:
    """Returns the macros of a text: the number of characters since the previous one, and the spelling.

    >>> marks_of("--id=${app_id} $${HOME}")
    [[5, '${app_id}'], [1, '$$']]
    """
    marks: list[list[int | str]] = []
    last = 0
    for match in macro_pattern().finditer(text):
        name = match["named"] or match["braced"] or ""
        if match["escaped"] is not None or name in _MACROS or name.startswith("hosts."):
            marks.append([match.start() - last, match[0]])
            last = match.end()
    return marks


def _without_values(value: Any, key: str = "") -> Any:
    """Returns metadata without the environment and arguments of containers in overlays."""
    if key in ("env", "args", "command") and isinstance(value, (list, dict)):
        return NOT_KEPT
    if isinstance(value, dict):
        return {name: _without_values(item, operator_of(str(name))[1]) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_values(item, key if key in ("!tuple", "!pairs") else "") for item in value]
    return value
