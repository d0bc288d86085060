"""Which names promise a secret: those of variables, flags, keys, headers and parameters of addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

LONGEST = 256
"""Characters of a name; nothing longer is one."""


def word_set(text: str) -> frozenset[str]:
    """Returns the words of a text."""
    return frozenset(text.split())


_ALWAYS = re.compile(
    "passw(?:or)?d|passphrase|passcode|passwrd|secret(?!ar)|credential"
    "|api_?key|access_?key|private_?key|secret_?key|account_?key|license_?key"
)
"""What makes a name one of a secret wherever it stands in it, as in PGPASSWORD or OPENAI_APIKEY."""

_PARTS = word_set("bearer cred creds dsn pwd")
"""Parts of a name that make it one of a secret, but for the exceptions below."""

_JOINED = re.compile(
    "[a-z]+token"  # authtoken
    "|[a-z]{2,}pwd"  # mysqlpwd
    "|(?:db|ftp|http|key|ldap|mail|my|mysql|pg|redis|root|sasl|smtp|ssh|store|sudo|user)pass"
    "|[a-z]*(?:webhook|cookie)s?"
)
"""Parts that are two words in one."""

_KEYS = word_set(
    "auth deploy deployment encrypt encryption hmac host kms licence master service shared sign signing "
    "ssh ssl storage tls wandb"
)
"""What makes a key one that nobody else may have, when it stands right before `key` or `keys`."""

_TOKENS = word_set("access api auth bearer bot deploy hf id personal refresh secret session")
"""What makes several tokens secrets, and not units of text."""

_UNITS = word_set(
    "batch bos budget cls count counts eos embedding id ids input len length limit mask max min num "
    "number output pad padding per prompt sep size special stop text total unk vocab window"
)
"""What makes a token a unit of text, as in MAX_TOKEN, PAD_TOKEN or TOKEN_COUNT."""

_AFTER_AUTH = word_set(
    "basic bearer config cookie data header headers json key pass string token tokens value"
)
"""What may follow `auth` in the name of a secret; AUTH_URL and AUTH_METHOD are none."""

_AFTER_PRIVATE = word_set(
    "address addresses cidr cluster dns endpoint host hostname hosts image images ip ips link mode "
    "mount mounts network networks port ports registry repo repository subnet subnets tmp zone"
)
"""What may follow `private` in names that everyone may know."""

_PASSES = word_set(
    "backward by double dry first forward fusion high last low multi one opt pre second single two"
)
"""What makes a pass one over data."""

_OPEN_ENDS = word_set("error exception failure invalid missing warning")
"""How the names of errors end."""

_NOT_SECRET = frozenset({"pwd", "oldpwd", "cdpath"})
"""Variables of every shell."""

_SPLIT = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

_patterns: list[re.Pattern[str]] = []


def add_patterns(globs: Iterable[str]) -> None:
    """Masks more names from now on: those that match one of these patterns, as in ``ACME_*``.

    Upper and lower case are the same in them, and so are ``-`` and ``_``.
    """
    from fnmatch import translate

    _patterns.extend(re.compile(translate(glob.lower().replace("-", "_"))) for glob in globs)
    looks_secret.cache_clear()


def forget_patterns() -> None:
    """Forgets what :func:`add_patterns` has added."""
    _patterns.clear()
    looks_secret.cache_clear()


def has_patterns() -> bool:
    """Returns True if :func:`add_patterns` has added any."""
    return bool(_patterns)


@lru_cache(maxsize=4096)
def looks_secret(name: str) -> bool:
    """Returns True if a variable, flag or key of this name may hold a secret.

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
    parts = [part.lower() for part in _SPLIT.findall(name)]
    if not parts or parts[-1] in _OPEN_ENDS:
        return False
    if _ALWAYS.search(plain) is not None or _ALWAYS.search("_".join(parts)) is not None:
        return True
    return any(_is_secret(parts, at) for at in range(len(parts)))


def _is_secret(parts: list[str], at: int) -> bool:
    """Returns True if one part of a name, with those beside it, makes it the name of a secret."""
    part = parts[at]
    before = parts[at - 1] if at else ""
    after = parts[at + 1] if at + 1 < len(parts) else ""
    if part in ("token", "tokens"):
        if part == "tokens":
            return before in _TOKENS
        return before not in _UNITS - {"id"} and after not in _UNITS - {"id"}
    if part in ("key", "keys"):
        return before in _KEYS
    if part == "string":
        return before == "connection"
    if part in ("sig", "signature"):
        return before in ("amz", "goog") or parts == ["sig"]
    if part in ("auth", "authorization", "oauth", "jwt"):
        return not after or after in _AFTER_AUTH
    if part == "private":
        return after not in _AFTER_PRIVATE and before != "is"
    if part == "pass":
        return not after and before not in _PASSES
    if part in ("pat", "sas"):
        return not after and bool(before)
    return part in _PARTS or _JOINED.fullmatch(part) is not None
