"""No code reads a sentence of ours: programs compare causes, and a sentence is made last."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from project.sources import ROOT, modules

SENTENCES = {"msg", "message", "hint", "why", "reason", "evidence", "refusal", "note", "description"}
"""The names of variables and attributes with a sentence."""

PARTS = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split"}
PATTERNS = {"search", "match", "fullmatch", "findall"}
SAME = {"lower", "upper", "strip", "rstrip"}
"""Methods whose result is still a sentence."""

OF_OTHERS = {
    "schedulers/docker/networks.py": 1,
    "schedulers/docker/images/build.py": 5,
    "schedulers/docker/images/pull.py": 2,
    "schedulers/docker/images/push.py": 1,
    "schedulers/gridengine/submit.py": 2,
    "schedulers/kubernetes/api/errors.py": 10,
    "schedulers/kubernetes/services.py": 1,
    "schedulers/kubernetes/state/attempts.py": 4,
    "schedulers/kubernetes/state/jobs.py": 4,
    "schedulers/kubernetes/status.py": 1,
    "schedulers/slurm/outcome.py": 2,
    "schedulers/slurm/reasons.py": 5,
    "torchx/end_causes.py": 1,
    "torchx/machine/stack_taker.py": 1,
    "torchx_cli/main.py": 1,
    "torchx_cli/terminal/error_output.py": 1,
}
"""Files that read the messages and words of engines, libraries and plugins, with the places in each.

``torchx/end_causes.py`` also reads those in records of earlier versions.
"""

LEFT = {
    "schedulers/docker/supervisor.py": 1,
    "schedulers/shared/queue.py": 1,
    "torchx/discovery/find/finder.py": 1,
    "torchx/scheduling/causes.py": 1,
    "torchx/scheduling/stacks_text.py": 1,
    "torchx/suggestions.py": 1,
    "torchx_cli/run_request.py": 1,
    "torchx_cli/terminal/ending.py": 2,
    "torchx_cli/terminal/status_text.py": 1,
}
"""Files that still read sentences of ours, with the places in each. They may only become fewer."""


def name_of(node: ast.expr) -> str:
    """Returns the name of the variable, the attribute or the key that an expression reads."""
    if isinstance(node, ast.BoolOp):
        return name_of(node.values[0])
    if isinstance(node, ast.Subscript):
        return node.slice.value if isinstance(node.slice, ast.Constant) else ""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in SAME:
            return name_of(node.func.value)
        if isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
            return name_of(node.args[0])
        return ""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_sentence(node: ast.expr, errors: set[str]) -> bool:
    """Returns True for a sentence: by its name, or the text of an exception."""
    text_of = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str"
    name = str(name_of(node))
    return name.strip("_") in SENTENCES or (text_of and name in errors)


def is_text(node: ast.expr) -> bool:
    """Returns True for a constant phrase: a literal, a name in capitals, or a tuple with one of them."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(map(is_text, node.elts))
    if isinstance(node, ast.Constant):  # a single word is one of an engine
        return isinstance(node.value, str) and " " in node.value
    return name_of(node).isupper()


def is_part_of_layout(node: ast.Call) -> bool:
    """Returns True for a call that splits a text into its lines."""
    first = node.args[0] if node.args else None
    return first is None or (isinstance(first, ast.Constant) and first.value == "\n")


def recognizes(node: ast.AST, errors: set[str]) -> bool:
    """Returns True if a node compares a sentence, or searches in it."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in PARTS:
            return not is_part_of_layout(node) and is_sentence(node.func.value, errors)
        return node.func.attr in PATTERNS and any(is_sentence(each, errors) for each in node.args)
    if not isinstance(node, ast.Compare) or isinstance(node.ops[-1], (ast.Is, ast.IsNot)):
        return False
    right = node.comparators[-1]
    if isinstance(node.ops[-1], (ast.In, ast.NotIn)) and is_sentence(right, errors):
        return True
    return is_sentence(node.left, errors) and is_text(right)


def reads(tree: ast.AST) -> list[int]:
    """Returns the lines in which a program recognizes a sentence."""
    handlers = (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler))
    errors = {node.name for node in handlers if node.name}
    return [node.lineno for node in ast.walk(tree) if recognizes(node, errors)]  # type: ignore[attr-defined]


def places() -> dict[str, list[int]]:
    """Returns the lines of each file; the tests in torchx.testing check sentences on purpose."""
    found = {path.relative_to(ROOT).as_posix(): reads(tree_of(path)) for path in modules().values()}
    return {name: lines for name, lines in found.items() if lines and not name.startswith("torchx/testing/")}


def tree_of(path: Path) -> ast.AST:
    return ast.parse(path.read_bytes())


@pytest.mark.parametrize(
    "code",
    [
        "error.message.startswith('no ')",
        "'not retried' not in attempt.msg",
        "first.msg in attempt.msg",
        "attempt.msg in ('', ENDED)",
        "stop.why == NO_LONGER_NEEDED",
        "(error.hint or '').split('  ')",
        "PATTERN.search(reason)",
        "re.match('x', status['msg'])",
        "try: f()\nexcept OSError as error: str(error).endswith('x')",
    ],
)
def test_a_read_sentence_is_found(code: str) -> None:
    assert reads(ast.parse(code))


@pytest.mark.parametrize(
    "code", ["attempt.msg == ''", "attempt.cause is GONE", "name.startswith('x')", "msg or x"]
)
def test_other_code_is_not_found(code: str) -> None:
    assert not reads(ast.parse(code))


def test_no_code_reads_a_sentence_of_ours() -> None:
    found = Counter({path: len(lines) for path, lines in places().items()})
    assert found == Counter(OF_OTHERS) + Counter(LEFT), "see torchx/end_causes.py: compare a cause"
