"""Tests of the folders of the engines: equal names for equal duties, and schedulers without logic."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from project.sources import PACKAGES, modules, tree_of

ENGINES = ("local", "docker", "slurm", "kubernetes")

DUTIES = {
    "_run_opts": "options",
    "_pre_build_validate": "options",
    "_validate": "checks",
    "_submit_dryrun": "request",
    "schedule": "submit",
    "describe": "status",
    "glance": "status",
    "describe_native": "status",
    "list": "status",
    "exists": "status",
    "_cancel_existing": "cancel",
    "kill": "cancel",
    "delete": "cancel",
    "_delete_existing": "cancel",
    "wait": "wait",
    "log_chunks": "logs",
    "usage": "usage",
    "stacks": "stacks",
    "execute": "exec",
    "prune": "prune",
    "diagnose": "doctor",
}
"""The file of an engine that a method of its scheduler calls."""

OPTIONAL = {"usage": "Measures", "stacks": "TakesStacks", "execute": "Executes", "prune": "Prunes"}
"""Methods that an engine may lack, and their protocols."""

ABSENT = {
    ("docker", "stacks"): "torchx.runner.stacks, by a program in each container",
    ("kubernetes", "stacks"): "torchx.runner.stacks, by a program in each container",
    ("local", "prune"): "torchx.jobs.pruning, as records on this machine belong to torchx.jobs",
    ("local", "record"): "torchx.jobs.record, as a supervisor reads it too",
    ("slurm", "prune"): "a cluster is shared, and its folders are those of its users",
    ("kubernetes", "prune"): "a cluster has ttlSecondsAfterFinished, the run option ttl",
}
"""Duties without a file of their own, and the reasons."""

ELSEWHERE = {
    **{
        ("docker", duty): "queueing/applications.py, which adds the applications that wait for containers"
        for duty in ("status", "cancel", "wait", "logs", "prune")
    },
    ("local", "status"): "the class LocalJobs of status.py, which the scheduler holds",
    ("local", "prune"): "torchx.jobs.pruning",
    ("kubernetes", "logs"): "log_follow.py, which reads by logs.py",
}
"""Duties that a method calls in another way than by an import of their file."""

SIMPLE = (
    ast.Call,
    ast.Attribute,
    ast.Name,
    ast.Constant,
    ast.keyword,
    ast.Load,
)
"""What a call in a method may consist of."""


def folder_of(engine: str) -> Path:
    return PACKAGES["torchx.schedulers"] / engine


def scheduler_of(engine: str) -> ast.ClassDef:
    tree = tree_of(folder_of(engine) / "scheduler.py")
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return found


def methods_of(engine: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in scheduler_of(engine).body if isinstance(node, ast.FunctionDef)}


def statements_of(method: ast.FunctionDef) -> list[ast.stmt]:
    """Returns the statements of a method without its docstring."""
    return method.body[1:] if ast.get_docstring(method) else method.body


def is_a_call(statement: ast.stmt) -> bool:
    """Returns True for one call with plain arguments, or for a plain value that is returned."""
    if not isinstance(statement, (ast.Return, ast.Expr)) or statement.value is None:
        return False
    if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Name):
        return True
    nodes = list(ast.walk(statement.value))
    calls = sum(isinstance(node, ast.Call) for node in nodes)
    return calls == 1 and all(isinstance(node, SIMPLE) for node in nodes)


def is_a_requirement(statement: ast.stmt) -> bool:
    """Returns True for a call of a function whose name begins with `require_`."""
    if not is_a_call(statement) or not isinstance(statement, ast.Expr):
        return False
    assert isinstance(statement.value, ast.Call)
    return ast.unparse(statement.value.func).rpartition(".")[2].startswith("require_")


def is_an_assignment(statement: ast.stmt) -> bool:
    """Returns True for the assignment of an attribute of the object."""
    return isinstance(statement, (ast.Assign, ast.AnnAssign)) and "self." in ast.unparse(statement)


@pytest.mark.parametrize("engine", ENGINES)
def test_each_method_of_a_scheduler_is_one_call(engine: str) -> None:
    """A check of what is there may precede the call, so that a listing without engines loads little."""
    wrong = []
    for name, method in methods_of(engine).items():
        first, *rest = statements_of(method)
        if name == "__init__":
            good = ast.unparse(first).startswith("super().__init__(") and all(map(is_an_assignment, rest))
        else:
            (*required, last) = [first, *rest]
            good = is_a_call(last) and len(required) < 2 and all(map(is_a_requirement, required))
        if not good:
            wrong.append(name)
    assert not wrong, f"move the logic of {', '.join(wrong)} to the files of schedulers/{engine}/"


@pytest.mark.parametrize(
    "source",
    [
        "if a: return f(a)",
        "return f(a) or None",
        "return [f(a)]",
        "return f(g(a))",
        "x = f(a)",
        "return f(a) if a else None",
        "return f(*a)",
        "with f(a): pass",
    ],
)
def test_logic_is_no_call(source: str) -> None:
    assert not is_a_call(ast.parse(source).body[0] if "return" not in source else inner(source))


def inner(source: str) -> ast.stmt:
    (function,) = ast.parse(f"def f():\n {source}").body
    assert isinstance(function, ast.FunctionDef)
    return function.body[0]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_has_a_file_for_each_duty(engine: str) -> None:
    """The files of an engine are those that its scheduler's methods name, or their absence has a reason."""
    files = {path.stem for path in folder_of(engine).glob("*.py")}
    expected = {"scheduler", "record", *DUTIES.values()}
    missing = {duty for duty in expected - files if (engine, duty) not in ABSENT}
    assert not missing, f"schedulers/{engine}/ has no file for {', '.join(sorted(missing))}"
    present = {duty for (each, duty), _ in ABSENT.items() if each == engine} & files
    assert not present, f"remove {', '.join(sorted(present))} from ABSENT"


def imported_by(engine: str) -> Iterator[tuple[str, str]]:
    """Yields each name that `scheduler.py` imports with its module, or the module that it is."""
    for node in ast.walk(tree_of(folder_of(engine) / "scheduler.py")):
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            assert isinstance(node, ast.ImportFrom)
            full = f"{node.module}.{alias.name}"
            yield alias.asname or alias.name, full if full in modules() else str(node.module)


@pytest.mark.parametrize("engine", ENGINES)
def test_each_method_calls_the_file_of_its_duty(engine: str) -> None:
    methods = methods_of(engine)
    wrong = []
    for name, duty in DUTIES.items():
        if name not in methods:
            continue
        used = {node.id for node in ast.walk(methods[name]) if isinstance(node, ast.Name)}
        called = {module for alias, module in imported_by(engine) if alias in used}
        if f"torchx.schedulers.{engine}.{duty}" not in called and (engine, duty) not in ELSEWHERE:
            wrong.append(f"{name}: {duty}.py")
    assert not wrong, wrong
    for method, protocol in OPTIONAL.items():
        duty = DUTIES[method]
        assert (method in methods) == (
            (folder_of(engine) / f"{duty}.py").is_file() or (engine, duty) in ELSEWHERE
        ), f"{engine} implements {protocol} with {duty}.py, or has neither"
