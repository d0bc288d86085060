"""Tests of the distribution `torchx` beside `torchx-cli`, and of the wheels that replace it."""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from project.sources import ROOT

from torchx.version import __version__
from torchx_cli import placeholder
from torchx_cli.main import main


def beside(tmp_path: Path, name: str) -> Path:
    """Returns a folder of packages in which a distribution is installed."""
    packages = tmp_path / "site-packages"
    (packages / f"{name}.dist-info").mkdir(parents=True)
    return packages


@pytest.mark.parametrize(
    ("name", "is_foreign"),
    [
        ("torchx-0.7.0", True),
        ("torchx_nightly-2026.10.26", True),
        ("torchx-0.7.0+cli", False),
        ("torchx_cli-0.1.0", False),
        ("torchxai-1.0", False),
    ],
)
def test_other_distributions_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_foreign: bool
) -> None:
    monkeypatch.setattr(sys, "path", [str(beside(tmp_path, name))])
    assert placeholder.foreign_distributions() == ([name] if is_foreign else [])


def torchx(packages: Path, *words: str, first: str = "") -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*([first] if first else []), str(ROOT), str(packages)]),
    }
    command = [sys.executable, "-m", "torchx_cli", *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=packages.parent)


def test_each_command_warns_in_one_line(tmp_path: Path) -> None:
    packages = beside(tmp_path, "torchx-0.7.0")
    done = torchx(packages, "--version")
    assert done.returncode == 0
    assert done.stderr == (
        "warning: torchx-0.7.0 and torchx-cli overwrite each other's files; to repair it: torchx doctor\n"
    )
    assert torchx(packages, "__complete", "torchx", "ru").stderr == ""


def test_a_package_whose_files_were_overwritten_is_one_error(tmp_path: Path) -> None:
    packages = beside(tmp_path, "torchx-0.7.0")
    (packages / "torchx").mkdir()
    (packages / "torchx" / "__init__.py").write_text("IMAGE = 1\n")
    paths = [str(packages), str(ROOT), *sys.path]  # without -S, the finder of an editable install would help
    code = f"import sys; sys.path[:0] = {paths!r}; from torchx_cli.__main__ import program; program()"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "pip install --force-reinstall --no-deps torchx-cli" in done.stderr


def test_the_doctor_names_the_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(beside(tmp_path, "torchx-0.7.0"))])
    assert main(["doctor", "-o", "json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["installation"]
    assert (found["verdict"], found["detail"]) == (
        "wrong",
        "torchx-0.7.0 and torchx-cli have files of the same names",
    )
    assert "pip uninstall -y torchx torchx-nightly" in found["hint"]


def test_a_placeholder_is_a_wheel_without_files(tmp_path: Path) -> None:
    paths = placeholder.write(str(tmp_path / "wheels"))
    assert [Path(path).name for path in paths] == [
        "torchx-0.7.0+cli-py3-none-any.whl",
        "torchx_nightly-2026.10.26+cli-py3-none-any.whl",
    ]
    with zipfile.ZipFile(paths[0]) as wheel:
        metadata = email.message_from_bytes(wheel.read("torchx-0.7.0+cli.dist-info/METADATA"))
        assert (metadata["Name"], metadata["Requires-Dist"]) == ("torchx", "torchx-cli")
        assert all(name.startswith("torchx-0.7.0+cli.dist-info/") for name in wheel.namelist())


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """The placeholders, this distribution and a package that requires TorchX, all without files."""
    folder = tmp_path / "wheels"
    placeholder.write(str(folder))
    for name, version, requires in (("user", "1.0", "torchx>=0.7.0"), ("torchx_cli", __version__, "")):
        stem = f"{name}-{version}"
        need = f"Requires-Dist: {requires}\n" if requires else ""
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(
                f"{stem}.dist-info/METADATA",
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{need}",
            )
            wheel.writestr(
                f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return folder


@pytest.mark.parametrize("tool", ["pip", "uv pip"])
def test_a_package_that_requires_torchx_takes_the_placeholder(tool: str, wheels: Path) -> None:
    """As `pip install --find-links wheels -c constraints.txt PACKAGE` in docs/moving.md; without an index."""
    (wheels.parent / "constraints.txt").write_text("torchx==0.7.0+cli\n")
    install(tool, wheels, "-c", "constraints.txt")
    assert installed(wheels) == {"user-1.0", "torchx-0.7.0+cli", f"torchx_cli-{__version__}"}


def test_an_override_of_uv_removes_the_requirement(wheels: Path) -> None:
    (wheels.parent / "overrides.txt").write_text("torchx; python_version < '3'\n")
    install("uv pip", wheels, "--override", "overrides.txt")
    assert installed(wheels) == {"user-1.0", f"torchx_cli-{__version__}"}


def test_a_project_of_uv_overrides_the_requirement(wheels: Path) -> None:
    """With the lines of `pyproject.toml` that docs/moving.md prints."""
    page = (ROOT / "docs" / "moving.md").read_text(encoding="utf-8")
    printed = page.split("```toml\n", 1)[1].split("```", 1)[0]
    project = '[project]\nname = "p"\nversion = "1"\ndependencies = ["torchx-cli", "user"]\n'
    project += 'requires-python = ">=3.10"\n'
    (wheels.parent / "pyproject.toml").write_text(
        f"{project}{printed}no-index = true\nfind-links = ['wheels']\n"
    )
    run(["uv", "lock"], wheels.parent)
    locked = re.findall(r'^name = "(.+)"$', (wheels.parent / "uv.lock").read_text(), re.MULTILINE)
    assert sorted(locked) == ["p", "torchx-cli", "user"]


def install(tool: str, wheels: Path, *flags: str) -> None:
    found = ["--no-index", "--find-links", str(wheels), "--target", "target"]
    run([*tool.split(), "install", "--quiet", *found, *flags, "torchx-cli", "user"], wheels.parent)


def run(command: list[str], folder: Path) -> None:
    env = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "UV_CACHE_DIR": str(folder / "cache")}
    env["UV_PYTHON"] = sys.executable
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, env=env, cwd=folder
    )
    assert done.returncode == 0, done.stderr


def installed(wheels: Path) -> set[str]:
    found = (wheels.parent / "target").glob("*.dist-info")
    return {path.name.removesuffix(".dist-info") for path in found}
