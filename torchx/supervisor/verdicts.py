"""The verdicts on the failures of a job; loads the rules of retries only for a job with retries."""

from __future__ import annotations

from collections.abc import Callable

from torchx.end_causes import EndCause, Reason
from torchx.jobs.record import JobRecord
from torchx.jobs.recovery import describe_survivors
from torchx.json_limits import Object
from torchx.lazy import lazy_imports
from torchx.printable import joined
from torchx.supervisor.policy import COUNTED, Gang
from torchx.supervisor.replicas import Running, decode_status
from torchx.supervisor.services.order import ENDED_WHILE_NEEDED

with lazy_imports:
    from torchx.supervisor import retry_causes


def facts_of_end(
    running: Running,
    status: int | None,
    stopped: str,
    forced: Reason | None,
    kill_reason: Callable[[], Reason],
) -> Object:
    """Returns the data of the event of a replica's end.

    Args:
        running: the replica.
        status: its wait status; None if it cannot be ended.
        stopped: why the policy ended it; empty if it did not.
        forced: why it was ended as a failed one; None if it was not.
        kill_reason: returns the reason of a KILL.
    """
    facts: Object = {}
    reason: Reason | None = None
    if status is None:
        reason = Reason(describe_survivors({running.process}))
    else:
        code, signal_name = decode_status(status)
        if signal_name is None:
            facts = {"code": code}
        else:
            facts = {"signal": signal_name}
        if signal_name == "SIGKILL" and not stopped:
            reason = kill_reason()
    if stopped:
        facts["stopped"] = stopped
    elif forced is not None:
        facts, reason = {"signal": "SIGTERM"}, forced
    if reason is not None:
        facts["msg"] = reason.text
        if reason.cause is not None:
            facts["cause"] = reason.cause.value
    if running.output.lost:
        lost = f"{running.output.lost} bytes of its output were lost: {running.output.lost_why}"
        facts["msg"] = joined(facts.get("msg"), lost)
    return facts


def facts_while_needed(facts: Object) -> Object:
    """Returns the data of the end of a service that was needed."""
    if facts.get("code") == 0:
        facts = {**facts, "cause": EndCause.SERVICE_ENDED.value}
    return {**facts, "needed": True, "msg": facts.get("msg") or ENDED_WHILE_NEEDED}


class Verdicts:
    """Returns the verdict on each end of a replica.

    Args:
        record: the job.
        gang: its rules.
    """

    def __init__(self, record: JobRecord, gang: Gang) -> None:
        retried = any(role.max_retries for role in record.roles)
        # loaded now: torchx may be upgraded while the job runs
        self._causes = retry_causes.RetryCauses(record.cfg, gang) if retried else None

    def of(self, running: Running, facts: Object, expected: bool) -> str:
        """Returns the verdict on the end of a replica; adds the reason against a retry to its facts.

        Args:
            running: the replica.
            facts: its exit code, its signal, and the reason that is known.
            expected: it has succeeded, or was ended by the supervisor.
        """
        if expected or self._causes is None:
            return COUNTED
        return self._causes.verdict(running, facts)
