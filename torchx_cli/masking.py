"""Secrets: values of environment variables that look like one are never printed."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchx.specs.app import AppDef

MASK = "********"
"""Stands for a value that is not shown."""

RECORD = "torchx.pytorch.org/app"
"""The annotation of a manifest that holds the whole application once more, with its environment."""

_WORDS = "TOKEN(?!IZ)|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|CREDENTIAL|PRIVATE"
_NAME = re.compile(_WORDS, re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(\w://[^\s/@:]*:)[^\s/@]+@")
_ASSIGNMENT = re.compile(  # as shells have it, as -cfg takes pairs, and as YAML and JSON do
    rf"\b([A-Z0-9_]*(?:{_WORDS})[A-Z0-9_]*)(=|[\"']?:[ \t]*)"
    rf"(?![\"']?{re.escape(MASK)})(\"[^\"]*\"|'[^']*'|[^\s,;\"']+)"
)


def looks_secret(name: str) -> bool:
    """Tells whether a variable of this name may hold a secret.

    >>> [looks_secret(n) for n in ("HF_TOKEN", "aws_secret_access_key", "TOKENIZERS_PARALLELISM", "PATH")]
    [True, True, False, False]
    """
    return _NAME.search(name) is not None


def secret_names(app: AppDef | None) -> list[str]:
    """Returns the names of an application's variables that may hold a secret."""
    roles = app.roles if app is not None else ()
    return sorted({name for role in roles for name in role.env if looks_secret(name)})


def secret_values(app: AppDef | None) -> tuple[str, ...]:
    """Returns the values of an application's environment that must not be shown wherever they occur.

    Short words and numbers are left out: they occur by chance, and are no secrets.
    """
    if app is None:
        return ()
    values = {v for role in app.roles for n, v in role.env.items() if looks_secret(n)}
    return tuple(sorted((v for v in values if len(v) >= 8 and not v.isdigit()), key=len, reverse=True))


def mask_text(text: str, values: Iterable[str] = ()) -> str:
    """Returns a text without the given values, and without what it assigns to names of secrets.

    >>> mask_text("ftp://me:abc123@host/src")
    'ftp://me:********@host/src'
    >>> mask_text("srun --export=ALL,HF_TOKEN=abc123,N=1")
    'srun --export=ALL,HF_TOKEN=********,N=1'
    >>> mask_text("-cfg env=A:1,DB_PASSWORD:abc123")
    '-cfg env=A:1,DB_PASSWORD:********'
    """
    for value in values:
        text = text.replace(value, MASK)
    text = _IN_ADDRESS.sub(rf"\1{MASK}@", text) if "://" in text else text
    return _ASSIGNMENT.sub(lambda found: f"{found[1]}{found[2]}{MASK}", text)


def mask(data: Any, values: Iterable[str] = ()) -> Any:
    """Returns plain data with secrets masked: by the names of keys, and wherever the values occur.

    Dataclasses in it, such as the requests of schedulers, become copies of themselves.

    >>> mask({"env": {"API_KEY": "x", "N": "1"}, "list": [{"name": "MY_TOKEN", "value": "y"}]})
    {'env': {'API_KEY': '********', 'N': '1'}, 'list': [{'name': 'MY_TOKEN', 'value': '********'}]}
    """
    values = tuple(values)
    if isinstance(data, Mapping):
        pair = isinstance(data.get("name"), str) and looks_secret(data["name"])
        return {
            mask_text(key) if isinstance(key, str) and "://" in key else key: MASK
            if _hidden(str(key), value, pair)
            else mask(value, values)
            for key, value in data.items()
        }
    if isinstance(data, (list, tuple)):
        items = [mask(item, values) for item in data]
        if isinstance(data, list):
            return items
        return data._make(items) if hasattr(data, "_make") else tuple(items)
    if is_dataclass(data) and not isinstance(data, type):
        masked = copy.copy(data)
        for field in fields(data):  # their names are those of a program, and tell nothing of secrets
            object.__setattr__(masked, field.name, mask(getattr(data, field.name), values))
        return masked
    return mask_text(data, values) if isinstance(data, str) else data


def _hidden(key: str, value: object, pair: bool) -> bool:
    """A text under a secret's name; under `value` beside such a name, as Kubernetes writes it; a record."""
    hidden = looks_secret(key) or (pair and key == "value") or key == RECORD
    return hidden and isinstance(value, str) and bool(value)
