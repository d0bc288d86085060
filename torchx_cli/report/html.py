"""Make HTML elements; the only place that joins text with markup."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Mapping

from torchx.printable import printable

_INVALID = "[\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
"""Characters that are invalid in a page."""


class Element(str):
    """Markup, as opposed to text."""


Content = str | Iterable[str]
"""Text that is escaped, elements, or both."""


def escape(text: object) -> Element:
    r"""Returns a text as markup: controls of terminals and of the text direction are shown, not obeyed.

    >>> escape('<b a="1">\x1b\u202e')
    '&lt;b a=&quot;1&quot;&gt;\\x1b\\u202e'
    """
    if isinstance(text, Element):
        return text
    shown = re.sub(_INVALID, lambda found: f"\\u{ord(found[0]):04x}", printable(text))
    return Element(html.escape(shown))


def element(name: str, content: Content = "", attributes: Mapping[str, str] | None = None) -> Element:
    """Returns an element.

    Args:
        name: its name.
        content: its content; texts are escaped.
        attributes: its attributes; their values are escaped.

    >>> element("p", ["a < b ", element("b", "&")], {"class": '"'})
    '<p class="&quot;">a &lt; b <b>&amp;</b></p>'
    """
    parts = [content] if isinstance(content, str) else content
    listed = "".join(f' {key}="{escape(value)}"' for key, value in (attributes or {}).items())
    return Element(f"<{name}{listed}>{''.join(map(escape, parts))}</{name}>")


def document(title: str, style: str, body: Iterable[Element]) -> str:
    """Returns a page that may load nothing and run no script.

    Args:
        title: its title.
        style: its style sheet.
        body: its content.
    """
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="color-scheme" content="light dark">\n'
        f"{element('title', title)}\n<style>{style}</style>\n</head>\n"
        "<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )
