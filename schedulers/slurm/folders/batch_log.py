"""Read the output of the script of a Slurm job: ``batch.log``."""

from __future__ import annotations

import re

from torchx.machine import files
from torchx.schedulers.slurm.paths import SlurmPaths
from torchx.schedulers.slurm.reasons import why_no_folder

BEGINS = "== attempt "
"""Prefix of the line in ``batch.log`` that begins an attempt."""


def log_tail(paths: SlurmPaths, size: int = 1 << 14) -> str:
    """Returns the last bytes of ``batch.log``, limited to the last attempt."""
    try:
        text = files.read_end(paths.batch_log, size).decode("utf-8", "replace")
        return text[max(text.rfind(BEGINS), 0) :]
    except (OSError, ValueError):
        return ""


def unshared_folder(paths: SlurmPaths, text: str) -> str:
    """Returns the message about a node without the job's folder, from the end of the log; else empty."""
    node = None
    if re.search(_NO_SCRIPT, text):
        node = re.search(_EXITED, text)
    if node is not None:  # srun ends the replicas on other nodes, and reports them later
        return why_no_folder([paths.folder], node[1])
    return ""


def last_error_line(paths: SlurmPaths) -> str:
    """Returns the last error line of ``batch.log``, or the message about a node without the job's folder."""
    text = log_tail(paths)
    unshared = unshared_folder(paths, text)
    if unshared:
        return unshared
    lines = [line for line in text.splitlines() if re.search(r"error|cannot|fatal", line)]
    if lines:
        return re.sub(r"^(?:\S+:|\[\S+\]) (?:error|fatal): ", "", lines[-1])[:300]
    return ""


_NO_SCRIPT = r"/role-[0-9]+\.sh: No such file"
"""In the message of a shell, dash or bash, on a node without the file of a role."""
_EXITED = r"(?m)srun: error: (\S+): tasks? \S+: Exited with exit code (?:2|127)$"
"""The message of srun about that shell, with its nodes; dash may write the end of its own line after it."""
