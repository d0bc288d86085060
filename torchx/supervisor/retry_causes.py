"""Decides whether the failure of a local replica is retried, from its end and its last lines."""

from __future__ import annotations

import os
from pathlib import Path

from torchx.json_limits import Data, Object
from torchx.machine import files
from torchx.scheduling.retry_rules import LONGEST_TAIL, Failure, RetryRules, lines_of
from torchx.supervisor.policy import COUNTED, NEVER, Gang
from torchx.supervisor.replicas import Running


class RetryCauses:
    """The rules of retries of a job.

    Args:
        cfg: the run options.
        gang: the rules of the job.
    """

    def __init__(self, cfg: Data, gang: Gang) -> None:
        self._gang = gang
        try:
            self._rules = RetryRules.of(cfg)
        except ValueError:  # written by another version
            self._rules = RetryRules()

    def verdict(self, running: Running, facts: Object) -> str:
        """Returns the verdict on a failure; adds the reason against a retry to its facts.

        Args:
            running: the replica that has failed.
            facts: its exit code, its signal, and the reason that is known.
        """
        if not self._gang.may_retry(running.ordinal):
            return COUNTED
        lines = []
        if self._rules.reads_lines:
            lines = lines_of(_tail(running.output.folder / "combined.log"))
        known = str(facts.get("msg") or "")
        failure = Failure(facts.get("code"), facts.get("signal"), known, lines, facts.get("cause"))
        refusal = self._rules.refusal(failure)
        if not refusal:
            return COUNTED
        if known:
            facts["msg"] = f"{known}; {refusal}"
        else:
            facts["msg"] = refusal
        return NEVER


def _tail(path: Path) -> bytes:
    """Returns the last bytes of a file; empty if it cannot be read."""
    try:
        descriptor = files.open_file(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, LONGEST_TAIL, max(size - LONGEST_TAIL, 0))
    except OSError:
        return b""
    finally:
        os.close(descriptor)
