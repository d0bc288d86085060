"""Changes the code in small ways, and counts the changes that no test detects; `make mutants` runs it.

cosmic-ray makes the changes and runs the tests, in a copy of the tree. The share of survivors is that of a
random sample, the same for the same seed. CI does not run it: a change costs a run of the tests of its group,
two seconds for the rules of gangs, a minute for what real processes are needed for.
"""

from __future__ import annotations

import argparse
import ast
import functools
import itertools
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.tools.contained import TIMED_OUT

ROOT = Path(__file__).resolve().parents[2]
TOO_LONG = 6.0
"""A change that makes the tests take this many times longer, and at least a minute, is detected."""


class Group(NamedTuple):
    """Some modules, and the tests that have to detect changes in them: the quick ones first.

    Attributes:
        modules: the files to change.
        tests: files of tests, and single tests.
        without: tests to leave out, since they take long and detect no more than others.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()


def _each(pattern: str, names: str) -> tuple[str, ...]:
    return tuple(pattern.format(name) for name in names.split())


JOBS = "tests/jobs/test_{}.py"
LOCAL = "tests/schedulers/local/test_local_{}.py"
GROUPS = {
    "rules": Group(
        ("torchx/supervisor/policy.py",),
        ("tests/supervisor/test_policy.py", "tests/supervisor/test_policy_cases.py"),
    ),
    "quoting": Group(
        ("schedulers/shared/batch/quoting.py",),
        (
            "torchx/schedulers/shared/batch/quoting.py",
            *_each("tests/schedulers/slurm/test_slurm_{}.py", "words script"),
        ),
    ),
    "masking": Group(
        (*_each("torchx/masking/{}.py", "data names text"), "torchx_cli/terminal/masking.py"),
        ("torchx/masking", "tests/cli/test_masking_text.py", "tests/cli/test_masking.py"),
        without=("tests/cli/test_masking.py::test_no_command_shows_a_secret",),
    ),
    "log": Group(
        (*_each("torchx/jobs/{}.py", "log_reader log_index log_lines"), "torchx/supervisor/output.py"),
        (
            "tests/supervisor/test_output.py",
            *_each(JOBS, "log_lines log log_damage log_unindexed log_pieces"),
        ),
        without=_each(
            JOBS.format("log_pieces") + "::test_{}", "whole_characters a_line_of_30_megabytes_is_read_soon"
        ),
    ),
    "records": Group(
        (*_each("torchx/jobs/{}.py", "catalog ended events paths record view"), "torchx/json_shape.py"),
        (
            *_each(JOBS, "record_values job_views catalog trust malformed reader_properties"),
            LOCAL.format("records"),
        ),
        without=_each(JOBS.format("reader_properties") + "::test_{}", "a_log_index_that_is_anything"),
    ),
    "jobs": Group(
        (*_each("torchx/jobs/{}.py", "end pruning recovery removal reconcile"), "torchx/machine/locks.py"),
        (
            *_each(JOBS, "locks recovery prune_jobs trust malformed"),
            *_each(LOCAL, "records traces survival kills"),
        ),
    ),
    "supervisor": Group(
        _each("torchx/supervisor/{}.py", "ending guard launch loop replicas"),
        (
            *_each("tests/supervisor/test_{}.py", "replicas loop sampling"),
            *_each(LOCAL, "life survival kills ends traces output"),
        ),
        (
            LOCAL.format("ends") + "::test_cancel_at_any_moment_of_the_start",
            LOCAL.format("life") + "::test_a_thousand_replicas",
            LOCAL.format("life") + "::test_jobs_started_together_do_not_meet",
            LOCAL.format("output") + "::test_line_of_100_mb_needs_no_memory_of_supervisor",
        ),
    ),
}

SAME = (
    "ReplaceComparisonOperator_Is_Eq",
    "ReplaceComparisonOperator_IsNot_NotEq",
    "ReplaceComparisonOperator_Eq_Is",
    "ReplaceComparisonOperator_NotEq_IsNot",
)
"""Operators whose changes mean the same for None, enums, small numbers and names."""

SAME_FOR_FLAGS = ("ReplaceBinaryOperator_BitOr_Add", "ReplaceBinaryOperator_BitOr_BitXor")
"""Operators whose changes mean the same for different bits, such as `os.O_WRONLY | os.O_CREAT`."""


def main(argv: list[str]) -> int:
    """Runs a group; prints the survivors and their share."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--sample", type=int, default=100, metavar="N", help="how many changes (default 100)")
    parser.add_argument("--seed", type=int, default=1, help="chooses the sample (default 1)")
    args = parser.parse_args(argv)
    os.nice(15)
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        tree = Path(scratch) / "tree"
        copy_tree(tree)
        return measure(tree, GROUPS[args.group], args.sample, args.seed)


