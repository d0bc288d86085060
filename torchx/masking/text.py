"""Masking in text: assignments, flags, headers, URLs, and tokens of known forms.

Each function takes linear time for any text, since it processes the output of applications. So no pattern can
match the same characters in two ways, and lookaheads are short.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from torchx.masking.names import LONGEST, has_patterns, looks_secret, name_set

MASK = "********"
"""Replaces a secret."""

_HINTS = (
    *("auth", "bearer", "conn", "cook", "cred", "dsn", "jwt", "key", "pass", "pat", "priv", "pwd", "sas"),
    *("secr", "sig", "tok", "webhook"),
)
_HINT = re.compile("|".join(_HINTS), re.I)
"""A part of every secret name; a text without a match contains no such name."""

_NAME = re.compile(r"[\w.-]+")
_IN_NAME = re.compile(r"[\w.-]*")
_QUOTE = re.compile(r"\\*[\"']")
_SEPARATOR = re.compile(r"(?:=|[ \t]+=[ \t]*|[ \t]*:[ \t]*)")
_ITEM = re.compile(r"[^\s,;&\"'`]+")
_ARGUMENT = re.compile(r"[^\s\"'`]+")
_SPACE = re.compile(r"[ \t]+")
_NEXT_ITEM = re.compile(r"\s*,\s*(?=\\*[\"'])")
_NEXT_PAIR = re.compile(r"[,;&][ \t]*(?:[\w.-]{1,256}[=:]|$|\s)")
_REFERENCE = re.compile(r"\$+(?:[A-Z_][A-Z0-9_]*\Z|\{[^{}\s]*\}\Z|\()")
_SCHEME = re.compile(r"(?:apikey|basic|bearer|digest|negotiate|token)[ \t]+(?=\S)", re.I)
_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "set-cookie", "x-authorization"})

_IN_ADDRESS = re.compile(r"(\w://)([^\s/@:\"'<>]*:)?([^\s/\"'<>]+)@")
_TOKENS = re.compile(
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
_BEARER = re.compile(r"(?<![\w-])(bearer[ \t]+)([\w.~+/=-]{8,})", re.I)
_PRIVATE = re.compile(r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----)(.*?)(?=-----END|\Z)", re.S)

_PROSE = name_set(
    "a an and are as at but by can cannot comes does expects for from given goes has have in is it its "
    "like must needs no nor not of on once only or says takes that the to twice unless wants was which "
    "with without"
)
"""Text that follows a flag in a sentence, and is not its value."""


LONG = 8
"""Minimum length of a secret that does not occur by chance."""

_values: list[str] = []  # the longest first
_references: set[str] = set()


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


def add_references(texts: Iterable[str]) -> None:
    """Adds texts that name secrets without containing them, such as a variable or a file.

    They are not masked as the value of a secret name, as in `--secret HF_TOKEN`.
    """
    _references.update(text for text in texts if text)


def forget_values() -> None:
    """Removes the texts of :func:`add_values` and :func:`add_references`."""
    _values.clear()
    _references.clear()


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
    if text in _references:
        return text
    if has_patterns() or (_may_have(_HINTS, text) and _HINT.search(text) is not None):
        text = _Names(text).masked()
    return mask_forms(text)


def mask_forms(text: str) -> str:
    """Returns a text with masked secrets of known forms: tokens, private keys, passwords in URLs."""
    if "://" in text:
        text = _IN_ADDRESS.sub(_without_password, text)
    if "PRIVATE KEY-----" in text:
        text = _PRIVATE.sub(rf"\1{MASK}", text)
    if _may_have(("bearer",), text):
        text = _BEARER.sub(_without_token, text)
    if any(part in text for part in _TOKEN_PARTS):
        return _TOKENS.sub(_without_token, text)
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
    if user is None and not (len(rest) >= 16 and any(c.isdigit() for c in rest)):
        return found[0]
    return f"{scheme}{user or ''}{MASK}@"


def _without_token(found: re.Match[str]) -> str:
    """Masks a token; after `sk-` and `bearer`, only one with a digit."""
    if (found.re is _BEARER or found[0].startswith("sk-")) and not any(c.isdigit() for c in found[0]):
        return found[0]
    return (found[1] if found.re is _BEARER else "") + MASK


class _Names:
    """A single pass over a text, from one secret name to the next."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._parts: list[str] = []
        self._copied = 0
        self._unclosed: set[str] = set()  # quotes with no further occurrence, not searched again

    def masked(self) -> str:
        text, at = self._text, 0
        if has_patterns():
            find = _NAME.search
        else:
            find = _HINT.search
        while (found := find(text, at)) is not None:
            begin = found.start()
            while begin > at and (text[begin - 1].isalnum() or text[begin - 1] in "_.-"):
                begin -= 1
            end = _IN_NAME.match(text, found.start()).end()  # type: ignore[union-attr]  # always matches
            at = max(end, found.end())
            name = text[begin:end]
            if end - begin <= LONGEST and looks_secret(name):
                at = max(at, self._after(name, begin, end))
        return "".join([*self._parts, text[self._copied :]])

    def _after(self, name: str, begin: int, end: int) -> int:
        """Masks the value that follows a name, and returns the index to continue at."""
        text = self._text
        opening = _quote_before(text, begin)
        closing = _QUOTE.match(text, end)
        if closing is not None and closing[0] != opening:
            closing = None
        after = end if closing is None else closing.end()
        separator = _SEPARATOR.match(text, after)
        if separator is not None and text[separator.end() : separator.end() + 2] != "//":
            spaced = separator.end() - separator.start() > 1
            if ":" in separator[0] and spaced and not self._is_key(name, begin, opening):
                return end
            enclosed = opening if closing is None else ""
            return self._value(separator.end(), enclosed, header=name.lower().strip("-") in _HEADERS)
        if name.startswith("-"):
            in_list = None
            if closing is not None:
                in_list = _NEXT_ITEM.match(text, after)
            if value := in_list or _SPACE.match(text, after):
                return self._value(value.end(), "", flag=True)
        return end

    def _is_key(self, name: str, begin: int, opening: str) -> bool:
        """Returns True if a name before a colon and a space is a key, not a part of a sentence."""
        if opening or name.isupper() or name.lower() in _HEADERS or name[:2] in ("X-", "x-"):
            return True
        line = self._text[max(0, begin - LONGEST) : begin].rpartition("\n")[2]
        return not line.strip(" \t-")

    def _value(self, at: int, enclosed: str, *, header: bool = False, flag: bool = False) -> int:
        """Masks a value, and returns the index to continue at.

        Args:
            at: its start.
            enclosed: the quote before its name, and so after the value; may be empty.
            header: it is the value of an HTTP header, which ends with its line.
            flag: it follows a flag as a separate argument.
        """
        text = self._text
        quote = _QUOTE.match(text, at)
        if quote is not None and quote[0] != enclosed:
            begin, end = quote.end(), self._end_of_quoted(quote.end(), quote[0])
        elif enclosed:
            begin, end = at, self._end_of_quoted(at, enclosed)
        elif header:
            begin, end = at, _end_of_line(text, at)
        else:
            begin, end = at, self._end_of_unquoted(at, flag)
        if header or not enclosed:
            begin = _after_scheme(text, begin, end)
        value = text[begin:end]
        if not value or value.startswith(MASK) or is_reference(value):
            return max(at, begin)
        if flag and quote is None and (value.startswith("-") or value in _PROSE):
            return at
        self._parts += [text[self._copied : begin], MASK]
        self._copied = end
        return end

    def _end_of_unquoted(self, at: int, flag: bool) -> int:
        """Returns the end of a value without quotes; a comma ends it only if another pair follows."""
        text = self._text
        at = _after_scheme(text, at, len(text))
        pattern = _ARGUMENT if flag else _ITEM
        while True:
            found = pattern.match(text, at)
            at = found.end() if found is not None else at
            if flag or at >= len(text) or text[at] not in ",;&" or _NEXT_PAIR.match(text, at) is not None:
                return at
            at += 1

    def _end_of_quoted(self, at: int, quote: str) -> int:
        """Returns the end of a quoted value and adjacent quoted texts, as in `'it'"'"'s'`."""
        end = self._closing(at, quote)
        while (more := _QUOTE.match(self._text, end + len(quote))) is not None:
            quote = more[0]
            end = self._closing(more.end(), quote)
        return end

    def _closing(self, at: int, quote: str) -> int:
        """Returns the index of the closing quote, or the end of the line."""
        text = self._text
        while quote not in self._unclosed:
            end = text.find(quote, at)
            if end < 0:
                self._unclosed.add(quote)
                break
            if quote != '"' or _backslashes_before(text, end) % 2 == 0:
                return end
            at = end + 1
        return _end_of_line(text, at)


def is_reference(value: str) -> bool:
    """Returns True if a value only refers to a variable or file, such as `$HF_TOKEN`."""
    return value in _references or (len(value) <= LONGEST and _REFERENCE.match(value) is not None)


def _quote_before(text: str, begin: int) -> str:
    """Returns the quote directly before a name, with its backslashes; may be empty."""
    if not begin or text[begin - 1] not in "\"'":
        return ""
    return "\\" * _backslashes_before(text, begin - 1) + text[begin - 1]


def _backslashes_before(text: str, at: int) -> int:
    before = text[max(0, at - LONGEST) : at]
    return len(before) - len(before.rstrip("\\"))


def _after_scheme(text: str, begin: int, end: int) -> int:
    """Returns the beginning of the credentials after a scheme such as Bearer; ``begin`` without one."""
    scheme = _SCHEME.match(text, begin, end)
    if scheme is None or is_reference(scheme[0].rstrip()):
        return begin
    return scheme.end()


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    if end < 0:
        return len(text)
    return end
