"""Show the measurements of an application: one line of peaks and means beside the request, and a note."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from torchx.errors import TorchxError
from torchx.json_limits import without_none
from torchx.printable import memory_size, one_line
from torchx_cli.terminal.units import cores, percent, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torchx.json_limits import Object
    from torchx.runner.api import Runner
    from torchx.scheduling.measurement import AppUsage, ReplicaUsage
    from torchx.specs.status import Member

Value = TypeVar("Value", int, float)

BUSY, FAR_LOWER = 0.05, 0.5
"""Least median use that the lowest is compared with, and the share of it below which that is notable."""

MEANINGFUL = 10.0
"""Seconds that a replica ran at least before measurements are shown: the first ones are not typical."""

LONG_ENOUGH = 300.0
"""Seconds that a replica ran at least before its request is judged."""

TOO_LARGE = 0.1
"""Share of the requested memory below which the request was far too large."""

TOO_SMALL = 0.95
"""Share of the requested memory above which the request was too small."""

IDLE_GPU = 0.05
"""Mean utilisation of GPUs below which they were hardly used."""


def usage_of(runner: Runner, handle: str, *, watched: bool = False) -> AppUsage | None:
    """Returns the measurements of an application; None if there are none, or its engine does not answer.

    Also None while watching an engine that would be queried for them.
    """
    if watched and not runner.scheduler_of(handle).cheap_to_list:
        return None
    try:
        return runner.usage(handle)
    except (TorchxError, OSError):
        return None  # the status is known without them


def usage_data(runner: Runner, handle: str) -> Object:
    """Returns the measurements of an application for the JSON of its status."""
    usage = usage_of(runner, handle)
    return {"usage": None if usage is None else usage.to_json()}


def usage_line(usage: AppUsage | None) -> str:
    """Returns peaks and means beside the request, or an empty string without measurements."""
    if usage is None or not _is_meaningful(usage) or (total := usage.total) is None:
        return ""
    parts = []
    largest = usage.largest
    if largest is not None:
        used = _of(largest.total.memory or 0, largest.requested.memory)
        if _is_alone(usage):
            where = ""
        else:
            where = f" ({one_line(largest.name)})"
        parts.append(f"{'' if 'memory' in usage.current else 'peak '}memory {used}{where}")
    if total.cpu is not None:
        requests = {replica.requested.cpu for replica in usage.replicas}
        requested = None
        if len(requests) == 1:
            requested = requests.pop()
        if requested is None:
            of = ""
        else:
            of = f" of {requested:g}"
        parts.append(f"{'' if 'cpu' in usage.current else 'mean '}CPU {cores(total.cpu)}{of}")
    if total.gpu is not None:
        parts.append(f"mean GPU {percent(total.gpu)}")
    if total.gpu_memory is not None:
        parts.append(f"peak GPU memory {memory_size(total.gpu_memory)}")
    return ", ".join(parts)


def notable(usage: AppUsage | None) -> dict[Member, str]:
    """Returns remarks about the notable replicas of each role, by role and replica."""
    roles: dict[str, dict[int, ReplicaUsage]] = {}
    for each in usage.replicas if usage is not None else ():
        if each.total.span >= MEANINGFUL:
            roles.setdefault(each.role, {})[each.replica] = each  # of several attempts the last one
    found: dict[Member, list[str]] = {}
    for role, replicas in roles.items():
        memory = _known(replicas, "memory")
        if len(memory) > 1:
            largest, median = max(memory, key=memory.__getitem__), _median(memory.values())
            text = f"largest memory: {memory_size(memory[largest])} (median {memory_size(median)})"
            found.setdefault((role, largest), []).append(text)
        for name, form in (("cpu", cores), ("gpu", percent)):
            values = _known(replicas, name)
            if not values:
                continue
            lowest, usual = min(values, key=values.__getitem__), _median(values.values())
            if usual >= BUSY and values[lowest] < usual * FAR_LOWER:
                text = f"lowest {name.upper()}: {form(values[lowest])} (median {form(usual)})"
                found.setdefault((role, lowest), []).append(text)
    return {replica: ", ".join(texts) for replica, texts in found.items()}


def _known(replicas: Mapping[int, ReplicaUsage], name: str) -> dict[int, Any]:
    """Returns a measurement of the replicas that have it."""
    values = {replica: getattr(each.total, name) for replica, each in replicas.items()}
    return without_none(values)


def cells(usage: AppUsage | None) -> tuple[str, str, str]:
    """Returns mean CPU cores, peak memory and mean GPU utilisation of a replica; empty if unknown."""
    if usage is None or (total := usage.total) is None:
        return "", "", ""
    return (
        "" if total.cpu is None or not _is_meaningful(usage) else cores(total.cpu),
        written(total.memory, memory_size),
        written(total.gpu, percent),
    )


def request_note(usage: AppUsage | None) -> str:
    """Returns a remark about a request that was far too large or too small, or an empty string."""
    judged = []
    if usage is not None:
        judged = [r for r in usage.replicas if r.total.span >= LONG_ENOUGH]
    notes = []
    largest = max(judged, key=_memory_share, default=None)
    if largest is not None and largest.requested.memory is not None and largest.total.memory is not None:
        used = _of(largest.total.memory, largest.requested.memory)
        if _memory_share(largest) > TOO_SMALL:
            notes.append(f"{one_line(largest.name)} used {used} memory: request more")
        elif _memory_share(largest) < TOO_LARGE:
            notes.append(f"at most {used} memory used")
    gpus = [r.total.gpu for r in judged if r.total.gpu is not None]
    if gpus and max(gpus) < IDLE_GPU:
        notes.append(f"its GPUs were idle ({percent(sum(gpus) / len(gpus))} used)")
    return "; ".join(notes)


def _median(values: Iterable[Value]) -> Value:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _is_meaningful(usage: AppUsage) -> bool:
    return max((replica.total.span for replica in usage.replicas), default=0.0) >= MEANINGFUL


def _memory_share(replica: ReplicaUsage) -> float:
    requested = replica.requested.memory
    if requested:
        return (replica.total.memory or 0) / requested
    return 0.0


def _is_alone(usage: AppUsage) -> bool:
    return len({(replica.role, replica.replica) for replica in usage.replicas}) == 1


def _of(used: int, requested: int | None) -> str:
    if requested is None:
        return memory_size(used)
    value, unit = memory_size(used).split()
    whole, whole_unit = memory_size(requested).split()
    return f"{value} {unit} of {whole.removesuffix('.0')} {whole_unit}"
