"""One function per duty: its mechanism is in one file, and others call it.

A file with a mechanism of its own has its reason here. The lists may only become shorter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from project.sources import ROOT, modules

ON_NODES = "a copy runs on nodes, without other modules"
NO_RECORD = "output of programs, or a message to a process"
ONE_WRITE = "several processes append, each with one write: none may cut the lines of another"
DECODES = "decodes text; its callers read the data"
BY_TYPE = "values of users, converted by the type of an argument or an option"
OWN_PROGRAM = "written by the same version of this project, for another process"


class Duty(NamedTuple):
    """A duty with one function.

    Attributes:
        functions: the functions.
        mechanism: a pattern of the lines that do it.
        others: the files with such lines, each with the reason.
        unless: a pattern of files that call one of the functions, with a mechanism that anyone may use.
    """

    functions: tuple[str, ...]
    mechanism: str
    others: Mapping[str, str] = {}
    unless: str = "$^"


DUTIES = {
    "search a user's pattern within a time": Duty(
        ("torchx.scheduling.patterns.in_time", "torchx.scheduling.patterns.any_matches"), "ITIMER_|SIGVTALRM"
    ),
    "append a record whole or not at all": Duty(
        ("torchx.machine.files.append_lines",),
        r"O_APPEND|files\.APPEND",
        {
            "schedulers/shared/batch/node/agent.py": ON_NODES,
            "schedulers/shared/batch/node/gather.py": ON_NODES,
            "torchx/jobs/end.py": NO_RECORD,
            "torchx/jobs/ended.py": ONE_WRITE,
            "torchx/jobs/events.py": ONE_WRITE,
            "torchx/notifications/launch.py": NO_RECORD,
            "torchx/notifications/store.py": ONE_WRITE,
            "torchx/supervisor/measurement/file.py": "samples of equal size; a failure begins a new file",
            "torchx/supervisor/output.py": NO_RECORD,
            "torchx/supervisor/process.py": NO_RECORD,
            "torchx/supervisor/stalls/actions.py": NO_RECORD,
            "torchx/testing/changes.py": "recognizes writes",
        },
    ),
    "bridge an outage": Duty(
        ("torchx.machine.outage.Outage",),
        r"[<>]=? *\w*(OUTAGE|BACK_WITHIN)\b|\b\w*(OUTAGE|BACK_WITHIN) *[<>]",
    ),
    "poll descriptors": Duty(
        ("torchx.machine.polling.readable", "torchx.machine.polling.ready"),
        r"= poll\(\)$|select\.e?poll\(\)",
        {
            "schedulers/docker/logs.py": "keeps many connections registered",
            "schedulers/shared/batch/node/agent.py": ON_NODES,
            "torchx/scheduling/setup_once/program.py": ON_NODES,
            "torchx/leases/holders.py": "keeps many connections registered",
            "torchx/leases/reception.py": "keeps many connections registered",
            "torchx/leases/waiting.py": "keeps many connections registered",
            "torchx/queue/keepers.py": "keeps many connections registered",
            "torchx/supervisor/services/probes.py": ON_NODES,
            "torchx_cli/contexts/host.py": ON_NODES,
        },
    ),
    "read foreign JSON": Duty(
        (
            "torchx.json_shape.read",
            "torchx.json_shape.check",
            "torchx.json_shape.drop_misfits",
            "torchx.json_shape.typed_at",
        ),
        r"\bjson\.loads?\(|\bload_json\(",
        {
            "schedulers/docker/engine/client.py": DECODES,
            "schedulers/docker/engine/http.py": "the message of an error, as text",
            "schedulers/docker/images/build.py": "lines of progress, as text",
            "schedulers/docker/images/layers.py": DECODES,
            "schedulers/kubernetes/sweeps/launcher.py": OWN_PROGRAM,
            "schedulers/shared/batch/node/judge.py": ON_NODES,
            "schedulers/shared/batch/node/readiness.py": ON_NODES,
            "schedulers/shared/batch/paths.py": DECODES,
            "torchx/discovery/call/arguments.py": BY_TYPE,
            "torchx/discovery/types/containers.py": BY_TYPE,
            "torchx/jobs/events.py": "each event is checked where it is applied",
            "torchx/json_limits.py": DECODES,
            "torchx/machine/aborter.py": OWN_PROGRAM,
            "torchx/machine/enter.py": OWN_PROGRAM,
            "torchx/machine/stack_taker.py": ON_NODES,
            "torchx/provenance/list_packages.py": "runs in any Python, without other modules",
            "torchx/provenance/store.py": "its model reads it",
            "torchx/runner/events/__init__.py": "an interface of TorchX for programs",
            "torchx/runtime/tracking/api.py": "an interface of TorchX for programs",
            "torchx/scheduling/preflight_program.py": OWN_PROGRAM,
            "torchx/scheduling/setup_once/program.py": OWN_PROGRAM,
            "torchx/specs/run_options.py": BY_TYPE,
            "torchx/sweeps/parameters.py": BY_TYPE,
            "torchx/tracker/backend/fsspec.py": "values of users, as they were reported",
            "torchx_cli/contexts/host.py": "runs on other machines, without torchx",
            "torchx_cli/mcp/calls.py": OWN_PROGRAM,
            "torchx_cli/mcp/child.py": OWN_PROGRAM,
            "torchx_cli/mcp/paging.py": OWN_PROGRAM,
            "torchx_cli/mcp/server.py": OWN_PROGRAM,
        },
        unless=r"json_shape|api\.shape import|import .*\bvalue_at\b",
    ),
}


def lines_of(duty: Duty) -> dict[str, list[int]]:
    """Returns the lines of each file that do a duty, without comments and documentation."""
    found: dict[str, list[int]] = {}
    for path in modules().values():
        text = path.read_text(encoding="utf-8")
        if re.search(duty.unless, text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(duty.mechanism, line.partition("  #")[0]) and not line.lstrip().startswith(
                (">>>", "#")
            ):
                found.setdefault(path.relative_to(ROOT).as_posix(), []).append(number)
    return found


@pytest.mark.parametrize("name", DUTIES)
def test_a_duty_has_one_function(name: str) -> None:
    duty = DUTIES[name]
    owners = {modules()[each.rpartition(".")[0]].relative_to(ROOT).as_posix() for each in duty.functions}
    found = {path: lines for path, lines in lines_of(duty).items() if path not in owners}
    new = {path: lines for path, lines in found.items() if path not in duty.others}
    assert not new, f"call {' or '.join(duty.functions)}"
    assert found.keys() == duty.others.keys(), "remove the file from the list"


@pytest.mark.parametrize("name", DUTIES)
def test_a_duty_is_in_the_architecture(name: str) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    functions = ", ".join(f"`{function}`" for function in DUTIES[name].functions)
    assert f"| {name} | {functions} |" in text
