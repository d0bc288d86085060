"""The evidence about nodes in the end of an application: facts of its engine and lines of its logs.

Only evidence that names a defect of a node counts. An exit code, a signal and an exception do not.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from torchx.end_causes import EndCause
from torchx.excerpts import last_lines
from torchx.features.bad_nodes.store import KEPT, BadNode, remember
from torchx.masking import mask_text
from torchx.printable import shortened
from torchx.scheduling.failure_causes import BEFORE_PROGRAM
from torchx.scheduling.logs import LogQuery
from torchx.specs.handles import parse_app_handle
from torchx.specs.status import AppState

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.specs.status import AppStatus, ReplicaStatus

MOST_REPLICAS, LINES = 16, 100
"""The failed replicas whose logs are read, and the last lines of each."""
LONGEST = 240
"""Maximum characters of a quoted line."""

_ECC = re.compile(r"uncorrectable ECC error|[Dd]ouble.bit ECC")
CRITICAL_XIDS = (48, 62, 64, 74, 79, 95, 119, 120)
"""The errors of GPUs that no program causes, as in the preflight checks."""
_XID = re.compile(r"\bXid \(PCI:[^)]*\): (\d+)")
_PEER = re.compile(r"\bNCCL WARN .*\bpeer ([A-Za-z0-9][A-Za-z0-9.-]*)<\d+>")
_PREFLIGHT = re.compile(rf"{re.escape(BEFORE_PROGRAM[94][1])} on \S+: (?:.*; )?(?:gpu|disk): ")


def record(runner: Runner, handle: str, status: AppStatus) -> None:
    """Remembers the nodes that the end of an application proves to be bad, if its scheduler can avoid nodes.

    An error, such as that of an engine without logs, is not one of the command that has waited for the end.

    Args:
        runner: reads the logs.
        handle: the application.
        status: its status at the end.
    """
    scheduler = parse_app_handle(handle).scheduler_backend
    with suppress(Exception):
        if "avoid_hosts" in runner.scheduler_run_opts(scheduler):
            remember(scheduler, nodes_of(runner, handle, status))


def nodes_of(runner: Runner, handle: str, status: AppStatus) -> Iterator[BadNode]:
    """Yields the bad nodes that the end of an application proves."""
    now = time.time()
    if status.ended_at is not None:
        now = status.ended_at.timestamp()
    found: dict[str, tuple[str, str]] = {host: ("node_lost", text) for host, text in lost(status).items()}
    failed = [each for each in status.replicas if each.state is AppState.FAILED and each.hostname]
    for replica in failed[:MOST_REPLICAS]:
        query = LogQuery({replica.role: frozenset([replica.id])}, tail=LINES)
        for line in last_lines(runner.log_chunks(handle, query), LINES):
            if named := named_by(line, replica, status):
                host, cause = named
                found.setdefault(host, (cause, shortened(mask_text(line.strip()), LONGEST)))
    for host, (cause, evidence) in found.items():
        yield BadNode(host, cause, evidence, handle, now, now + KEPT)


def lost(status: AppStatus) -> dict[str, str]:
    """Returns the lost hosts, each with the reason; none if the engine does not say which one it was."""
    ends = {r.hostname: r.attempts[-1].msg for r in status.replicas if _is_lost(r)}
    everyone = {replica.hostname for replica in status.replicas if replica.hostname}
    if not ends and status.cause is EndCause.NODE_LOST and len(everyone) == 1:
        return {everyone.pop(): status.msg}
    if len(ends) > 1 and ends.keys() == everyone:
        return {}
    return {host: text or "the node was lost" for host, text in ends.items()}


def _is_lost(replica: ReplicaStatus) -> bool:
    return bool(replica.hostname and replica.attempts) and replica.attempts[-1].cause is EndCause.NODE_LOST


def named_by(line: str, replica: ReplicaStatus, status: AppStatus) -> tuple[str, str] | None:
    """Returns the host and the cause that a line of the log of a failed replica names, or None.

    NCCL names a peer when its connection ends, also after an exception there. So the peer counts only if
    its replica has not failed itself, and the line has its name.
    """
    if _ECC.search(line):
        return replica.hostname, "ecc"
    xid = _XID.search(line)
    if xid and int(xid[1]) in CRITICAL_XIDS:
        return replica.hostname, "xid"
    if _PREFLIGHT.match(line.strip()):
        return replica.hostname, "preflight"
    peer = _PEER.search(line)
    if peer:
        for other in _running_on(peer[1], status.replicas):
            if other.hostname != replica.hostname and other.state is not AppState.FAILED:
                return other.hostname, "nccl_remote"
    return None


def _running_on(name: str, replicas: Iterable[ReplicaStatus]) -> Iterator[ReplicaStatus]:
    """Yields the replicas on the host that NCCL names, in short or in full."""
    for replica in replicas:
        if replica.hostname and replica.hostname.partition(".")[0] == name.partition(".")[0]:
            yield replica
