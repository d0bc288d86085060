"""Masking in text: values that are known, the values of secret names, URLs, and tokens of known forms.

Each function takes linear time for any text, since it processes the output of applications. So no pattern can
match the same characters in two ways, and lookaheads are short.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from torchx.lazy import lazy_imports
from torchx.masking.names import HINTS, MASK, has_patterns, is_named

with lazy_imports:
    from torchx.masking import assignments

_IN_ADDRESS = r"(\w://)([^\s/@:\"'<>]*:)?([^\s/\"'<>]+)@"
_TOKENS = (
    r"(?<![\w-])(?:"
    r"gh[opsur]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{20,}|sk-[\w-]{20,}"
    r"|[rs]k_(?:live|test)_\w{16,}|xox[abeoprs]-[\w-]{10,}|A(?:KIA|SIA)[A-Z0-9]{16}(?!\w)|AIza[\w-]{30,}"
    r"|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|dckr_(?:pat|oat)_[\w-]{16,}|whsec_\w{16,}|nvapi-[\w-]{20,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)*)"
)
_TOKEN_PARTS = (
    *(
        "gh",
        "github_pat_",
        "glpat-",
        "hf_",
        "sk-",
        "k_live_",
        "k_test_",
        "xox",
        "AKIA",
        "ASIA",
        "AIza",
        "npm_",
        "pypi-",
    ),
    *("dckr_", "whsec_", "nvapi-", "eyJ"),
)
"""Parts of all texts that match; a search for them takes a fraction of the time of the pattern."""
_BEARER = r"(?i)(?<![\w-])(bearer[ \t]+)([\w.~+/=-]{8,})"
_PRIVATE = r"(?s)(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----)(.*?)(?=-----END|\Z)"

LONG = 8
"""Minimum length of a secret that does not occur by chance."""

_values: list[str] = []  # the longest first


def add_values(values: Iterable[str]) -> None:
    """Adds texts to mask wherever they occur, such as the secrets of an application.

    Each long line of a text is masked on its own too, as it may be printed without the others.
    """
    found = {*_values}
    for value in filter(None, values):
        found.add(value)
        if "\n" in value:
            lines = map(str.strip, value.split("\n"))
            found.update(line for line in lines if len(line) >= LONG and not line.startswith("-----"))
    if len(found) > len(_values):
        _values[:] = sorted(found, key=len, reverse=True)


def values_in(texts: Iterable[str]) -> list[str]:
    """Returns the texts of :func:`add_values` that occur in some texts."""
    if not _values:
        return []
    joined = "\0".join(texts)
    return [value for value in _values if value in joined]


def forget_values() -> None:
    """Removes the texts of :func:`add_values`."""
    _values.clear()


def mask_text(text: str) -> str:
    """Returns a text with masked secrets: the values of secret names, and texts of known forms.

    >>> mask_text("ftp://me:abc123@host/src")
    'ftp://me:********@host/src'
    >>> mask_text("srun --export=ALL,HF_TOKEN=abc123,N=1 --tokens 512")
    'srun --export=ALL,HF_TOKEN=********,N=1 --tokens 512'
    >>> mask_text("-cfg env=A:1,DB_PASSWORD:abc123 --password=x")
    '-cfg env=A:1,DB_PASSWORD:******** --password=********'
    >>> mask_text("curl -H 'Authorization: Bearer abc' --api-key xyz")
    "curl -H 'Authorization: Bearer ********' --api-key ********"
    """
    for value in _values:
        text = text.replace(value, MASK)
    if is_named(text):
        return text
    if has_patterns() or _may_have(HINTS, text):
        text = assignments.masked(text)
    return mask_forms(text)


def mask_forms(text: str) -> str:
    """Returns a text with masked secrets of known forms: tokens, private keys, passwords in URLs."""
    if "://" in text:
        text = re.sub(_IN_ADDRESS, _without_password, text)
    if "PRIVATE KEY-----" in text:
        text = re.sub(_PRIVATE, rf"\1{MASK}", text)
    if _may_have(("bearer",), text):
        text = re.sub(_BEARER, _without_bearer, text)
    if any(part in text for part in _TOKEN_PARTS):
        return re.sub(_TOKENS, _without_token, text)
    return text


def _may_have(parts: Sequence[str], text: str) -> bool:
    """Returns True if a text may have one of the parts in upper or lower case; faster than a pattern."""
    if not text.isascii():  # patterns also match letters such as the Kelvin sign
        return True
    lower = text.lower()
    return any(part in lower for part in parts)


def _without_password(found: re.Match[str]) -> str:
    """Masks the password of a URL, or a user name that looks like a token."""
    scheme, user, rest = found.groups()
    if user is None and not (len(rest) >= 16 and _has_digit(rest)):
        return found[0]
    return f"{scheme}{user or ''}{MASK}@"


def _without_token(found: re.Match[str]) -> str:
    """Masks a token; after `sk-`, only one with a digit."""
    if found[0].startswith("sk-") and not _has_digit(found[0]):
        return found[0]
    return MASK


def _without_bearer(found: re.Match[str]) -> str:
    """Masks a token after `bearer` that has a digit."""
    if not _has_digit(found[0]):
        return found[0]
    return found[1] + MASK


def _has_digit(text: str) -> bool:
    return any(c.isdigit() for c in text)
