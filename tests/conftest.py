"""What every test gets: a state home of its own, no trace of the caller's environment, no skip in CI."""

from __future__ import annotations

import functools
import gc
import importlib.util
import itertools
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import outputs
import pytest
from long_tests import LongTests
from no_skips import NoSkips

import torchx_cli.main

if TYPE_CHECKING:
    from hooks import Hooks

# a loaded machine makes any example slow: the limit of a test is that of pytest
hypothesis.settings.register_profile(
    "torchx",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.load_profile("torchx")

# before any test imports it: JSON that a command prints in any test is checked against its schema
torchx_cli.main.main = outputs.checked(torchx_cli.main.main)

COLOUR = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE")
"""Variables of the terminal."""

# a third of the time of the tests would be spent on compiling the same modules in each command they start
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# under nohup, or in the background of a script, this process ignores these signals, and so would each program
# that it starts: tests that close a terminal or press Ctrl-C would wait forever
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(scope="session")
def _folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """New folders; pytest's own would each search all folders before them for a free number."""
    folder = tmp_path_factory.mktemp("tests")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture
def tmp_path(_folders: Iterator[Path], request: pytest.FixtureRequest) -> Path:
    """A folder of the test, named after it."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = next(_folders)
    folder = folder.with_name(f"{name}-{folder.name}")
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    """A server that receives notifications."""
    from hooks import hooks_at

    with hooks_at() as hooks:
        yield hooks


@pytest.fixture(autouse=True)
def _own_state_home(
    _folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    home = next(_folders)
    home.mkdir(mode=0o700)
    for name in ("TORCHXCONFIG", "TORCHX_JOB_ID", "TORCHX_CONTEXT_NAME", "TORCHX_PARENT_RUN_ID", *COLOUR):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCHX_HOME", str(home / ".torchx"))
    monkeypatch.setenv("TORCHX_SETUP_HOME", str(home / "setup"))  # not a folder that later tests would use
    monkeypatch.setenv("TORCHX_PROVENANCE", "0")  # a process after each submission: its own tests enable it
    if not request.node.get_closest_marker("kubernetes"):
        # programs that log in to a cluster look in the home; all other tests see neither
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.delenv("KUBECONFIG", raising=False)
    if not request.node.get_closest_marker("docker"):
        # an engine belongs to the whole machine: what prunes all jobs must not see those of others
        monkeypatch.setenv("DOCKER_HOST", f"unix://{home}/no-engine-for-this-test.sock")
    if not request.node.get_closest_marker("slurm"):
        monkeypatch.setenv("SLURM_CONF", f"{home}/no-slurm-for-this-test.conf")
    if not request.node.get_closest_marker("gridengine"):
        monkeypatch.setenv("SGE_ROOT", f"{home}/no-gridengine-for-this-test")


@pytest.fixture
def resources() -> Path:
    """The folder of input files that tests read."""
    return Path(__file__).parent / "resources"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what runs on a cluster unless it is asked for.

    Those of a real Kubernetes run when they are asked for (-m kubernetes) and KUBECONFIG leads to one: a set
    KUBECONFIG alone may be anybody's, and CI has none.
    """
    for item in items:
        for cluster in ("slurm", "gridengine"):
            if item.get_closest_marker(cluster):
                item.add_marker(pytest.mark.xdist_group(cluster))
    if not os.environ.get("KUBECONFIG") or "kubernetes" not in config.option.markexpr:
        away = [item for item in items if item.get_closest_marker("kubernetes")]
        config.hook.pytest_deselected(items=away)
        items[:] = [item for item in items if item not in away]
    for cluster in ("slurm", "gridengine"):  # of the tests' own: make test-slurm, make test-gridengine
        if cluster not in config.option.markexpr:
            away = [item for item in items if item.get_closest_marker(cluster)]
            config.hook.pytest_deselected(items=away)
            items[:] = [item for item in items if item not in away]
    _spread(items, "docker")


def pytest_collection_finish() -> None:
    """Takes all modules and tests out of garbage collections, which would search them hundreds of times."""
    gc.freeze()
    gc.set_threshold(20_000)


def _spread(items: list[pytest.Item], marker: str) -> None:
    """Spreads tests evenly over all: side by side they wait for their engine, and leave the cores idle."""
    marked = [item for item in items if item.get_closest_marker(marker)]
    others = [item for item in items if not item.get_closest_marker(marker)]
    places = [((n + 0.5) / len(part), item) for part in (marked, others) for n, item in enumerate(part)]
    items[:] = [item for _, item in sorted(places, key=lambda place: place[0])]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what needs PyTorch or a Docker engine where there is none, and says how to get it."""
    if item.get_closest_marker("torch"):
        missing = [name for name in ("torch", "sklearn", "numpy") if importlib.util.find_spec(name) is None]
        if missing:
            pytest.skip(f"no {', '.join(missing)}: .venv/bin/pip install torch scikit-learn numpy")
    if item.get_closest_marker("docker"):
        missing_part = _engine_lacks()
        if missing_part:
            pytest.skip(missing_part)
    for cluster, module in (("slurm", "slurms"), ("gridengine", "gridengines")):
        if item.get_closest_marker(cluster):
            missing_part = _cluster_lacks(module)
            if missing_part:
                pytest.skip(missing_part)


@functools.cache
def _cluster_lacks(module: str) -> str:
    return str(importlib.import_module(module).what_is_missing())


@functools.cache
def _engine_lacks() -> str:
    from engine import what_is_missing

    return what_is_missing()


def pytest_configure(config: pytest.Config) -> None:
    """Makes skips failures in CI, and counts the long tests that are not selected."""
    config.pluginmanager.register(NoSkips(), "no-skips")
    config.pluginmanager.register(LongTests(), "long-tests")
