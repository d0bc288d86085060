"""Read the output of the script of a Slurm job: ``batch.log``."""

from __future__ import annotations

import os
import re

from torchx.machine import files
from torchx.schedulers.slurm.paths import SlurmPaths

BEGINS = "== attempt "
"""Prefix of the line in ``batch.log`` that begins an attempt."""


def log_tail(paths: SlurmPaths, size: int = 1 << 14) -> str:
    """Returns the last bytes of ``batch.log``, limited to the last attempt."""
    try:
        with os.fdopen(files.open_file(paths.batch_log), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            text = file.read().decode("utf-8", "replace")
            return text[max(text.rfind(BEGINS), 0) :]
    except (OSError, ValueError):
        return ""


def last_error_line(paths: SlurmPaths) -> str:
    """Returns the last error line of ``batch.log``."""
    lines = [line for line in log_tail(paths).splitlines() if re.search(r"error|cannot|fatal", line)]
    return re.sub(r"^\S+: (error|fatal): ", "", lines[-1])[:300] if lines else ""
