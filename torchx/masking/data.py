"""Masking in data: by the names of keys, in arguments of programs, and of known secrets."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

from torchx.json_limits import Data, Object
from torchx.masking.names import MASK, is_reference, looks_secret
from torchx.masking.text import mask_text
from torchx.settings import COMMAND_LINE, FEATURE

RECORD = "torchx.pytorch.org/app"
"""The annotation of a manifest with the whole application, including its environment."""

SHORTEST = 3
"""Minimum length of a declared secret that is masked within a text."""

_ASSIGNED = r"(-{0,2}[A-Za-z_][\w.-]{0,255})([=:])(?!//)"
"""The start of an argument that assigns a value to a name."""


class SecretValue(str):
    """A value that the user has declared a secret: masked in all output, and in no record.

    >>> mask({"env": {"NAME": SecretValue("x")}}), repr(SecretValue("x"))
    ({'env': {'NAME': '********'}}, "'********'")
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK)


_Known = dict[str, str]
"""Masked texts by text: the replicas of a request have most texts in common, so each is masked once."""


def readable_by_others(metadata: Data) -> Object:
    """Returns the metadata of an application without its command line and the values of its features."""
    return {
        key: value for key, value in metadata.items() if key != COMMAND_LINE and not key.startswith(FEATURE)
    }


def mask(data: Any) -> Any:
    """Returns plain data with masked secrets: by the names of keys, and wherever known secrets occur.

    Copies dataclasses, such as the requests of schedulers.

    >>> mask({"env": {"API_KEY": "x", "N": "1"}, "list": [{"name": "MY_TOKEN", "value": "y"}]})
    {'env': {'API_KEY': '********', 'N': '1'}, 'list': [{'name': 'MY_TOKEN', 'value': '********'}]}
    >>> mask({"args": ["--password", "x", "--tokens", "512"]})
    {'args': ['--password', '********', '--tokens', '512']}
    """
    return _masked(data, {})


def _masked(data: Any, known: _Known) -> Any:
    if isinstance(data, SecretValue):
        return MASK
    if isinstance(data, Mapping):
        pair = isinstance(data.get("name"), str) and looks_secret(data["name"])
        return {_masked_key(key): _masked_value(key, value, pair, known) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        items = _masked_items(data, known)
        if isinstance(data, list):
            return items
        if hasattr(data, "_make"):
            return data._make(items)
        return tuple(items)
    if is_dataclass(data) and not isinstance(data, type):
        masked = copy.copy(data)
        for field in fields(data):  # field names are fixed by code, and do not indicate secrets
            object.__setattr__(masked, field.name, _masked(getattr(data, field.name), known))
        return masked
    if isinstance(data, str):
        return _masked_text(data, known)
    return data


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments of a program with the values of secret names masked.

    >>> mask_arguments(["--password", "a b", "DB_PASSWORD=c d", "--auth", "--epochs", "3"])
    ['--password', '********', 'DB_PASSWORD=********', '--auth', '--epochs', '3']
    """
    return _masked_arguments(arguments, {})


def _masked_arguments(arguments: Sequence[str], known: _Known) -> list[str]:
    starts = _secret_starts(arguments)
    return [
        _masked_text(argument, known) if at is None else argument[:at] + MASK
        for argument, at in zip(arguments, starts, strict=True)
    ]


def secrets_in_arguments(arguments: Sequence[str]) -> list[str]:
    """Returns the values of secret names in the arguments of a program, and in command lines among them.

    Numbers and values shorter than 8 characters are excluded, as they may occur by chance.

    >>> secrets_in_arguments(["--password", "abcd efg", "sh x --token=12345abc", "--api-key", "3"])
    ['abcd efg', '12345abc']
    """
    found: list[str] = []
    for argument, at in zip(arguments, _secret_starts(arguments), strict=True):
        if at is not None:
            found.append(argument[at:])
        elif " " in argument and MASK in mask_text(argument):
            with suppress(ValueError):  # it is not a command line
                found += secrets_in_arguments(shlex.split(argument))
    return [value for value in found if len(value) >= 8 and not value.isdigit()]


def secrets_in_roles(roles: Iterable[Any]) -> list[str]:
    """Returns the secrets in the environments and the arguments of roles, the longest first."""
    found: set[str] = set()
    for role in roles:
        args = [arg if isinstance(arg, str) else "" for arg in (role.entrypoint, *role.args)]  # unvalidated
        found.update(secrets_in_environment(role.env), secrets_in_arguments(args))
    return sorted(found, key=len, reverse=True)


def secrets_in_environment(env: Data) -> list[str]:
    """Returns the values of an environment that were declared secrets, or have secret names.

    Of the latter, numbers and values shorter than 8 characters are excluded, as they may occur by chance.

    >>> secrets_in_environment({"API_KEY": "abcdefgh", "PIN": SecretValue("1234"), "N": "12345678"})
    ['abcdefgh', '1234']
    """
    return [
        str(value)
        for name, value in env.items()
        if isinstance(value, str)
        and (
            len(value) >= SHORTEST
            if isinstance(value, SecretValue)
            else len(value) >= 8 and not value.isdigit() and looks_secret(str(name))
        )
    ]


def _secret_starts(arguments: Sequence[str]) -> list[int | None]:
    """Returns the index of the secret in each argument; None if its rest is not one secret."""
    starts: list[int | None] = []
    after_flag = False
    for argument in arguments:
        if after_flag and argument and not argument.startswith("-"):
            starts.append(None if is_reference(argument) else 0)
            after_flag = False
            continue
        assigned = re.match(_ASSIGNED, argument)
        if assigned is not None and (value := argument[assigned.end() :]) and looks_secret(assigned[1]):
            # after a colon there may be a header with its scheme, or a sentence: mask_text handles these
            whole = assigned[2] == "=" and not is_reference(value)
            starts.append(assigned.end() if whole else None)
        else:
            starts.append(None)
        after_flag = argument.startswith("-") and "=" not in argument and looks_secret(argument)
    return starts


def _masked_items(data: Sequence[Any], known: _Known) -> list[Any]:
    if any(isinstance(item, str) and item.startswith("-") for item in data):
        masked = _masked_arguments([item if isinstance(item, str) else "" for item in data], known)
        pairs = zip(data, masked, strict=True)
        return [text if isinstance(item, str) else _masked(item, known) for item, text in pairs]
    return [
        _masked_arguments([item], known)[0] if isinstance(item, str) else _masked(item, known)
        for item in data
    ]


def _masked_key(key: Any) -> Any:
    if isinstance(key, str) and "://" in key:
        return mask_text(key)
    return key


def _masked_value(key: Any, value: Any, pair: bool, known: _Known) -> Any:
    """Masks the value of a secret name, also as the `name` and `value` of Kubernetes."""
    if looks_secret(str(key)) or (pair and key == "value") or key == RECORD:
        if isinstance(value, str) and value:
            return MASK
        if isinstance(value, (list, tuple)) and value and all(isinstance(item, str) for item in value):
            return [MASK for _ in value]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return MASK
    return _masked(value, known)


def _masked_text(text: str, known: _Known) -> str:
    masked = known.get(text)
    if masked is None:
        masked = known[text] = mask_text(text)
    return masked
