"""Escapes arguments and values of the environment, and substitutes macros in them.

In both, Kubernetes replaces ``$(NAME)`` by a variable and ``$$`` by ``$``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from torchx import settings
from torchx.specs.macro import macros

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""The variable that holds a replica's id in the pods of an Indexed Job."""
INDEX = f"$({INDEX_VARIABLE})"
_MARK = "\0index\0"  # arguments of programs cannot contain a null character
_DOLLARS = r"\$+(?=[(\0])|\$\$+"


def escaped(text: str) -> str:
    """Returns a text escaped so that the program receives it unchanged.

    >>> escaped("$HOME $(date) $$")
    '$HOME $$(date) $$$$'
    """
    return re.sub(_DOLLARS, lambda match: match[0] * 2, text)


class MacroFiller:
    """Substitutes macros and escapes the remaining text.

    Args:
        app_id: the value of ``${app_id}``.
        replica: the replica's id, or None if only its pod knows it.
        img_root: the value of ``${img_root}``.
        hosts: the hosts of each role.
        run: each pod is an application of its own, with the id of the Job and the index.
    """

    def __init__(
        self,
        app_id: str,
        replica: int | None,
        img_root: str = "",
        hosts: Mapping[str, str] | None = None,
        *,
        run: bool = False,
    ) -> None:
        if replica is None:
            self.index = INDEX
        else:
            self.index = str(replica)
        self._values = macros.Values(
            img_root=img_root,
            app_id=f"{app_id}.{_MARK}" if run else app_id,
            replica_id=_MARK if replica is None else self.index,
            rank0_env=settings.TORCHX_RANK0_HOST,
            role_hosts=hosts or {},
        )

    def fill(self, text: str) -> str:
        """Returns an escaped text with its macros substituted.

        >>> MacroFiller("ns:a", None).fill("--id=${app_id} --rank ${replica_id} $$${rank0_env} $$(date)")
        '--id=ns:a --rank $(JOB_COMPLETION_INDEX) $TORCHX_RANK0_HOST $$(date)'
        """
        return escaped(self._values.substitute(text)).replace(_MARK, INDEX)

    def value_of(self, written: str) -> str:
        """Returns the unescaped value of a macro.

        >>> MacroFiller("ns:a", 3).value_of("${replica_id}"), MacroFiller("ns:a", 3).value_of("$$")
        ('3', '$')
        """
        return self._values.substitute(written)


_VARIABLE = r"\$\$|" + re.escape(INDEX)


def restored(text: str, marks: Iterable[Sequence[int | str]], filler: MacroFiller) -> str:
    """Restores the text of a role from a manifest, with its macros and without escaping.

    Args:
        text: the text in the manifest.
        marks: the positions of its macros, see ``record.marks_of``.
        filler: the filler that substituted them.

    Returns:
        The text with its macros; if the marks do not match, the text that the program receives.

    >>> filler = MacroFiller("ns:a", None)
    >>> restored(filler.fill("--n ${replica_id} $(x)"), [[4, "${replica_id}"]], filler)
    '--n ${replica_id} $(x)'
    """
    plain = re.sub(_VARIABLE, lambda match: "$" if match[0] == "$$" else _MARK, text)
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
