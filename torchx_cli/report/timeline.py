"""The timeline of a report: the attempts of each replica; of many replicas, those that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from torchx.json_limits import Data, Object
from torchx_cli.report.drawing import attempts, captions, counts
from torchx_cli.report.html import Element, element
from torchx_cli.report.series import BINS
from torchx_cli.terminal.times import duration

MOST_ROWS = 48
"""Maximum number of replicas with bars of their own."""

Replica = Data


def seconds(text: str | None) -> float | None:
    """Returns a time as seconds since the epoch."""
    if text is None:
        return None
    return datetime.fromisoformat(text).timestamp()


def replicas_of(data: Data) -> list[Replica]:
    """Returns all replicas, each with its role and its name; those of a sweep are runs."""
    found: list[Object] = [
        {**replica, "role": role["role"]} for role in data["roles"] for replica in role["replicas"]
    ]
    for replica in found:
        replica["name"] = f"{replica['role']}/{replica['id']}"
        if data["runs"]:
            replica["name"] = f"run {replica['role']}"
    return [*found]


def ended_how(attempt: Data) -> str:
    """Returns the signal, the exit code, or the state of an attempt."""
    if attempt["signal"]:
        return str(attempt["signal"])
    code = attempt["exit_code"]
    return attempt["state"].lower() if code is None else f"exit {code}"


def timeline(replicas: Sequence[Replica], begin: float, end: float) -> list[Element]:
    """Returns the timeline of an application.

    Args:
        replicas: all replicas.
        begin: the start of the application.
        end: its end, or the time of the report.
    """
    shown, content = list(replicas), []
    if len(shown) > MOST_ROWS:
        usual = Counter(result_of(replica) for replica in replicas).most_common(1)[0][0]
        unusual = [replica for replica in replicas if result_of(replica) != usual]
        shown = unusual[:MOST_ROWS]
        text = f"Running replicas over time, at most {len(replicas)}; most of them: {usual}"
        area = counts(_running(replicas, begin, end), len(replicas))
        times = captions(["0 s", duration(end - begin)], "times")
        content.append(element("div", [element("span", text), area, times], {"class": "lane"}))
        if shown:
            more = len(unusual) - len(shown)
            others = ""
            if more:
                others = f"; {more} more are in the list of all replicas"
            content.append(element("p", f"Replicas that differ{others}:", {"class": "soft"}))
    cells = []
    for replica in shown:
        spans = [span for attempt in replica["attempts"] if (span := _span(attempt, begin, end)) is not None]
        cells += [
            element("span", replica["name"]),
            attempts(replica, spans),
            element("span", result_of(replica)),
        ]
    if cells:
        return [*content, element("div", cells, {"class": "lanes"})]
    return content


def result_of(replica: Replica) -> str:
    """Returns the result of a replica and the number of its attempts."""
    last = None
    if replica["attempts"]:
        last = replica["attempts"][-1]
    if last:
        text = ended_how(last)
    else:
        text = replica["state"].lower()
    many = len(replica["attempts"])
    if many > 1:
        return f"{text}, {many} attempts"
    return text


def _span(attempt: Data, begin: float, end: float) -> tuple[float, float, str, str] | None:
    """Returns an attempt as parts of the whole time, its state and its description."""
    started = seconds(attempt["started_at"])
    if started is None:
        return None
    ended = seconds(attempt["ended_at"]) or end
    whole = max(1e-3, end - begin)
    first, last = (min(1.0, max(0.0, (when - begin) / whole)) for when in (started, ended))
    text = f"attempt {attempt['number']}: {ended_how(attempt)} after {duration(ended - started)}"
    return first, last, attempt["state"], text


def _running(replicas: Sequence[Replica], begin: float, end: float) -> list[int]:
    """Returns the number of running replicas at each point of the timeline."""
    changes = [0] * (BINS + 1)
    for replica in replicas:
        for attempt in replica["attempts"]:
            span = _span(attempt, begin, end)
            if span is not None:
                first = min(BINS - 1, int(span[0] * BINS))
                changes[first] += 1
                changes[max(first + 1, min(BINS, round(span[1] * BINS)))] -= 1
    running = 0
    return [running := running + change for change in changes[:BINS]]
