"""Features and engines are folders that can be deleted: the rest imports none of them, and works without.

`FEATURES` has those that can be deleted. `NOT_YET` has the others, each with the number of modules that still
import it; a number may only fall, and a feature without such modules moves to `FEATURES`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from program import COMMAND, environment

from project.sources import ROOT, imports_of, modules

pytestmark = pytest.mark.xdist_group("sources")  # one process: each file is parsed once

FEATURES: dict[str, tuple[str, ...]] = {
    "contexts": ("torchx_cli/contexts",),
    "diff": ("torchx_cli/diff",),
    "distributed": ("torchx/distributed",),
    "features of other packages": ("torchx/features/__init__.py", "torchx_cli/features"),
    "fold": ("torchx_cli/fold",),
    "mcp": ("torchx_cli/mcp",),
    "nodes": ("torchx/features/bad_nodes", "torchx_cli/nodes"),
    "notebook": ("torchx/notebook.py",),
    "report": ("torchx_cli/report",),
    "rerun": ("torchx_cli/rerun",),
    "schema": ("torchx_cli/schemas",),
    "testing": ("torchx/testing",),
    "top": ("torchx_cli/top",),
    "tsm": ("torchx/tsm",),
    "gridengine": ("schedulers/gridengine",),
    "kubernetes": ("schedulers/kubernetes", "schedulers/kubernetes_scheduler.py"),
    "slurm": ("schedulers/slurm", "schedulers/slurm_scheduler.py"),
}
"""Features and engines -> the folders and files that are deleted together."""

NOT_YET: dict[str, tuple[int, tuple[str, ...]]] = {
    "docker": (6, ("schedulers/docker", "schedulers/docker_scheduler.py")),
    "limits": (20, ("torchx/scheduling/limits.py", "torchx/supervisor/limits.py")),
    "measurement": (2, ("torchx/supervisor/measurement",)),
    "notifications": (
        11,
        ("torchx/notifications", "torchx/runner/notifications.py", "torchx/runner/watcher.py"),
    ),
    "once": (3, ("torchx/runner/once.py",)),
    "preflight": (
        10,
        (
            "torchx/scheduling/preflight.py",
            "torchx/scheduling/preflight_gpus.py",
            "torchx/scheduling/preflight_program.py",
        ),
    ),
    "provenance": (
        9,
        (
            "torchx/provenance",
            "torchx/runner/provenance.py",
            "torchx_cli/recording.py",
            "torchx_cli/terminal/source_text.py",
        ),
    ),
    "queue": (
        13,
        (
            "schedulers/shared/queue.py",
            "torchx/queue",
            "torchx/runner/queue.py",
            "torchx_cli/commands/queue.py",
        ),
    ),
    "services": (27, ("torchx/services", "torchx/supervisor/services")),
    "stalls": (17, ("torchx/scheduling/stalls.py", "torchx/supervisor/stalls")),
    "stragglers": (
        11,
        ("torchx/stragglers", "torchx/supervisor/stragglers", "schedulers/shared/batch/stragglers"),
    ),
    "sweeps": (18, ("torchx/runner/sweeps.py", "torchx/sweeps", "torchx_cli/sweep")),
    "tracker": (5, ("torchx/tracker", "torchx/runtime", "torchx_cli/commands/tracker.py")),
    "why": (2, ("torchx/runner/why", "torchx_cli/commands/why.py")),
}
"""Features that cannot be deleted yet -> the modules that import them, and their folders and files."""

PACKAGES = ("torchx", "torchx_cli", "components", "schedulers")


def importers(paths: tuple[str, ...]) -> set[str]:
    """Returns the modules outside of some folders and files that import modules in them."""
    inside = {name for name, path in modules().items() if is_in(path, paths)}
    assert inside
    return {
        name
        for name in modules().keys() - inside
        if any(found.target in inside for found in imports_of(name))
    }


def is_in(path: Path, places: tuple[str, ...]) -> bool:
    relative = path.relative_to(ROOT)
    return any(relative.is_relative_to(place) for place in places)


@pytest.mark.parametrize("name", FEATURES)
def test_nothing_imports_a_feature(name: str) -> None:
    """Imports in functions and for types count too."""
    assert not importers(FEATURES[name]), "load it by torchx_cli.door"


@pytest.mark.parametrize("name", NOT_YET)
def test_the_other_features_are_imported_by_fewer_modules(name: str) -> None:
    most, paths = NOT_YET[name]
    found = importers(paths)
    assert 0 < len(found) <= most, sorted(found)


def without(folder: Path, names: list[str]) -> dict[str, str]:
    """Copies the source without some features, and returns the environment in which commands run it."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for place in [place for name in names for place in FEATURES[name]]:
        if (folder / place).is_dir():
            shutil.rmtree(folder / place)
        else:
            (folder / place).unlink()
    return environment({"PYTHONPATH": str(folder)})


def check(folder: Path, env: dict[str, str], *args: str) -> None:
    done = subprocess.run([*COMMAND, *args], env=env, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def check_commands(folder: Path, env: dict[str, str]) -> None:
    """Checks that commands run in the copy."""
    check(folder, env, "--help")
    check(folder, env, "run", "-s", "local_cwd", "utils.echo", "--msg", "hi")
    check(folder, env, "list")
    check(folder, env, "status", "@last")
    check(folder, env, "log", "@last")


def test_the_rest_works_without_all_features(tmp_path: Path) -> None:
    env = without(tmp_path, list(FEATURES))
    check_commands(tmp_path, env)
    check(tmp_path, env, "why", "@last")  # has no differences to show


@pytest.mark.long
@pytest.mark.parametrize("name", FEATURES)
def test_the_rest_works_without_a_feature(name: str, tmp_path: Path) -> None:
    env = without(tmp_path, [name])
    check_commands(tmp_path, env)
    left = [module for module, path in modules().items() if not is_in(path, FEATURES[name])]
    names = [module for module in left if not module.endswith("__main__")]
    code = f"import importlib\nfor name in {names!r}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_the_types_of_the_rest_are_right(tmp_path: Path) -> None:
    env = without(tmp_path, list(FEATURES))
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
