"""The labels of containers: their names, and a parser that trusts none of their values.

Every user of an engine can create containers with these labels, so the parser checks the type, size and range
of each value.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from functools import lru_cache
from types import NoneType
from typing import Any

from torchx.json_limits import MOST_REPLICAS, Data, Object
from torchx.json_shape import ANY_KEY, REQUIRED, Limited, Misfit, check
from torchx.schedulers.docker.request import LABEL
from torchx.scheduling.limits import LimitRule

APP_ID, ROLE, REPLICA = f"{LABEL}app-id", f"{LABEL}role-name", f"{LABEL}replica-id"
JOB = f"{LABEL}job"
"""Label: the data of a job that its rules need, as JSON; see docker/record.py."""
USER = f"{LABEL}user"
"""Label: the owner of the application."""
ATTEMPT = f"{LABEL}attempt"
"""Label: the number of the container's attempt, from 1; absent for the first attempt."""
RETRY = f"{LABEL}retry"
"""Label of containers created by a retry: the retries so far, as JSON."""

ENDS_AT = f"{LABEL}ends-at"
"""Label of containers with a time limit: the end of their run, in seconds since the epoch."""

SCHEMA = 2
"""Version of the label JOB. Version 1 held the whole application, its environment included."""
MOST_BYTES = 8 << 20
"""Maximum number of characters in a label."""
DEEPEST = 40
"""Maximum levels of nesting in a label."""
LARGEST = 10**6
"""Maximum number of attempts and retries."""
LONGEST_PAUSE = 1e9
"""Maximum grace period and back-off, in seconds."""
LAST_TIME = 253_000_000_000.0
"""Maximum timestamp, in the year 9987."""

