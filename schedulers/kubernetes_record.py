"""What an application was, kept with its job: the record that `describe` reads."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any

from torchx.errors import StateError
from torchx.specs.app import AppDef
from torchx.specs.run_options import CfgVal
from torchx.specs.serialize import app_to_dict

SCHEMA = 1
SHORT = 32_000
"""A record of at most so many bytes is written as it is, for people to read; a longer one is compressed."""
LONGEST = 90_000
"""A record that is longer even so is left out: all annotations of an object may take 256 KiB together, and
``kubectl apply`` adds one that holds all of the object once more."""
_PACKED = "gzip:"


def write_record(app: AppDef, cfg: Mapping[str, CfgVal]) -> str | None:
    """Returns an application and its run options as text; None when it is too long to be kept.

    What only matters to who submits, such as the path of a kubeconfig, is left out.
    """
    told = {
        key: value for key, value in cfg.items() if value is not None and key not in ("kubeconfig", "context")
    }
    data = {"schema": SCHEMA, "app": app_to_dict(app, strict=False), "cfg": told}
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    if text != text.encode("utf-8", "ignore").decode():
        text = json.dumps(data, separators=(",", ":"))  # half a letter can only be written in ASCII
    if len(text.encode()) > SHORT:
        packed = gzip.compress(text.encode(), mtime=0)
        text = _PACKED + base64.b64encode(packed).decode()
    return text if len(text) <= LONGEST else None


def read_record(text: str) -> dict[str, Any]:
    """Returns what :func:`write_record` was given: ``schema``, ``app`` and ``cfg`` as plain data.

    Raises:
        StateError: the text is no record.

    >>> read_record(write_record(AppDef("a"), {"quiet": True}))["cfg"]
    {'quiet': True}
    """
    try:
        if text.startswith(_PACKED):
            text = gzip.decompress(base64.b64decode(text.removeprefix(_PACKED))).decode()
        data = json.loads(text)
    except (ValueError, OSError, EOFError) as e:
        raise StateError(f"what is kept of the application cannot be read: {e}") from e
    if not isinstance(data, dict) or not isinstance(data.get("app"), dict):
        raise StateError("what is kept of the application is no record of one")
    return data
