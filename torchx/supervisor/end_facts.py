"""The ends of replicas: the data of their events, and their reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torchx.end_causes import EndCause, Reason
from torchx.jobs.recovery import describe_survivors
from torchx.json_limits import Object
from torchx.supervisor.replicas import Running, decode_status
from torchx.supervisor.services.order import ENDED_WHILE_NEEDED


def facts_of_end(
    running: Running,
    status: int | None,
    stopped: str,
    forced: Reason | None,
    kill_reason: Callable[[], Reason],
) -> tuple[Object, Reason]:
    """Returns the data of the event of a replica's end, and the reason.

    Args:
        running: the replica.
        status: its wait status; None if it cannot be ended.
        stopped: why the policy ended it; empty if it did not.
        forced: why it was ended as a failed one; None if it was not.
        kill_reason: returns the reason of a KILL.
    """
    facts: Object = {}
    reason = Reason()
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
    if running.output.lost:
        lost = f"{running.output.lost} bytes of output were lost: {running.output.lost_why}"
        reason = replace(reason, notes=(lost,))
    return facts, reason


def reason_while_needed(facts: Object, reason: Reason) -> Reason:
    """Returns the reason for the end of a service that was needed."""
    cause = reason.cause
    if facts.get("code") == 0:
        cause = EndCause.SERVICE_ENDED
    if reason.sentence:
        return replace(reason, cause=cause)
    return Reason(ENDED_WHILE_NEEDED, cause)