_APP_ID = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,999}"
_POLICIES = ("APPLICATION", "ROLE", "REPLICA")
_UNSEEN = ("Cc", "Cs", "Zl", "Zp")
"""Categories of characters that a name must not contain: controls, surrogates, line ends."""
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the direction of the following text."""


class DamageError(ValueError):
    """A label is invalid; the message is the reason."""


def is_app_id(text: object) -> bool:
    """Returns True if a value is a valid id of an application, usable in a handle and in a path."""
    return isinstance(text, str) and re.fullmatch(_APP_ID, text) is not None


def number_of(labels: Data, name: str, default: int, largest: int) -> int:
    """Returns a whole number from a label.

    Raises:
        DamageError: it is not a number, or too large.
    """
    text = labels.get(name)
    if text is None:
        return default
    if not isinstance(text, str) or re.fullmatch(r"[0-9]{1,12}", text) is None or int(text) > largest:
        raise DamageError(f"its label {_short(name)} is not a number from 0 to {largest}")
    return int(text)


def name_of(labels: Data, name: str) -> str:
    """Returns a name from a label, or an empty string if the label is missing.

    Raises:
        DamageError: it is not a name.
    """
    text = labels.get(name, "")
    if not isinstance(text, str) or not _is_name(text):
        raise DamageError(f"its label {_short(name)} has characters that are not printable")
    return str(text)


def read_job(labels: Data) -> Data:
    """Returns the data of the label JOB, or an empty mapping if it is missing.

    Raises:
        DamageError: it is damaged, or was written by a newer version.
    """
    text = labels.get(JOB)
    if text is not None and not isinstance(text, str):
        raise DamageError("its label job is not a string")
    if text is None:
        return {}
    return _read_job(text)


@lru_cache(maxsize=16)
def _read_job(text: str) -> Data:
    """Parses the label JOB; cached, as all containers of an application have the same."""
    data = _from_json(JOB, text)
    schema = data.get("schema")
    if not isinstance(schema, int) or schema < 1:
        raise DamageError("its label job has no schema")
    if schema > SCHEMA:
        raise DamageError(f"it was made by a newer version (schema {schema}, known: {SCHEMA})")
    check_job(data)
    return data


def check_job(data: Data) -> None:
    """Checks the data of an application, from a label or a file.

    Raises:
        DamageError: they are invalid.
    """
    try:
        check(data, _SHAPE, "")
    except Misfit as error:
        reason = str(error)
        if error.is_limit:
            place, _, name = f"job.{error.path}".rpartition(".")
            reason = f"`{name}` of {place.rpartition('.')[2]} is invalid"
        raise DamageError(f"its label job is damaged: {reason}") from None
    except ValueError as error:
        raise DamageError(f"its label job is damaged: {error}") from None
    roles = data["app"]["roles"]
    if len({role["name"] for role in roles}) < len(roles):
        raise DamageError("its label job is damaged: two roles have the same name")
    if sum(role["num_replicas"] for role in roles) > MOST_REPLICAS:
        raise DamageError(f"its label job names more than {MOST_REPLICAS} replicas")


def read_retry(labels: Data) -> Data:
    """Returns the data of the label RETRY, or an empty mapping if it is missing.

    Raises:
        DamageError: it is damaged.
    """
    text = labels.get(RETRY)
    if text is None:
        return {}
    data = _from_json(RETRY, text)
    try:
        check(data, _RETRY, "")
    except ValueError:
        raise DamageError("its label retry is damaged") from None
    return data


def _from_json(name: str, text: object) -> Object:
    """Returns the JSON object in a label, in bounded time: long numbers and deep nesting are rejected."""
    if not isinstance(text, str) or len(text) > MOST_BYTES:
        raise DamageError(f"its label {_short(name)} is too large")
    try:
        data = json.loads(text, parse_int=_integer, parse_constant=_constant)
    except (ValueError, RecursionError):
        raise DamageError(f"its label {_short(name)} is not JSON") from None
    if not isinstance(data, dict):
        raise DamageError(f"its label {_short(name)} is not a JSON object")
    cleaned: Object = _clean(data, 0)
    return cleaned


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError("a number is too long")
    return int(digits)


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _clean(value: Any, depth: int) -> Any:
    """Returns a value without lone surrogates, which cannot be encoded."""
    if depth > DEEPEST:
        raise DamageError("one of its labels is nested too deeply")
    if isinstance(value, str):
        if not value.isascii():
            return value.encode("utf-8", "replace").decode()
        return value
    if isinstance(value, list):
        return [_clean(one, depth + 1) for one in value]
    if isinstance(value, dict):
        return {_clean(key, depth + 1): _clean(one, depth + 1) for key, one in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise DamageError("one of its labels has an infinite number")
    return value


# --- the shape of the label JOB ------------------------------------------------------------------


def _is_name(value: str) -> bool:
    if _TURNING.intersection(value):
        return False
    return value.isprintable() or all(unicodedata.category(one) not in _UNSEEN for one in value)


def _is_pause(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value is None or (is_number and 0 <= value <= LONGEST_PAUSE)


def _is_cfg(value: Any) -> bool:
    pauses = ("grace_period", "retry_backoff")
    if not all(_is_pause(value.get(name)) for name in pauses):
        return False
    try:
        LimitRule.of(value)
    except ValueError:
        return False
    return True


_COUNT, _NAME = Limited(int, lambda value: 0 <= value <= LARGEST), Limited(str, _is_name)

_SHAPE = {
    REQUIRED: ("app",),
    "session": _NAME,
    "submitted_at": (Limited(float, lambda value: 0 <= value <= LAST_TIME), NoneType),
    "app": {
        REQUIRED: ("roles",),
        "name": _NAME,
        "metadata": dict,
        "roles": [
            {
                REQUIRED: ("name", "num_replicas", "max_retries", "retry_policy", "image"),
                "name": Limited(str, lambda name: bool(name) and _is_name(name)),
                "num_replicas": _COUNT,
                "max_retries": _COUNT,
                "retry_policy": Limited(str, _POLICIES.__contains__),
                "image": str,
                "min_replicas": (_COUNT, NoneType),
                "entrypoint": str,
                "args": [str],
                "env": {ANY_KEY: str},
                "env_names": [str],
                "secret_names": [str],
                "macros": dict,
                "resource": {
                    REQUIRED: ("cpu", "gpu", "memMB"),
                    "cpu": float,
                    "gpu": float,
                    "memMB": float,
                },
                "port_map": {ANY_KEY: _COUNT},
                "metadata": dict,
                "mounts": [dict],
                "workspace": ({ANY_KEY: str}, NoneType),
            }
        ],
    },
    "cfg": (Limited(dict, _is_cfg), NoneType),
    "cfg_env": [str],
}
"""The shape of the label JOB."""

_RETRY = {
    "used": {ANY_KEY: _COUNT},
    "attempts": Limited([_COUNT], lambda attempts: len(attempts) <= MOST_REPLICAS),
}
"""The shape of the label RETRY."""


def _short(label: str) -> str:
    return label.removeprefix(LABEL)
