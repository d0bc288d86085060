"""Names of secrets (variables, flags, keys, headers, URL parameters), and texts that only name a secret."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from functools import lru_cache

MASK = "********"
"""Replaces a secret."""

LONGEST = 256
"""Maximum characters of a name."""


HINTS = (
    *("auth", "bearer", "conn", "cook", "cred", "dsn", "jwt", "key", "pass", "pat", "priv", "pwd", "sas"),
    *("secr", "sig", "tok", "webhook"),
)
"""A part of each is in every secret name; a text without one contains no such name."""


def name_set(text: str) -> frozenset[str]:
    """Splits a text into a set of names."""
    return frozenset(text.split())


_ALWAYS = (
    "passw(?:or)?d|passphrase|passcode|passwrd|secret(?!ar)|credential"
    "|api_?key|access_?key|private_?key|secret_?key|account_?key|license_?key"
)
"""Substrings that mark any name as secret, such as PGPASSWORD or OPENAI_APIKEY."""

_PARTS = frozenset(["bearer", "cred", "creds", "dsn", "pwd"])
"""Parts that mark a name as secret, except as listed below."""

_JOINED = (
    "[a-z]+token"  # authtoken
    "|[a-z]{2,}pwd"  # mysqlpwd
    "|(?:db|ftp|http|key|ldap|mail|my|mysql|pg|redis|root|sasl|smtp|ssh|store|sudo|user)pass"
    "|[a-z]*(?:webhook|cookie)s?"
)
"""Compound parts that mark a name as secret."""

_KEYS = name_set(
    "auth deploy deployment encrypt encryption hmac host kms licence master service shared sign signing "
    "ssh ssl storage tls wandb"
)
"""Parts that mark a directly following `key` or `keys` as secret."""

_TOKENS = name_set("access api auth bearer bot deploy hf id personal refresh secret session")
"""Parts that mark a directly following `tokens` as secrets, not units of text."""

_UNITS = name_set(
    "batch bos budget cls count counts eos embedding ids input len length limit mask max min num "
    "number output pad padding per prompt sep size special stop text total unk vocab window"
)
"""Parts that mark a token as a unit of text, as in MAX_TOKEN, PAD_TOKEN or TOKEN_COUNT."""

_AFTER_AUTH = name_set(
    "basic bearer config cookie data header headers json key pass string token tokens value"
)
"""Parts that may follow `auth` in a secret name, unlike AUTH_URL and AUTH_METHOD."""

_AFTER_PRIVATE = name_set(
    "address addresses cidr cluster dns endpoint host hostname hosts image images ip ips link mode "
    "mount mounts network networks port ports registry repo repository subnet subnets tmp zone"
)
"""Parts that may follow `private` in a public name."""

_PASSES = name_set(
    "backward by double dry first forward fusion high last low multi one opt pre second single two"
)
"""Parts that mark a pass as one over data."""

_OPEN_ENDS = frozenset(["error", "exception", "failure", "invalid", "missing", "warning"])
"""Last parts of names of errors."""

_NOT_SECRET = frozenset({"pwd", "oldpwd", "cdpath"})
"""Shell variables."""

_SPLIT = "[A-Z]+(?![a-z])|[A-Z]?[a-z]+"

_REFERENCE = r"\$+(?:[A-Z_][A-Z0-9_]*\Z|\{[^{}\s]*\}\Z|\()"
"""A value that refers to a variable, such as `$HF_TOKEN`."""

_patterns: list[re.Pattern[str]] = []
_references: set[str] = set()


def add_patterns(globs: Iterable[str]) -> None:
    """Adds patterns of secret names, such as ``ACME_*``.

    They ignore case, and treat ``-`` as ``_``.
    """
    _patterns.extend(re.compile(fnmatch.translate(glob.lower().replace("-", "_"))) for glob in globs)
    looks_secret.cache_clear()


def add_references(texts: Iterable[str]) -> None:
    """Adds texts that name secrets without containing them, such as a variable or a file.

    They are not masked as the value of a secret name, as in `--secret HF_TOKEN`.
    """
    _references.update(text for text in texts if text)


def is_named(text: str) -> bool:
    """Returns True for a text of :func:`add_references`."""
    return text in _references


def is_reference(value: str) -> bool:
    """Returns True if a value only refers to a variable or file, such as `$HF_TOKEN`."""
    return value in _references or (len(value) <= LONGEST and re.match(_REFERENCE, value) is not None)


def forget_patterns() -> None:
    """Removes the patterns of :func:`add_patterns` and the texts of :func:`add_references`."""
    _patterns.clear()
    _references.clear()
    looks_secret.cache_clear()


def has_patterns() -> bool:
    """Returns True if :func:`add_patterns` has added patterns."""
    return bool(_patterns)


@lru_cache(maxsize=4096)
def looks_secret(name: str) -> bool:
    """Returns True if a variable, flag or key of this name may contain a secret.

    >>> [looks_secret(n) for n in ("HF_TOKEN", "awsSecretAccessKey", "--password", "PROXY_AUTH")]
    [True, True, True, True]
    >>> [looks_secret(n) for n in ("TOKENIZERS_PARALLELISM", "MAX_TOKENS", "AUTHOR", "MONKEY", "PWD", "PATH")]
    [False, False, False, False, False, False]
    """
    if len(name) > LONGEST:
        return False
    name = name.strip("-")
    plain = name.lower().replace("-", "_")
    if any(pattern.match(plain) for pattern in _patterns):
        return True
    if plain in _NOT_SECRET:
        return False
    parts = [part.lower() for part in re.findall(_SPLIT, name)]
    if not parts or parts[-1] in _OPEN_ENDS:
        return False
    if re.search(_ALWAYS, plain) is not None or re.search(_ALWAYS, "_".join(parts)) is not None:
        return True
    return any(map(_is_secret, ["", *parts], parts, [*parts[1:], ""]))


def _is_secret(before: str, part: str, after: str) -> bool:
    """Returns True if a part, with its neighbours, marks a name as secret; empty for none."""
    rule = _RULES.get(part)
    if rule is not None:
        return rule(before, after)
    return part in _PARTS or re.fullmatch(_JOINED, part) is not None


_RULES: dict[str, Callable[[str, str], bool]] = {
    "token": lambda before, after: _UNITS.isdisjoint((before, after)),
    "tokens": lambda before, after: before in _TOKENS,
    **dict.fromkeys(("key", "keys"), lambda before, after: before in _KEYS),
    "string": lambda before, after: before == "connection",
    "sig": lambda before, after: before in ("amz", "goog") or not before + after,
    "signature": lambda before, after: before in ("amz", "goog"),
    **dict.fromkeys(
        ("auth", "authorization", "oauth", "jwt"), lambda before, after: not after or after in _AFTER_AUTH
    ),
    "private": lambda before, after: after not in _AFTER_PRIVATE and before != "is",
    "pass": lambda before, after: not after and before not in _PASSES,
    **dict.fromkeys(("pat", "sas"), lambda before, after: not after and bool(before)),
}
"""The rules of parts that mark a name as secret only with some neighbours, from both to whether they do."""
