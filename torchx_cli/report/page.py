"""Make the page of a report from its data."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from torchx.json_limits import Data
from torchx.specs.macro import macros
from torchx_cli.report.drawing import TITLES, amount, plot
from torchx_cli.report.html import Content, Element, document, element
from torchx_cli.report.series import metric_plot, plot_of, span_of
from torchx_cli.report.timeline import Replica, replicas_of, result_of, seconds, timeline
from torchx_cli.terminal.output import counted
from torchx_cli.terminal.times import duration
from torchx_cli.terminal.units import written

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1c2024; --soft: #5c6570; --rule: #d8dde3;
  --box: #f4f6f8;
  --good: #1a7f37; --bad: #c62828; --wait: #8a6100; --main: #2463b5; --band: #2463b533;
  --c0: #2463b5; --c1: #c4530b; --c2: #1a7f37; --c3: #8b3fb5; --c4: #b0246b; --c5: #0e7c86; --c6: #7a6000;
  --c7: #5b6470; }
@media (prefers-color-scheme: dark) { :root { --back: #16181c; --text: #e3e6ea; --soft: #9aa4af;
  --rule: #343a42;
  --box: #1f2329; --good: #56c271; --bad: #ff7b72; --wait: #d9a520; --main: #6cb0ff; --band: #6cb0ff33;
  --c0: #6cb0ff;
  --c1: #ff9d5c; --c2: #56c271; --c3: #c99cff; --c4: #ff8ac0; --c5: #4fd0d8; --c6: #d8c04a; --c7: #a8b2bd;
  } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1100px; padding: 1.5rem 1rem 3rem; background: var(--back);
  color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; border-bottom: 1px solid var(--rule); }
p { margin: .4rem 0; overflow-wrap: anywhere; }
p:empty, dl:empty, .plots:empty { display: none; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
code { overflow-wrap: anywhere; white-space: pre-wrap; }
pre { background: var(--box); border: 1px solid var(--rule); border-radius: 6px; padding: .7rem;
  margin: .5rem 0;
  white-space: pre-wrap; overflow-wrap: anywhere; max-height: 16rem; overflow-y: auto; display: flex;
  flex-direction: column-reverse; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .2rem 1rem; margin: .5rem 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.state { font-weight: 600; }
.good, .succeeded.state, .running.state { color: var(--good); }
.bad, .failed.state { color: var(--bad); }
.wait, .cancelled.state, .pending.state, .submitted.state { color: var(--wait); }
.soft, .times, .axis, .legend { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
.plots { display: flex; flex-wrap: wrap; gap: 1.2rem 2rem; margin: .5rem 0; }
figure { margin: 0; break-inside: avoid; min-width: 0; flex: 1 1 min(100%, 300px); }
figcaption { font-weight: 600; }
.plot { display: flex; gap: .5rem; height: 130px; }
.axis { display: flex; flex-direction: column; justify-content: space-between; width: 4.6rem;
  text-align: right;
  font-size: 12px; line-height: 1; flex: none; }
.times { display: flex; justify-content: space-between; padding-left: 5.1rem; font-size: 12px; }
.lane .times { padding-left: 0; }
svg { display: block; width: 100%; height: 100%; min-width: 0; overflow: visible; }
svg.row { height: 12px; background: var(--box); }
svg.area { height: 60px; background: var(--box); }
path { fill: none; vector-effect: non-scaling-stroke; stroke-width: 1.5px; }
.grid { stroke: var(--rule); stroke-width: 1px; }
.band { fill: var(--band); stroke: none; }
.middle { stroke: var(--main); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin: .2rem 0; padding: 0;
  font-size: 13px; }
.key { overflow-wrap: anywhere; }
.key::before { content: ""; display: inline-block; width: .8em; height: .8em; margin-right: .35em;
  border-radius: 2px;
  background: currentColor; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); } .c3 { stroke: var(--c3); }
.c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); } .c6 { stroke: var(--c6); } .c7 { stroke: var(--c7); }
.key.m::before { background: var(--main); }
.key.c0::before { background: var(--c0); } .key.c1::before { background: var(--c1); }
.key.c2::before { background: var(--c2); } .key.c3::before { background: var(--c3); }
.key.c4::before { background: var(--c4); } .key.c5::before { background: var(--c5); }
.key.c6::before { background: var(--c6); } .key.c7::before { background: var(--c7); }
.bar { fill: var(--soft); }
.bar.succeeded, .bar.running { fill: var(--good); } .bar.failed { fill: var(--bad); }
  .bar.cancelled { fill: var(--wait); }
.lanes { display: grid; grid-template-columns: fit-content(12rem) minmax(0, 1fr) fit-content(16rem);
  gap: .25rem .8rem;
  align-items: center; font-size: 14px; overflow-wrap: anywhere; }
.lane { display: grid; gap: .2rem; margin: .6rem 0; }
summary { cursor: pointer; }
@media (max-width: 560px) { .wide tr { display: block; padding: .3rem 0;
  border-bottom: 1px solid var(--rule); }
  .wide th, .wide td:empty { display: none; } .wide td { display: flex; padding: 0; border: 0; }
  .wide td::before { content: attr(data-head); color: var(--soft); width: 7rem; flex: none; }
  dl { grid-template-columns: minmax(0, 1fr); } dd { margin-bottom: .4rem; }
  .lanes { grid-template-columns: fit-content(6rem) minmax(0, 1fr) fit-content(7rem); gap: .25rem .5rem; } }
@media print { :root { --back: #fff; --text: #000; --soft: #444; --rule: #bbb; --box: #f4f4f4;
  --good: #1a7f37;
  --bad: #b00020; --wait: #7a5600; --main: #2463b5; --band: #2463b533; --c0: #2463b5; --c1: #c4530b;
  --c2: #1a7f37;
  --c3: #8b3fb5; --c4: #b0246b; --c5: #0e7c86; --c6: #7a6000; --c7: #5b6470; color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 11pt; print-color-adjust: exact;
  -webkit-print-color-adjust: exact; }
  h2 { margin-top: 1.2rem; } figure { flex-basis: 200px; } .plot { height: 90px; }
  pre { max-height: none; display: block; } h2, h3 { break-after: avoid; } tr, .lane { break-inside: avoid; }
  details::details-content { content-visibility: visible; block-size: auto; } }
"""


