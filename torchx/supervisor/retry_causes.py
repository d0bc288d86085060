"""Decides whether the failure of a local replica is retried, from its end and its last lines."""

from __future__ import annotations

import contextlib

from torchx.end_causes import Reason
from torchx.json_limits import Data
from torchx.machine import files
from torchx.scheduling.retry_rules import LONGEST_TAIL, Failure, RetryRules, lines_of
from torchx.supervisor.policy import Gang
from torchx.supervisor.replicas import Running


class RetryCauses:
    """The rules of retries of a job.

    Args:
        cfg: the run options.
        gang: the rules of the job.
    """

    def __init__(self, cfg: Data, gang: Gang) -> None:
        self._gang = gang
        self._rules = RetryRules.recorded(cfg)

    def refusal(self, running: Running, facts: Data, reason: Reason) -> str:
        """Returns why a failure is not retried, or an empty text.

        Args:
            running: the replica that has failed.
            facts: its exit code and its signal.
            reason: the reason of its end.
        """
        if not self._gang.may_retry(running.ordinal):
            return ""
        lines = []
        if self._rules.reads_lines:
            with contextlib.suppress(OSError):
                lines = lines_of(files.read_end(running.output.folder / "combined.log", LONGEST_TAIL))
        failure = Failure(facts.get("code"), facts.get("signal"), lines, reason.cause)
        return self._rules.refusal(failure)
