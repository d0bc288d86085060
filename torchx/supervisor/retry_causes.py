"""Decides whether the failure of a local replica is retried, from its end and its last lines."""

from __future__ import annotations

import contextlib

from torchx.json_limits import Data, Object
from torchx.machine import files
from torchx.printable import joined
from torchx.scheduling.retry_rules import LONGEST_TAIL, Failure, RetryRules, lines_of
from torchx.supervisor.policies import Policy
from torchx.supervisor.policy import COUNTED, NEVER, Gang
from torchx.supervisor.replicas import Running


class RetryCauses(Policy[Running]):
    """The rules of retries of a job.

    Args:
        cfg: the run options.
        gang: the rules of the job.
    """

    def __init__(self, cfg: Data, gang: Gang) -> None:
        self._gang = gang
        self._rules = RetryRules.recorded(cfg)

    def verdict(self, replica: Running, facts: Object) -> str:
        """Returns NEVER for a failure that is not retried; adds the reason to its message."""
        if not self._gang.may_retry(replica.ordinal):
            return COUNTED
        lines = []
        if self._rules.reads_lines:
            with contextlib.suppress(OSError):
                lines = lines_of(files.read_end(replica.output.folder / "combined.log", LONGEST_TAIL))
        refusal = self._rules.refusal(
            Failure(facts.get("code"), facts.get("signal"), lines, facts.get("cause"))
        )
        if not refusal:
            return COUNTED
        facts["msg"] = joined(facts.get("msg"), refusal)
        return NEVER
