"""The marks of containers: suffixes of their names, with the reason of an end or the time of readiness.

The name is the only property of a container that can be changed, and every user of the engine sees it.
"""

from __future__ import annotations

import re

from torchx.schedulers.docker.labels import LAST_TIME

CANCELLED, STOPPED, FAILED = "cancelled", "stopped", "failed"
EXPIRED, STALLED, UNNEEDED = "expired", "stalled", "unneeded"
ENDED = (STOPPED, CANCELLED, EXPIRED, UNNEEDED)
"""The marks of ends that are not failures."""
READY = "ready"
"""The mark of a service's container that is ready; the time follows, and the mark of its end."""
MARKS = (*ENDED, FAILED, STALLED, READY)
"""The marks without a further text."""
REFUSED = "refused-"
"""Prefix of the mark of a failed container that is not retried because of its cause, which follows."""
UNREADY = "unready-"
"""Prefix of the mark of a service's container that was not ready in time; its probe's last answer follows."""
FORCED = "forced-"
"""Prefix of the mark of a container that a policy has ended as a failed one; the reason follows."""
LONGEST_ANSWER = 80
"""Maximum characters of that answer, and of that reason."""
_READY = f"{READY}(_[0-9]{{1,15}})?"


def split_name(name: str) -> tuple[str, str]:
    """Returns a container's name and its mark.

    >>> split_name("echo-b1-echo-0.cancelled"), split_name("echo-b1-echo-0.2")
    (('echo-b1-echo-0', 'cancelled'), ('echo-b1-echo-0.2', ''))
    """
    head, _, last = name.rpartition(".")
    is_mark = last in MARKS or last.startswith((REFUSED, UNREADY, FORCED)) or re.fullmatch(_READY, last)
    if head and is_mark:
        return (head, last)
    return (name, "")


def split_marks(name: str) -> tuple[str, str, str]:
    """Returns a container's name, the mark of a ready one, and the mark of its end.

    >>> split_marks("a-0.ready_1795740005679.unneeded"), split_marks("a-0.ready"), split_marks("a-0.stopped")
    (('a-0', 'ready_1795740005679', 'unneeded'), ('a-0', 'ready', ''), ('a-0', '', 'stopped'))
    """
    rest, mark = split_name(name)
    if re.fullmatch(_READY, mark):
        return rest, mark, ""
    head, ready = split_name(rest)
    if mark and re.fullmatch(_READY, ready):
        return (head, ready, mark)
    return (rest, "", mark)


def is_passing(mark: str) -> bool:
    """Returns True for an end after which an application may start again; a cancellation replaces its mark.

    >>> is_passing("stopped"), is_passing("unready-HTTP-503"), is_passing("unneeded")
    (True, True, False)
    """
    return mark in (STOPPED, EXPIRED, STALLED) or mark.startswith((UNREADY, FORCED))


def ready_since(at: float | None) -> str:
    """Returns the mark of a service's container that is ready since a time, in seconds since the epoch.

    >>> ready_since(1795740005.6794), ready_since(None)
    ('ready_1795740005679', 'ready')
    """
    if at is None:
        return READY
    return f"{READY}_{int(at * 1000)}"


def ready_at(mark: str) -> float | None:
    """Returns the time in the mark of a container that is ready, None without one."""
    milliseconds = mark.removeprefix(READY).removeprefix("_")
    if milliseconds:
        return min(int(milliseconds) / 1000, LAST_TIME)
    return None


def unready(answer: str) -> str:
    """Returns the mark of a service's container that was not ready in time.

    >>> unready("HTTP 503"), decoded(unready("no: 5 s").removeprefix(UNREADY))
    ('unready-HTTP-503', 'no: 5 s')
    """
    return UNREADY + _encoded(answer)


def forced(reason: str) -> str:
    """Returns the mark of a container that a policy has ended as a failed one.

    >>> forced("it printed 3 lines")
    'forced-it-printed-3-lines'
    """
    return FORCED + _encoded(reason)


def _encoded(answer: str) -> str:
    text = answer[:LONGEST_ANSWER].replace("\n", " ").encode()
    plain = re.sub(rb"[^A-Za-z0-9 ]", lambda found: b"_%02x" % found[0][0], text)
    return plain.replace(b" ", b"-").decode()


def decoded(text: str) -> str:
    """Returns the text in a mark."""
    data = re.sub("_([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), text.replace("-", " "))
    return data.encode("latin-1", "replace").decode("utf-8", "replace")
