"""MacroFiller of users as Kubernetes reads them: what it would take for a variable of its own is escaped.

In arguments and values of the environment Kubernetes replaces ``$(NAME)``, and takes ``$$`` for ``$``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from torchx import settings
from torchx.specs.macro import macros

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""The variable that holds a replica's id in the pods of an Indexed Job."""
INDEX = f"$({INDEX_VARIABLE})"
_MARK = "\0index\0"  # no word can hold it: programs are handed filler that end at such a character
_DOLLARS = re.compile(r"\$+(?=[(\0])|\$\$+")


def escaped(text: str) -> str:
    """Returns a text as it has to be written so that it arrives as it is.

    >>> escaped("$HOME $(date) $$")
    '$HOME $$(date) $$$$'
    """
    return _DOLLARS.sub(lambda match: match[0] * 2, text)


class MacroFiller:
    """Fills in macros and escapes the rest.

    Args:
        app_id: what stands for ``${app_id}``.
        replica: the replica's id; None when only its pod knows it.
        img_root: what stands for ``${img_root}``.
    """

    def __init__(self, app_id: str, replica: int | None, img_root: str = "") -> None:
        self.index = INDEX if replica is None else str(replica)
        self._values = macros.Values(
            img_root=img_root,
            app_id=app_id,
            replica_id=_MARK if replica is None else self.index,
            rank0_env=settings.TORCHX_RANK0_HOST,
        )

    def fill(self, text: str) -> str:
        """Returns a text with its macros replaced.

        >>> MacroFiller("ns:a", None).fill("--id=${app_id} --rank ${replica_id} $$${rank0_env} $$(date)")
        '--id=ns:a --rank $(JOB_COMPLETION_INDEX) $TORCHX_RANK0_HOST $$(date)'
        """
        return escaped(self._values.substitute(text)).replace(_MARK, self.index)

    def value_of(self, written: str) -> str:
        """Returns the text that stands for a macro, before anything is escaped.

        >>> MacroFiller("ns:a", 3).value_of("${replica_id}"), MacroFiller("ns:a", 3).value_of("$$")
        ('3', '$')
        """
        return self._values.substitute(written)


_VARIABLE = re.compile(r"\$\$|" + re.escape(INDEX))


def restored(text: str, marks: Iterable[Sequence[int | str]], filler: MacroFiller) -> str:
    """Returns a text as the role had it before its macros were filled in and the rest was escaped.

    Args:
        text: as it stands in a manifest.
        marks: where its macros stood, see ``record.marks_of``.
        filler: what they were filled in with.

    Returns:
        The text with its macros; where the marks do not fit, the text that the program is given.

    >>> filler = MacroFiller("ns:a", None)
    >>> restored(filler.fill("--n ${replica_id} $(x)"), [[4, "${replica_id}"]], filler)
    '--n ${replica_id} $(x)'
    """
    plain = _VARIABLE.sub(lambda match: "$" if match[0] == "$$" else _MARK, text)
    pieces: list[str] = []
    at = 0
    for before, written in marks:
        filling = filler.value_of(str(written))
        end = at + int(before)
        if not at <= end <= len(plain) or not plain.startswith(filling, end):
            pieces, at = [], 0
            break
        pieces += [plain[at:end], str(written)]
        at = end + len(filling)
    return "".join([*pieces, plain[at:]]).replace(_MARK, macros.replica_id)
