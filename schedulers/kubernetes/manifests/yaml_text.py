"""Writes manifests as YAML that all parsers read alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from torchx.lazy import lazy_imports
from torchx.masking import MASK, SecretValue

with lazy_imports:
    import yaml


_PLAIN = re.compile(r"[A-Za-z/$][A-Za-z0-9_./$-]*")
_BREAKS = frozenset("\x85\u2028\u2029")  # line ends in YAML, which a block scalar would change
_NO_TEXT = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])


def dump(manifests: Iterable[Mapping[str, Any]]) -> str:
    """Returns manifests as YAML documents.

    Strings that some parsers read as numbers or booleans are quoted, such as ``1e3`` and ``y``, which are
    strings for PyYAML but not for ``kubectl``.

    >>> print(dump([{"value": "1e3", "args": ["-c", "echo a\\necho b\\n"]}]), end="")
    value: "1e3"
    args:
    - "-c"
    - |
      echo a
      echo b
    """

    class Dumper(yaml.SafeDumper):
        """Writes plain data without aliases."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Dumper, value: str) -> yaml.ScalarNode:
        plain = _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXT
        # PyYAML quotes a string that a block cannot hold
        style = None if plain else "|" if "\n" in value and _BREAKS.isdisjoint(value) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    Dumper.add_representer(SecretValue, lambda dumper, value: text(dumper, MASK))
    written: str = yaml.dump_all(
        manifests, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100_000, explicit_start=False
    )
    return written
