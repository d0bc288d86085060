"""Words of users as Kubernetes reads them: what it would take for a variable of its own is escaped.

In arguments and values of the environment Kubernetes replaces ``$(NAME)``, and takes ``$$`` for ``$``.
"""

from __future__ import annotations

import re

from torchx import settings
from torchx.specs.macro import macros

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""The variable that holds a replica's id in the pods of an Indexed Job."""
INDEX = f"$({INDEX_VARIABLE})"
_MARK = "\0index\0"  # no word can hold it: programs are handed words that end at such a character
_DOLLARS = re.compile(r"\$+(?=[(\0])|\$\$+")


def escaped(text: str) -> str:
    """Returns a text as it has to be written so that it arrives as it is.

    >>> escaped("$HOME $(date) $$")
    '$HOME $$(date) $$$$'
    """
    return _DOLLARS.sub(lambda found: found[0] * 2, text)


class Words:
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

    def filled(self, text: str) -> str:
        """Returns a text with its macros replaced.

        >>> Words("ns:a", None).filled("--id=${app_id} --rank ${replica_id} $$${rank0_env} $$(date)")
        '--id=ns:a --rank $(JOB_COMPLETION_INDEX) $TORCHX_RANK0_HOST $$(date)'
        """
        return escaped(self._values.substitute(text)).replace(_MARK, self.index)
