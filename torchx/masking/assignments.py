"""Masking of the values of secret names in text: assignments, flags and headers.

Each function takes linear time for any text, since it processes the output of applications. So no pattern can
match the same characters in two ways, and lookaheads are short.
"""

from __future__ import annotations

import re

from torchx.masking.names import HINTS, LONGEST, MASK, has_patterns, is_reference, looks_secret, name_set

_HINT = re.compile("|".join(HINTS), re.I)
_NAME = re.compile(r"[\w.-]+")
_IN_NAME = re.compile(r"[\w.-]*")
_QUOTE = re.compile(r"\\*[\"']")
_SEPARATOR = re.compile(r"(?:=|[ \t]+=[ \t]*|[ \t]*:[ \t]*)")
_ITEM = re.compile(r"[^\s,;&\"'`]+")
_ARGUMENT = re.compile(r"[^\s\"'`]+")
_SPACE = re.compile(r"[ \t]+")
_NEXT_ITEM = re.compile(r"\s*,\s*(?=\\*[\"'])")
_NEXT_PAIR = re.compile(r"[,;&][ \t]*(?:[\w.-]{1,256}[=:]|$|\s)")
_SCHEME = re.compile(r"(?:apikey|basic|bearer|digest|negotiate|token)[ \t]+(?=\S)", re.I)
_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "set-cookie", "x-authorization"})

_PROSE = name_set(
    "a an and are as at but by can cannot comes does expects for from given goes has have in is it its "
    "like must needs no nor not of on once only or says takes that the to twice unless wants was which "
    "with without"
)
"""Text that follows a flag in a sentence, and is not its value."""


def masked(text: str) -> str:
    """Returns a text in which the values of secret names are masked."""
    if not has_patterns() and _HINT.search(text) is None:
        return text
    return _Names(text).masked()


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
