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


def torchx(packages: Path, *words: str, last: bool = False) -> subprocess.CompletedProcess[str]:
    folders = [str(ROOT), str(packages)] if last else [str(packages), str(ROOT)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
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


def test_a_distribution_behind_this_one_does_no_harm(tmp_path: Path) -> None:
    """As in the check of docs/moving.md, with `PYTHONPATH`."""
    done = torchx(beside(tmp_path, "torchx-0.7.0"), "--version", last=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_package_whose_files_were_overwritten_is_one_error(tmp_path: Path) -> None:
    packages = beside(tmp_path, "torchx-0.7.0")
    (packages / "torchx").mkdir()
    (packages / "torchx" / "__init__.py").write_text("IMAGE = 1\n")
    paths = [str(packages), str(ROOT), *sys.path]  # without -S, the finder of an editable install would help
    code = f"import sys; sys.path[:0] = {paths!r}; from torchx_cli.__main__ import program; program()"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "pip install --force-reinstall --no-deps torchx_cli-*.whl" in done.stderr


def test_the_doctor_names_the_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(beside(tmp_path, "torchx-0.7.0"))
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
        assert metadata["Name"] == "torchx"
        assert {"torchx-cli", "importlib-metadata", "urllib3"} <= set(metadata.get_all("Requires-Dist", []))
        assert all(name.startswith("torchx-0.7.0+cli.dist-info/") for name in wheel.namelist())


def empty_wheel(folder: Path, name: str, version: str, *requires: str, **files: str) -> None:
    """Writes a wheel; the name of a file is that of its package."""
    stem = f"{name.replace('-', '_')}-{version}"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    texts = {f"{package}/__init__.py": text for package, text in files.items()}
    texts[f"{stem}.dist-info/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    texts[f"{stem}.dist-info/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = f"{stem}.dist-info/RECORD"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for path, text in {**texts, record: "".join(f"{path},,\n" for path in (*texts, record))}.items():
            wheel.writestr(path, text)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """The placeholders, the packages that they bring, this distribution and a user of TorchX."""
    folder = tmp_path / "wheels"
    placeholder.write(str(folder))
    for name in placeholder.BROUGHT.split():
        empty_wheel(folder, name, "1.0")
    empty_wheel(folder, "user", "1.0", "torchx>=0.7.0")
    empty_wheel(folder, "torchx-cli", __version__, torchx="NAME = 'torchx-cli'\n")
    return folder


BROUGHT = {f"{name.replace('-', '_')}-1.0" for name in placeholder.BROUGHT.split()}


@pytest.mark.parametrize("tool", ["pip", "uv pip"])
def test_a_package_that_requires_torchx_takes_the_placeholder(tool: str, wheels: Path) -> None:
    """As `pip install --find-links wheels -c constraints.txt PACKAGE` in docs/moving.md; without an index."""
    (wheels.parent / "constraints.txt").write_text("torchx==0.7.0+cli\n")
    found = ["--no-index", "--find-links", str(wheels), "--target", "target"]
    argv = [*tool.split(), "install", "--quiet", *found, "-c", "constraints.txt", "torchx-cli", "user"]
    run([sys.executable, "-m", *argv], wheels.parent)
    found = [path.name.removesuffix(".dist-info") for path in (wheels.parent / "target").glob("*.dist-info")]
    assert set(found) == {"user-1.0", "torchx-0.7.0+cli", f"torchx_cli-{__version__}", *BROUGHT}


def printed(kind: str) -> list[str]:
    """Returns the blocks of docs/moving.md of one kind."""
    page = (ROOT / "docs" / "moving.md").read_text(encoding="utf-8")
    return [block.split("```", 1)[0] for block in page.split(f"```{kind}\n")[1:]]


def test_a_project_of_uv_overrides_the_requirement(wheels: Path) -> None:
    project = '[project]\nname = "p"\nversion = "1"\ndependencies = ["torchx-cli", "user"]\n'
    project += f'requires-python = ">=3.10"\n{printed("toml")[0]}no-index = true\n'
    (wheels.parent / "pyproject.toml").write_text(project)
    run([sys.executable, "-m", "uv", "lock"], wheels.parent)
    locked = re.findall(r'^name = "(.+)"$', (wheels.parent / "uv.lock").read_text(), re.MULTILINE)
    assert {"p", "torchx", "torchx-cli", "user"} <= set(locked)


@pytest.mark.long
@pytest.mark.parametrize("name", ["torchx", "torchx-nightly"])
def test_the_printed_lines_replace_the_package(name: str, wheels: Path, tmp_path: Path) -> None:
    """In an environment of its own, with a distribution that has a file of the same name."""
    version = placeholder.VERSIONS[name]
    empty_wheel(wheels, name, version, "docker", torchx="NAME = 'torchx'\n")
    python = tmp_path / "env" / "bin" / "python"
    run([sys.executable, "-m", "venv", str(tmp_path / "env")], tmp_path)
    run([str(python), "-m", "pip", "install", f"{name}=={version}"], tmp_path, PIP_FIND_LINKS=str(wheels))
    wheel = f"torchx_cli-{__version__}-py3-none-any.whl"
    (tmp_path / wheel).write_bytes((wheels / wheel).read_bytes())
    wheels.rename(tmp_path / "index")
    placeholder.write(str(wheels))
    lines = re.findall(r"^\$ (pip .+)", printed("console")[0], re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        command = line.replace("pip ", f"{python} -m pip ")
        run(
            ["sh", "-c", f"{command} && {python} -m pip check"],
            tmp_path,
            PIP_FIND_LINKS=str(tmp_path / "index"),
        )
    run([str(python), "-c", "import torchx; assert torchx.NAME == 'torchx-cli'"], tmp_path)


def run(command: list[str], folder: Path, **variables: str) -> None:
    env = {
        **os.environ,
        "PIP_CONFIG_FILE": os.devnull,
        "UV_CACHE_DIR": str(folder / "cache"),
        "PIP_NO_INDEX": "1",
    }
    env["UV_PYTHON"] = sys.executable
    done = subprocess.run(command, capture_output=True, text=True, env={**env, **variables}, cwd=folder)
    assert done.returncode == 0, done.stderr
