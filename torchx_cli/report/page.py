"""Make the page of a report from its data."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from torchx.json_limits import Data
from torchx.specs.macro import macros
from torchx_cli.report.drawing import TITLES, amount, plot
from torchx_cli.report.html import Content, Element, document, element
from torchx_cli.report.series import metric_plot, plot_of, span_of
from torchx_cli.report.style import STYLE
from torchx_cli.report.timeline import Replica, replicas_of, result_of, seconds, timeline
from torchx_cli.terminal.output import counted
from torchx_cli.terminal.times import duration
from torchx_cli.terminal.units import written

MOST_SHOWN = 16
"""Maximum number of replicas in a table that is not folded."""


def page(data: Data) -> str:
    """Returns the page of a report.

    Args:
        data: the data of :func:`torchx_cli.report.collect.collect`.
    """
    replicas = replicas_of(data)
    span = _span(data)
    body = [
        *_head(data, replicas),
        *_failure(data["failure"]),
        *_details(data),
        *_metrics(data, span[0] if span else 0.0),
        *_timeline(replicas, span),
        *_plots(data, span),
        *_roles(data),
        *([] if data["runs"] else _all_replicas(replicas)),
    ]
    return document(f"{data['app_id']} {data['state']}", STYLE, body)


def _when(text: str | None) -> str:
    if text is None:
        return ""
    return f"{datetime.fromisoformat(text).astimezone():%Y-%m-%d %H:%M:%S %Z}"


def _rows(rows: Iterable[tuple[str, Content]]) -> Element:
    listed = [part for name, value in rows if value for part in (element("dt", name), element("dd", value))]
    return element("dl", listed)


def _code(text: str | None) -> Content:
    if text:
        return element("code", text)
    return ""


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _head(data: Data, replicas: list[Replica]) -> list[Element]:
    state = data["state"]
    lasted = ""
    if data["duration"] is not None:
        lasted = f", {duration(data['duration'])}"
    failed = sum(replica["state"] == "FAILED" for replica in replicas)
    count = counted(len(replicas), "run" if data["runs"] else "replica")
    return [
        element("h1", data["app_id"]),
        element(
            "p",
            [
                element("span", state, {"class": f"state {state.lower()}"}),
                f"{lasted}, {count}" + (f", {failed} failed" if failed else "") + f", {data['scheduler']}",
            ],
        ),
        element("p", data["msg"]),
    ]


def _details(data: Data) -> list[Element]:
    options = [f"{key}={_text(value)}" for key, value in data["cfg"].items() if value is not None]
    return [
        element("h2", "Submission"),
        _rows(
            [
                ("handle", _code(data["handle"])),
                ("submitted", _when(data["submitted_at"])),
                ("started", _when(data["started_at"])),
                ("ended", _when(data["ended_at"])),
                ("submitted by", _code(data["command_line"])),
                ("options", _folded(counted(len(options), "option"), ", ".join(options))),
                ("logs", _code(data["log_dir"])),
                ("see", data["ui_url"] or ""),
                ("run it again", _code(data["commands"]["again"])),
                ("its log", _code(data["commands"]["log"])),
                ("reported", _when(data["made_at"])),
            ]
        ),
    ]


def _folded(title: str, text: str) -> Content:
    """Returns a text that is shown after a click on its title."""
    if not text:
        return ""
    return element("details", [element("summary", title), text])


def _failure(failure: Data | None) -> list[Element]:
    if failure is None:
        return []
    parts = [element("h2", "First failure"), element("p", failure["description"], {"class": "bad"})]
    if failure["rank"]:
        parts.append(element("p", failure["rank"], {"class": "bad"}))
    if failure["meaning"]:
        parts.append(element("p", failure["meaning"]))
    for title, lines in (("Error file", failure["error_file"]), ("Last lines", failure["last_lines"])):
        if lines:
            parts += [
                element("p", title, {"class": "soft"}),
                element("pre", [element("div", "\n".join(lines))]),
            ]
    return [*parts, element("p", ["full log: ", element("code", failure["log"])])]


def _span(data: Data) -> tuple[float, float] | None:
    """Returns the time from the first start to the end, or to the report."""
    begin, end = seconds(data["started_at"]), seconds(data["ended_at"] or data["made_at"])
    if begin is None or end is None:
        return None
    return (begin, max(begin, end))


def _metrics(data: Data, zero: float) -> list[Element]:
    """Returns the runs of a sweep, and the metrics as plots; single values as rows."""
    runs = data["runs"]
    parts = [_table(runs[0], runs[1:])] if runs else []
    plots, single = [], []
    for name, unsorted in data["metrics"].items():
        points = sorted(unsorted)
        ends = [points[0][0], points[-1][0]]
        if len(points) > 1:
            texts = [f"run {end}" if runs else duration(end - zero) for end in ends]
            plots.append(plot(metric_plot(name, points), texts))
        else:
            single.append((name, amount(name, points[0][1])))
    if not (runs or data["metrics"]):
        return []
    return [element("h2", "Metrics"), *parts, element("div", plots, {"class": "plots"}), _rows(single)]


def _timeline(replicas: list[Replica], span: tuple[float, float] | None) -> list[Element]:
    if span is not None:
        return [element("h2", "Timeline"), *timeline(replicas, *span)]
    return []


def _plots(data: Data, whole: tuple[float, float] | None) -> list[Element]:
    if data["runs"]:
        return []
    heading = element("h2", "Measurements")
    usage = data["usage"]
    span = None
    if usage is not None:
        span = span_of(usage["replicas"])
    if usage is None or span is None:
        why = data["usage_error"] or (
            "the run was too short" if usage is not None else f"{data['scheduler']} does not measure"
        )
        return [heading, element("p", f"No measurements over time: {why}", {"class": "soft"})]
    zero = whole[0] if whole is not None else span[0]
    plots = [plot_of(key, usage["replicas"], *span) for key in TITLES]
    ends = [duration(end - zero) for end in span]
    drawn = [plot(found, ends) for found in plots if found is not None]
    return [
        heading,
        element("div", drawn, {"class": "plots"}),
        element("p", f"From {usage['source']}", {"class": "soft"}),
        _rows(usage["summary"].items()),
    ]


def _table(heads: Iterable[str], rows: Iterable[Iterable[Content]]) -> Element:
    head = element("tr", [element("th", text) for text in heads])
    body = [element("tr", [element("td", cell) for cell in row]) for row in rows]
    return element("div", [element("table", [head, *body])], {"class": "wide"})


def _roles(data: Data) -> list[Element]:
    parts = [element("h2", "Source")]
    for role in data["app"]["roles"]:
        resource = {key: role["resource"][key] for key in ("cpu", "gpu", "memMB")}
        requested = ", ".join(f"{key} {value}" for key, value in resource.items() if value > 0)
        parts += [
            element("h3", f"{role['name']}, {counted(role['num_replicas'], 'replica')}"),
            _rows(
                [
                    ("command", _code(shlex.join([role["entrypoint"], *role["args"]]))),
                    ("image", role["image"]),
                    ("workspace", data["workspaces"].get(role["name"], "")),
                    ("resource", requested),
                    (
                        "retries",
                        f"{role['max_retries']} ({role['retry_policy']})" * bool(role["max_retries"]),
                    ),
                    ("environment", _pairs(_expanded(role["env"], data["app_id"]))),
                    ("metadata", _pairs(role["metadata"])),
                ]
            ),
        ]
    return [*parts, _rows([("metadata", _pairs(data["app"]["metadata"]))])]


def _expanded(values: Data, app_id: str) -> Data:
    return {name: _text(value).replace(macros.app_id, app_id) for name, value in values.items()}


def _pairs(values: Data) -> Content:
    return [
        part
        for name, value in values.items()
        for part in (element("code", f"{name}={_text(value)}"), Element("<br>"))
    ]


def _all_replicas(replicas: list[Replica]) -> list[Element]:
    rows = []
    for replica in replicas:
        lasted = replica["duration"]
        rows.append(
            [
                f"{replica['role']}/{replica['id']}",
                element("span", replica["state"], {"class": f"state {replica['state'].lower()}"}),
                result_of(replica),
                _when(replica["started_at"]),
                written(lasted, duration),
                replica["hostname"],
            ]
        )
    heads = ("Replica", "State", "Result", "Started", "Duration", "Host")
    table = _table(heads, rows)
    if len(rows) > MOST_SHOWN:
        table = element("details", [element("summary", f"All {len(rows)} replicas"), table])
    return [element("h2", "Replicas"), table]