MOST_SHOWN = 16
"""Maximum number of replicas in a table that is not folded."""


def page(data: Data, *, images: bool = True) -> str:
    """Returns the page of a report.

    Args:
        data: the data of :func:`torchx_cli.report.collect.collect`.
        images: whether the engine uses the images of roles, which are named then.
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
        *_roles(data, images),
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
                ("steps", data["steps"]),
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


def _table(heads: Sequence[str], rows: Iterable[Iterable[Content]]) -> Element:
    """Returns a table; on a phone each row is a list, with the heads before its cells."""
    head = element("tr", [element("th", text) for text in heads])
    body = []
    for row in rows:
        cells = [element("td", cell, {"data-head": name}) for name, cell in zip(heads, row, strict=True)]
        body.append(element("tr", cells))
    return element("div", [element("table", [head, *body])], {"class": "wide"})


def _roles(data: Data, images: bool) -> list[Element]:
    parts = [element("h2", "Source")]
    for role in data["app"]["roles"]:
        resource = {key: role["resource"][key] for key in ("cpu", "gpu", "memMB")}
        requested = ", ".join(f"{key} {value}" for key, value in resource.items() if value > 0)
        parts += [
            element("h3", f"{role['name']}, {counted(role['num_replicas'], 'replica')}"),
            _rows(
                [
                    ("command", _code(shlex.join([role["entrypoint"], *role["args"]]))),
                    ("image", role["image"] * images),
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
                replica["name"],
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
