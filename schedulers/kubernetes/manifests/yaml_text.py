"""Manifests as text: YAML that every reader of Kubernetes' tools reads as it was meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z/$][A-Za-z0-9_./$-]*")
_BREAKS = frozenset("\x85\u2028\u2029")  # to YAML ends of lines, and a block has them read as others
_NO_TEXT = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])


def dump(manifests: Iterable[Mapping[str, Any]]) -> str:
    """Returns manifests as one YAML text of several documents.

    What another reader could take for a number or a truth value is quoted: to PyYAML ``1e3`` and ``y`` are
    texts, to ``kubectl`` they are not.

    >>> print(dump([{"value": "1e3", "args": ["-c", "echo a\\necho b\\n"]}]), end="")
    value: "1e3"
    args:
    - "-c"
    - |
      echo a
      echo b
    """
    import yaml  # on demand: only who shows or writes it needs it

    class Dumper(yaml.SafeDumper):
        """Plain data; each text in the style that suits it."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Dumper, value: str) -> yaml.ScalarNode:
        plain = _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXT
        # of a text that a block cannot hold, the writer makes a quoted one
        style = None if plain else "|" if "\n" in value and _BREAKS.isdisjoint(value) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    written: str = yaml.dump_all(
        manifests, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100_000, explicit_start=False
    )
    return written
