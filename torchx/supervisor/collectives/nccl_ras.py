"""Queries the RAS subsystem of NCCL: ranks that do not answer, and ranks that are behind the others.

Each job has an address of its own for it, as the default is the same for all jobs of a machine. The protocol
is text: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html
"""

from __future__ import annotations

import re
import socket
import time
from collections import defaultdict

VARIABLE = "NCCL_RAS_ADDR"
"""The variable with the address on which NCCL answers queries."""

ANSWER_WITHIN = 8.0
"""Maximum seconds for an answer; NCCL waits up to 5 seconds for a process that does not respond."""

LARGEST = 4 << 20
"""Maximum bytes of an answer."""

_COMMUNICATOR = r"#\d+-\d+ \(([0-9a-f]+)\)"
_KIND = r"ranks have different (\S+) operation counts"
_MANY = r"\d+ ranks have (?:launched up to operation (\d+)|not launched any operations)"
_ONE = r"Rank (\d+) has (?:launched up to operation (\d+)|not launched any operations)"
_RANK = r"Rank (\d+) -- "
_MISSING = r"The missing ranks?: (.+)"
_DEAD = r"Process (\d+) on node (\S+) managing GPU (\S+)"


def query(port: int) -> str:
    """Returns the state of the communicators of a job; empty if nothing answers.

    Args:
        port: the port of its address.
    """
    end = time.monotonic() + ANSWER_WITHIN
    received = b""
    try:
        with socket.create_connection(("localhost", port), ANSWER_WITHIN) as connection:
            connection.sendall(b"verbose status\n")
            while len(received) < LARGEST and (left := end - time.monotonic()) > 0:
                connection.settimeout(left)
                data = connection.recv(1 << 16)
                if not data:
                    break
                received += data
    except OSError:  # what has been received may name a rank
        pass
    return received.decode("utf-8", "replace")


def findings(text: str) -> list[str]:
    """Returns the ranks that are missing or behind, a line for each communicator and kind.

    Args:
        text: the answer of NCCL.

    >>> findings('''#0-0 (27a079b828ff1a75) MISMATCH
    ...   Communicator ranks have different AllReduce operation counts
    ...   7 ranks have launched up to operation 64
    ...   Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650386 on node node1''')
    ['NCCL: rank 7 has launched 60 of 64 AllReduce operations']
    """
    found: list[str] = []
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.strip() and (line.startswith(" ") or not block):
            block.append(line.strip())
            continue
        found += _of_block(block)
        block = [line.strip()] if line.strip() else []
    found += _of_block(block)
    return list(dict.fromkeys(found))


def _of_block(block: list[str]) -> list[str]:
    if not block:
        return []
    if re.match(_COMMUNICATOR, block[0]) is None:
        dead = [match for line in block if (match := re.match(_DEAD, line))]
        return [f"NCCL: no answer from process {m[1]} on {m[2]} (GPU {m[3]})" for m in dead]
    if block[0].endswith("INCOMPLETE"):
        text = "\n".join(block)
        missing = [n for match in re.finditer(_MISSING, text) for n in re.findall(r"\d+", match[1])]
        missing += [match[1] for match in re.finditer(_RANK, text)]
        if missing:
            return [f"NCCL: no answer from {_ranks(map(int, missing))}"]
        return []
    return _behind(block)


def _behind(block: list[str]) -> list[str]:
    """Returns the ranks of a communicator that have launched fewer operations than others."""
    kind, count = "collective", 0
    most = 0
    ranks: dict[int, list[int]] = defaultdict(list)
    for line in block:
        if (match := re.search(_KIND, line)) is not None:
            kind = match[1]
        elif (match := re.match(_MANY, line)) is not None:
            count = int(match[1] or 0)
            most = max(most, count)
        elif (match := re.match(_ONE, line)) is not None:
            ranks[int(match[2] or 0)].append(int(match[1]))
            most = max(most, int(match[2] or 0))
        elif (match := re.match(_RANK, line)) is not None:
            ranks[count].append(int(match[1]))
    plural = {False: "have", True: "has"}
    return [
        f"NCCL: {_ranks(found)} {plural[len(found) == 1]} launched {launched} of {most} {kind} operations"
        for launched, found in sorted(ranks.items())
        if launched < most
    ]


def _ranks(numbers: object) -> str:
    found = sorted({int(number) for number in numbers})  # type: ignore[attr-defined]
    return f"rank{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"
