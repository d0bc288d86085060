"""Tests of the distribution `torchx` beside `torchx-cli`, and of the wheels that replace it."""

from __future__ import annotations

import email
import json
import os
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


def test_a_package_that_requires_torchx_takes_the_placeholder(tmp_path: Path) -> None:
    """As `pip install --find-links wheels -c constraints.txt PACKAGE` in docs/moving.md; without an index."""
    wheels = tmp_path / "wheels"
    placeholder.write(str(wheels))
    for name, version, requires in (("user", "1.0", "torchx>=0.7.0"), ("torchx_cli", __version__, "")):
        stem = f"{name}-{version}"
        need = f"Requires-Dist: {requires}\n" if requires else ""
        with zipfile.ZipFile(wheels / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(
                f"{stem}.dist-info/METADATA",
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{need}",
            )
            wheel.writestr(
                f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("torchx==0.7.0+cli\n")
    target = tmp_path / "target"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(wheels)]
    done = subprocess.run(
        [*pip, "--target", str(target), "-c", str(constraints), "user"],
        capture_output=True, text=True, env={**os.environ, "PIP_CONFIG_FILE": os.devnull},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = {path.name for path in target.iterdir() if path.suffix == ".dist-info"}
    assert {"user-1.0.dist-info", "torchx-0.7.0+cli.dist-info", "torchx_cli-0.1.0.dist-info"} <= names