def copy_tree(tree: Path) -> None:
    """Copies the files of the checkout that git knows or does not ignore."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in map(os.fsdecode, filter(None, names)):
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(ROOT / name):
            shutil.copy2(ROOT / name, target, follow_symlinks=False)


def measure(tree: Path, group: Group, sample: int, seed: int) -> int:
    """Tries a sample of the changes one after the other, and prints the results."""
    from cosmic_ray.work_db import WorkDB, use_db

    session, config = tree.parent / "session.sqlite", tree.parent / "config.toml"
    config.write_text(configuration(group, 3600.0))
    # most of a short run is the start of pytest: no plugin to spare, and files compiled already, checked
    # by their content (some input files of tests cannot be compiled, and need not be)
    folders = [tree / "torchx", tree / "torchx_cli", tree / "tests"]
    compiling = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", *folders]
    subprocess.run(compiling, check=False, stdout=subprocess.DEVNULL)
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(tree.parent)}
    cosmic_ray = [str(Path(sys.executable).with_name("cosmic-ray"))]
    begun = time.monotonic()
    subprocess.run([*cosmic_ray, "baseline", str(config)], cwd=tree, env=env, check=True)
    # other work on the machine may slow the tests: that is no detection
    config.write_text(configuration(group, max(60.0, TOO_LONG * (time.monotonic() - begun))))
    subprocess.run([*cosmic_ray, "init", str(config), str(session)], cwd=tree, env=env, check=True)
    with use_db(str(session), WorkDB.Mode.open) as db:
        wanted = [item for item in db.work_items if worthwhile(item, tree)]
        shuffled = random.Random(seed).sample(wanted, len(wanted))
        chosen = {
            item.job_id for item in itertools.islice((i for i in shuffled if compiles(i, tree)), sample)
        }
        skip(db, chosen)
    subprocess.run([*cosmic_ray, "exec", str(config), str(session)], cwd=tree, env=env, check=True)
    with use_db(str(session), WorkDB.Mode.open) as db:
        results = [result for job, result in db.results if job in chosen]
    report(results, len(wanted))
    return 0


def configuration(group: Group, limit: float) -> str:
    """Returns the configuration of cosmic-ray for a group whose tests may take some seconds."""
    modules = ", ".join(f'"{module}"' for module in group.modules)
    options = ["-q", "-x", "--assert=plain", "-p", "no:cacheprovider", "-p", "pytest_timeout"]
    options += [f"--deselect={test}" for test in group.without]
    contained = [sys.executable, "-I", "-S", str(ROOT / "tests/tools/contained.py"), str(limit)]
    command = shlex.join([*contained, sys.executable, "-m", "pytest", *options, *group.tests])
    return (
        f"[cosmic-ray]\nmodule-path = [{modules}]\ntimeout = {2 * limit}\nexcluded-modules = []\n"
        f'test-command = "{command}"\n[cosmic-ray.distributor]\nname = "local"\n'
    )


def compiles(item: Any, tree: Path) -> bool:
    """Returns True if the changed module has valid syntax, unlike `{**a, -b}` in place of `{**a, **b}`."""
    from cosmic_ray.mutating import use_mutation
    from cosmic_ray.plugins import get_operator

    (mutation,) = item.mutations
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    with use_mutation(tree / mutation.module_path, operator, mutation.occurrence) as (_, changed):
        try:
            ast.parse(changed or "")
        except SyntaxError:
            return False
    return changed is not None


def worthwhile(item: Any, tree: Path) -> bool:
    """Returns True if a test should detect the change: annotations, for example, are never evaluated."""
    (mutation,) = item.mutations
    operator = mutation.operator_name.rpartition("/")[2]
    path = mutation.module_path if mutation.module_path.is_absolute() else tree / mutation.module_path
    at = tuple(mutation.start_pos)
    places = without_effect(path) + (flags(path) if operator in SAME_FOR_FLAGS else [])
    return operator not in SAME and not any(start <= at < end for start, end in places)


Place = tuple[tuple[int, int], tuple[int, int]]


@functools.cache
def without_effect(path: Path) -> list[Place]:
    """Returns the places of a module whose changes no test can detect, or should not.

    They are annotations and code for type checkers; the arguments of `dataclass`, the `strict` of `zip` and
    the `*` before parameters, which only guard against mistakes in the code itself; and the values of limits
    and delays.
    """
    module = ast.parse(path.read_text(encoding="utf-8"))
    return [*map(_place, _without_effect(module)), *_separators(module)]


@functools.cache
def flags(path: Path) -> list[Place]:
    """Returns the places of a module that join constants such as `os.O_CREAT` by `|`."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    return [_place(node) for node in ast.walk(module) if isinstance(node, ast.BinOp) and _joins_flags(node)]


