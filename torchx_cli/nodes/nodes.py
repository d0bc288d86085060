"""`torchx nodes`: list the nodes that `torchx run --avoid-bad-nodes` avoids, and forgive some of them."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from typing import Annotated

from torchx.errors import UsageError
from torchx.features.bad_nodes import store
from torchx.printable import shortened
from torchx.suggestions import did_you_mean
from torchx_cli.flags import Json, Output, argument, scheduler_option
from torchx_cli.terminal.display import table
from torchx_cli.terminal.output import counted, emit, note, output_format, say
from torchx_cli.terminal.times import ago, iso, whole

HEADS = ("HOST", "SCHEDULER", "CAUSE", "SEEN", "LEFT", "EVIDENCE")

EXAMPLES = """\b
Examples:
  torchx nodes
  torchx run -s slurm --avoid-bad-nodes train.py:trainer
  torchx nodes forgive node17
"""


def nodes_(
    action: Annotated[
        str, argument(metavar="[forgive]", help="Use the hosts again before their time is over.")
    ] = "",
    hosts: Annotated[list[str], argument(metavar="[HOST]...", help="The hosts to forgive.")] = [],  # noqa: B006
    scheduler: Annotated[str, scheduler_option("Only the nodes of this scheduler.")] = "",
    output: Output = "",
    json: Json = False,
) -> int:
    """Show the nodes through which replicas have failed, and why.

    A node is remembered for a week after evidence that names it: it was lost, its GPU reported an ECC error
    or a critical Xid, NCCL lost it, or a preflight check of its GPUs or disk failed. An exit code
    proves nothing.
    """
    form = output_format(output, json)
    found = {name: store.load(name) for name in store.clusters() if scheduler in ("", name)}
    if action:
        _forgive(action, hosts, found)
        return 0
    rows = [(name, node) for name, nodes in found.items() for node in nodes]
    if form != "text":
        emit([_as_data(name, node) for name, node in rows], form)
        return 0
    if not rows:
        note("no bad nodes")
        return 0
    now = time.time()
    lines = [
        (
            node.host,
            name,
            node.cause,
            ago(_local(node.at)),
            whole(node.until - now),
            shortened(node.evidence, 80),
        )
        for name, node in rows
    ]
    for line in table(lines, HEADS, sys.stdout):
        say(line)
    return 0


def _forgive(action: str, hosts: list[str], found: dict[str, list[store.BadNode]]) -> None:
    """Forgives hosts, all or none of them.

    Raises:
        UsageError: the action is unknown, or a host is not a bad node.
    """
    if action != "forgive":
        hint = did_you_mean(action, ["forgive"], "known: forgive, as in: torchx nodes forgive HOST")
        raise UsageError(f"unknown action `{action}` of torchx nodes", hint=hint)
    if not hosts:
        raise UsageError("torchx nodes forgive needs a host", hint="list them: torchx nodes")
    known = {node.host for nodes in found.values() for node in nodes}
    for host in hosts:
        if host not in known:
            hint = did_you_mean(host, known, "list them: torchx nodes")
            raise UsageError(f"`{host}` is not a bad node", hint=hint, code="not_found")
    for name in found:
        store.forgive(name, hosts)
    note(f"{counted(len(set(hosts)), 'node')} forgiven: {', '.join(dict.fromkeys(hosts))}")


def _as_data(name: str, node: store.BadNode) -> dict[str, str | None]:
    times = {"at": iso(_local(node.at)), "until": iso(_local(node.until))}
    return {
        "scheduler": name,
        "host": node.host,
        "cause": node.cause,
        "evidence": node.evidence,
        "app": node.app,
        **times,
    }


def _local(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds).astimezone()
