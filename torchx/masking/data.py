"""Masking in data: by the names of keys, in the arguments of programs, and wherever known secrets occur."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from torchx.masking.names import looks_secret
from torchx.masking.text import MASK, is_reference, mask_text

RECORD = "torchx.pytorch.org/app"
"""The annotation of a manifest that holds the whole application once more, with its environment."""

_ASSIGNED = re.compile(r"(-{0,2}[A-Za-z_][\w.-]{0,255})([=:])(?!//)")
"""How a word begins that gives a value to a name."""


def mask(data: Any, values: Iterable[str] = ()) -> Any:
    """Returns plain data with secrets masked: by the names of keys, and wherever the values occur.

    Dataclasses in it, such as the requests of schedulers, become copies of themselves.

    >>> mask({"env": {"API_KEY": "x", "N": "1"}, "list": [{"name": "MY_TOKEN", "value": "y"}]})
    {'env': {'API_KEY': '********', 'N': '1'}, 'list': [{'name': 'MY_TOKEN', 'value': '********'}]}
    >>> mask({"args": ["--password", "x", "--tokens", "512"]})
    {'args': ['--password', '********', '--tokens', '512']}
    """
    values = tuple(values)
    if isinstance(data, Mapping):
        pair = isinstance(data.get("name"), str) and looks_secret(data["name"])
        return {_masked_key(key): _masked_value(key, value, pair, values) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        items = _masked_items(data, values)
        if isinstance(data, list):
            return items
        return data._make(items) if hasattr(data, "_make") else tuple(items)
    if is_dataclass(data) and not isinstance(data, type):
        masked = copy.copy(data)
        for field in fields(data):  # their names are those of a program, and tell nothing of secrets
            object.__setattr__(masked, field.name, mask(getattr(data, field.name), values))
        return masked
    return _masked_text(data, values) if isinstance(data, str) else data


def mask_arguments(words: Sequence[str], values: Iterable[str] = ()) -> list[str]:
    """Returns the arguments of a program without the values that they give to names of secrets.

    >>> mask_arguments(["--password", "a b", "DB_PASSWORD=c d", "--auth", "--epochs", "3"])
    ['--password', '********', 'DB_PASSWORD=********', '--auth', '--epochs', '3']
    """
    values = tuple(values)
    spans = _spans(words)
    return [
        _masked_text(word, values) if at is None else word[:at] + MASK
        for word, at in zip(words, spans, strict=True)
    ]


def secrets_in_arguments(words: Sequence[str]) -> list[str]:
    """Returns the values that the arguments of a program give to names of secrets.

    >>> secrets_in_arguments(["--password", "a b", "DB_PASSWORD=c d", "--epochs", "3"])
    ['a b', 'c d']
    """
    return [word[at:] for word, at in zip(words, _spans(words), strict=True) if at is not None]


def _spans(words: Sequence[str]) -> list[int | None]:
    """Returns where the secret of each word begins, None for a word that holds none as a whole."""
    spans: list[int | None] = []
    after_flag = False
    for word in words:
        if after_flag and word and not word.startswith("-"):
            spans.append(None if is_reference(word) else 0)
            after_flag = False
            continue
        assigned = _ASSIGNED.match(word)
        if assigned is not None and assigned.end() < len(word) and looks_secret(assigned[1]):
            # a header keeps its scheme, and what follows a colon may be a sentence: that is for mask_text
            whole = assigned[2] == "=" and not is_reference(word[assigned.end() :])
            spans.append(assigned.end() if whole else None)
        else:
            spans.append(None)
        after_flag = word.startswith("-") and "=" not in word and looks_secret(word)
    return spans


def _masked_items(data: Sequence[Any], values: tuple[str, ...]) -> list[Any]:
    if any(isinstance(item, str) and item.startswith("-") for item in data):
        words = [item if isinstance(item, str) else "" for item in data]
        masked = mask_arguments(words, values)
        pairs = zip(data, masked, strict=True)
        return [text if isinstance(item, str) else mask(item, values) for item, text in pairs]
    return [
        mask_arguments([item], values)[0] if isinstance(item, str) else mask(item, values) for item in data
    ]


def _masked_key(key: Any) -> Any:
    return mask_text(key) if isinstance(key, str) and "://" in key else key


def _masked_value(key: Any, value: Any, pair: bool, values: tuple[str, ...]) -> Any:
    """Masks a text, or texts, under a secret's name; under `value` beside one, as Kubernetes writes it."""
    if looks_secret(str(key)) or (pair and key == "value") or key == RECORD:
        if isinstance(value, str) and value:
            return MASK
        if isinstance(value, (list, tuple)) and value and all(isinstance(item, str) for item in value):
            return [MASK for _ in value]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return MASK
    return mask(value, values)


def _masked_text(text: str, values: tuple[str, ...]) -> str:
    for value in values:
        text = text.replace(value, MASK)
    return mask_text(text)