def _joins_flags(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _joins_flags(node.left) and _joins_flags(node.right)
    return isinstance(node, ast.Attribute) and node.attr.isupper()


def _place(node: ast.expr | ast.stmt | ast.arg) -> Place:
    return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)


def _separators(module: ast.Module) -> Iterator[Place]:
    """Yields the places of the `*` before keyword-only parameters, which is no operator."""
    for node in ast.walk(module):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.args.kwonlyargs:
            before = [_place(each)[1] for each in (*node.args.args, *node.args.defaults)]
            yield max(before, default=_place(node)[0]), _place(node.args.kwonlyargs[0])[0]


def _without_effect(module: ast.Module) -> Iterator[ast.expr | ast.stmt]:
    yield from (node.value for node in module.body if isinstance(node, ast.Assign) and _is_limit(node))
    for node in ast.walk(module):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
            yield node.returns
        elif isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield node
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("zip", "dataclass"):
            yield from (keyword.value for keyword in node.keywords)


def _is_limit(node: ast.Assign) -> bool:
    """Returns True for a constant such as `BLOCK = 64 * 1024` or `POLL = 0.1`, not for a small number."""
    values = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
    named = all(isinstance(target, ast.Name) and target.id.isupper() for target in node.targets)
    plain = not any(isinstance(part, (ast.Call, ast.Tuple, ast.List)) for part in ast.walk(node.value))
    numbers = all(type(value) in (int, float) for value in values)
    return named and plain and numbers and any(not isinstance(value, int) or value > 9 for value in values)


def skip(db: Any, chosen: set[str]) -> None:
    """Marks all changes but the chosen ones as done."""
    from cosmic_ray.work_item import WorkerOutcome, WorkResult

    for item in db.work_items:
        if item.job_id not in chosen:
            db.set_result(item.job_id, WorkResult(worker_outcome=WorkerOutcome.SKIPPED))


def report(results: list[Any], possible: int) -> None:
    """Prints each survivor and their share."""
    from cosmic_ray.work_item import TestOutcome

    outcomes = Counter(result.test_outcome for result in results)
    for result in results:
        if result.test_outcome is TestOutcome.SURVIVED:
            changed = [line for line in (result.diff or "").splitlines() if line[:1] in "+-@"]
            sys.stdout.write("\n".join(changed) + "\n\n")
    survived = outcomes[TestOutcome.SURVIVED]
    share = survived / max(1, len(results))
    late = sum(TIMED_OUT in (result.output or "") for result in results)
    tried = f"{len(results)} of {possible} changes tried, {late} detected by the time limit"
    sys.stdout.write(f"{tried}, {survived} survived: {share:.1%}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
