"""Read the output of the script of a job: ``batch.log``."""

from __future__ import annotations

import re

from torchx.machine import files
from torchx.schedulers.shared.batch.paths import BatchPaths

BEGINS = "== attempt "
"""Prefix of the line in ``batch.log`` that begins an attempt."""


def log_tail(paths: BatchPaths, size: int = 1 << 14) -> str:
    """Returns the last bytes of ``batch.log``, limited to the last attempt."""
    try:
        text = files.read_end(paths.batch_log, size).decode("utf-8", "replace")
        return text[max(text.rfind(BEGINS), 0) :]
    except (OSError, ValueError):
        return ""


def last_error_line(text: str) -> str:
    """Returns the last error line of the end of ``batch.log``; empty without one."""
    lines = [line for line in text.splitlines() if re.search(r"error|cannot|fatal", line)]
    if lines:
        return re.sub(r"^(?:\S+:|\[\S+\]) (?:error|fatal): ", "", lines[-1])[:300]
    return ""
