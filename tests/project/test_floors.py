"""Tests of the levels of the parts: imports point down, without cycles; only some parts may print or exit.

Imports inside functions and for types count too: each means that the upper part depends on the lower one.
Names in strings that are loaded on demand (the registry of schedulers, the table of commands, the lazy names
of ``torchx.specs``) do not count.
"""

from __future__ import annotations

import ast
import re
import sys

import pytest

from project.sources import all_imported, imports_of, modules, nodes_of

pytestmark = pytest.mark.xdist_group("sources")  # one process: each file is parsed once

FLOORS: tuple[tuple[str, ...], ...] = (
    (
        "torchx.errors",
        "torchx.end_causes",
        "torchx.lazy",
        "torchx.machine.files",
        "torchx.version",
        "torchx.deprecations",
        "torchx.settings",
        "torchx.suggestions",
        "torchx.command_line",
        "torchx.pairs",
        "torchx.exit_codes",
        "torchx.json_limits",
        "torchx.json_shape",
        "torchx.yaml_limits",
        "torchx.printable",
        "torchx.masking",
        "torchx",
    ),
    ("torchx.plugins",),
    ("torchx.specs",),
    (
        "torchx.excerpts",
        "torchx.features",
        "torchx.torchrun",
        "torchx.machine",
        "torchx.leases",
        "torchx.scheduling",
        "torchx.services",
        "torchx.stragglers",
        "torchx.workspace",
        "torchx.tracker",
        "torchx.runtime",
        "torchx.distributed",
    ),
    ("torchx.jobs", "torchx.supervisor", "torchx.queue", "torchx.notifications", "torchx.provenance"),
    (
        "torchx.scheduling.base",
        "torchx.scheduling.observation",
        "torchx.scheduling.protocols",
        "torchx.scheduling.responses",
    ),
    ("torchx.schedulers",),
    ("torchx.config", "torchx.discovery"),
    ("torchx.runner", "torchx.sweeps", "torchx.features.bad_nodes"),
    ("torchx_cli", "torchx.cli", "torchx.testing", "torchx.notebook", "torchx.tsm"),
)
"""The levels from the bottom up; a part includes all modules below its name that are not named themselves."""

DOORS = {
    "torchx.__main__": "torchx_cli",
    "torchx.compat": "torchx.schedulers",
    "torchx.compat.cli": "torchx_cli",
    "torchx.compat.docker": "torchx.schedulers",
    "torchx.compat.finders": "torchx.discovery",
    "torchx.compat.local": "torchx.schedulers",
    "torchx.compat.quoting": "torchx.specs",
    "torchx.compat.subclasses": "torchx.scheduling",
    "torchx.specs.builders": "torchx.discovery",
    "torchx.specs.finder": "torchx.discovery",
    "torchx.specs.file_linter": "torchx.discovery",
    "torchx.util": "torchx.discovery",
    "torchx.workspace.docker_workspace": "torchx.schedulers",
}
"""Documented names that re-export modules of a higher level, to which they belong."""

COMPONENTS = "torchx.components"
"""These have no level: like a user's files, they import specs only."""


def part_of(module: str) -> str:
    """Returns the longest known name that contains the module."""
    known = [COMPONENTS, *DOORS, *(name for floor in FLOORS for name in floor)]
    fitting = [name for name in known if module == name or module.startswith(name + ".")]
    return max(fitting, key=len)


def floor_of(module: str) -> int:
    part = part_of(module)
    part = DOORS.get(part, part)
    return next(number for number, names in enumerate(FLOORS) if part in names)


def test_every_module_has_a_floor() -> None:
    missing = [name for name in modules() if name != "torchx" and part_of(name) == "torchx"]
    assert not missing, "add these to FLOORS"


