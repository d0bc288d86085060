"""Tests of the distributions: the wheel and the source distribution contain the tree, and no more."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from project.sources import PACKAGES, ROOT
from torchx.version import __version__

# built once: by the one worker that has them all
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("wheel")]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel built from it."""
    if importlib.util.find_spec("build") is None:
        pytest.skip("needs the package build: pip install 'torchx-cli[dev]'")
    # from a copy: a build writes into the tree that it builds from, and would disturb another beside it
    tree = tmp_path_factory.mktemp("source") / "tree"
    shutil.copytree(
        ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(".*", "*.egg-info", "__pycache__")
    )
    folder = tmp_path_factory.mktemp("dist")
    # uv makes the environments of the two builds in half the time
    build = [sys.executable, "-m", "build", "--installer", "uv", "--outdir", str(folder), str(tree)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def shipped() -> set[str]:
    """Returns every file of the packages, by its name in the wheel."""
    found = set()
    for package, folder in PACKAGES.items():
        for path in folder.rglob("*"):
            inside = path.relative_to(folder)
            linked = package == "torchx" and inside.parts[0] in ("components", "schedulers")
            if path.is_file() and "__pycache__" not in path.parts and not linked:
                found.add("/".join([*package.split("."), *inside.parts]))
    return found


@pytest.mark.timeout(300)
def test_the_wheel_holds_the_tree_and_no_more(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    assert wheel.name == f"torchx_cli-{__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    about = {name for name in names if ".dist-info/" in name}
    assert names - about == shipped()
    assert any(name.endswith("LICENSE") for name in about)


@pytest.mark.timeout(300)
def test_the_wheel_installs_no_top_level_components_or_schedulers(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"torchx", "torchx_cli"}


@pytest.mark.timeout(300)
def test_wheel_has_its_entry_point_and_requirements(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    about = f"torchx_cli-{__version__}.dist-info"
    assert "torchx = torchx_cli.__main__:program" in archive.read(f"{about}/entry_points.txt").decode()
    metadata = archive.read(f"{about}/METADATA").decode()
    assert "Name: torchx-cli" in metadata
    assert "Requires-Python: >=3.10" in metadata
    assert "BSD-3-Clause" in metadata


@pytest.mark.timeout(300)
def test_the_source_distribution_holds_the_linked_folders(dist: Path) -> None:
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for wanted in ("torchx/components/dist.py", "torchx/schedulers/api.py", "README.md", "LICENSE"):
        assert wanted in names


def test_make_wheel_installs_only_the_builder() -> None:
    args = ["make", "--dry-run", "--no-print-directory", "wheel"]
    done = subprocess.run(args, cwd=ROOT, capture_output=True, check=True, text=True)
    assert [line for line in done.stdout.splitlines() if ".ci/venv" in line] == [".ci/venv build"]
    assert "pytest" not in done.stdout