def test_imports_point_down() -> None:
    wrong = [
        f"{modules()[name]}:{found.line}: {name} (floor {floor_of(name)}) imports {found.target} "
        f"(floor {floor_of(found.target)})"
        for name in modules()
        if not name.startswith(COMPONENTS)
        for found in imports_of(name)
        if not found.target.startswith(COMPONENTS) and floor_of(found.target) > floor_of(name)
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_imports_a_component() -> None:
    wrong = [
        f"{modules()[name]}:{found.line}"
        for name in modules()
        if not name.startswith(COMPONENTS)
        for found in imports_of(name)
        if found.target.startswith(COMPONENTS)
    ]
    assert not wrong, wrong


CYCLES = {
    ("torchx.specs.status", "torchx.specs.status_text"): (
        "`format` and `to_json` are methods of AppStatus, and load the text, which few programs need"
    ),
}
"""The groups of modules that import each other, in functions or for types, with the reason; at most one."""


def reachable_from(start: str) -> set[str]:
    """Returns the modules that a module imports, directly or not, also in functions and for types."""
    found: set[str] = set()
    left = [start]
    while left:
        targets = {each.target for each in imports_of(left.pop()) if each.target in modules()}
        left += targets - found
        found |= targets
    return found


def test_imports_have_no_cycle() -> None:
    """Imports in functions and for types count too, as in all tests of this file."""
    reached = {name: reachable_from(name) - {name} for name in modules()}
    groups = {
        tuple(sorted({name, *(other for other in reached[name] if name in reached[other])}))
        for name in modules()
    }
    cycles = {group for group in groups if len(group) > 1}
    assert cycles == set(CYCLES), "remove the cycle, or the reason that is no longer needed"
    assert len(CYCLES) <= 1


def test_the_cycle_with_a_reason_is_none_at_load() -> None:
    for group in CYCLES:
        for name in group:
            at_load = {each.target for each in imports_of(name) if each.at_load}
            if not at_load & (set(group) - {name}):
                break
        else:
            raise AssertionError(f"{group} import each other when they are loaded")


def test_components_import_like_user_files() -> None:
    allowed = ("torchx.specs", "torchx.version", "torchx.compat.quoting", COMPONENTS)
    optional = ("hydra", "omegaconf")
    wrong = [
        f"{modules()[name]}:{line}: {target}"
        for name in modules()
        if name.startswith(COMPONENTS) and name != f"{COMPONENTS}.component_test_base"  # no component
        for line, target in all_imported(name)
        if not (
            any(target == a or target.startswith(a + ".") for a in allowed)
            or target.split(".")[0] in (*sys.stdlib_module_names, *optional)
        )
    ]
    assert not wrong, wrong


def test_no_scheduler_is_imported_by_the_core() -> None:
    """They are named by string and loaded on demand; only their siblings import them."""
    engines = {n for n in modules() if n.startswith("torchx.schedulers.") and n != "torchx.schedulers.api"}
    wrong = [
        f"{modules()[name]}:{found.line}: {found.target}"
        for name in modules()
        if not name.startswith("torchx.schedulers") and name not in DOORS
        for found in imports_of(name)
        if found.target in engines and found.target != "torchx.schedulers.ids"
    ]
    assert not wrong, wrong


@pytest.mark.parametrize("what", ["print", "exit", "signal handler"])
def test_only_the_command_line_does_this(what: str) -> None:
    """Supervisor, conductor, keeper, replica agent and others are programs: they exit and handle signals.

    A program that calls `ending` requests that its signals are handled. A notebook cell prints.
    """
    programs = (
        "torchx.supervisor",
        "torchx.sweeps.conductor",
        "torchx.queue.keeper",
        "torchx.schedulers.shared.child_guard",
        "torchx.schedulers.docker.starter",
        "torchx.schedulers.shared.batch.node.agent",
        "torchx.schedulers.shared.batch.node.program",
        "torchx.distributed.notice",
        "torchx.machine.enter",
        "torchx.scheduling.handover",
        "torchx.scheduling.preflight_program",
        "torchx.scheduling.setup_once.program",
        "torchx.scheduling.patterns",  # a signal or a child process limits a search; both end with it
    )
    hosts = ("torchx_cli", *(("torchx.notebook",) if what == "print" else programs))
    calls = {
        "print": {"print"},
        "exit": {"exit", "sys.exit", "os._exit", "quit"},
        "signal handler": {"signal.signal"},
    }[what]
    wrong = [
        f"{path}:{node.lineno}"
        for name, path in modules().items()
        if not name.startswith(hosts)
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and name_of(node.func) in calls
    ]
    assert not wrong, wrong


def name_of(node: ast.AST) -> str:
    """Returns the dotted name of a function that is called, or an empty string."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


ENGINES = ("docker", "gridengine", "kubernetes", "local", "slurm")


def test_an_engine_imports_nothing_of_another() -> None:
    """Engines share ``schedulers.shared`` and documented names; Docker builds the images of all."""
    prefix = "torchx.schedulers."
    common = ("shared", "api", "ids", "devices")
    wrong = []
    for name in modules():
        engine = name.removeprefix(prefix).split(".")[0]
        if not name.startswith(prefix) or engine not in (*ENGINES, "shared"):
            continue
        for line, target in _mentioned(name):
            part = target.removeprefix(prefix)
            is_image = engine != "shared" and f"{part}.".startswith(("docker.images.", "docker.image_plan."))
            if part.split(".")[0] not in (engine, *common) and not is_image:
                wrong.append(f"{modules()[name]}:{line}: {target}")
    assert not wrong, "\n".join(wrong)


def _mentioned(name: str) -> list[tuple[int, str]]:
    """Returns the scheduler modules that a module imports, or names in a string to import them later."""
    found = [(each.line, each.target) for each in imports_of(name)]
    if name != "torchx.schedulers.shared.gpus":  # its table of engines is a registry, as that of schedulers
        found += [
            (node.lineno, target)
            for node in nodes_of(modules()[name])
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            for target in re.findall(r"torchx\.schedulers(?:\.\w+)+", node.value)
        ]
    return [(line, target) for line, target in found if target.startswith("torchx.schedulers.")]
