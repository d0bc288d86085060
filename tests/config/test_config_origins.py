"""Errors caused by a value of `.torchxconfig` name its file, line and section, on every engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_cli.main import main

COMPONENT = """\
from torchx.specs import AppDef, Role


def train(lr: float = 1.0, size: int = 1) -> AppDef:
    if lr > 2:
        raise ValueError("lr is too large")
    return AppDef("train", [Role("train", image="i", entrypoint="true")])
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "comps.py").write_text(COMPONENT)
    return tmp_path / ".torchxconfig"


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ("[local_cwd]\nlog_dri=x", "-s local_cwd"),
        ("[local_cwd]\nprepend_cwd=x", "-s local_cwd"),
        ("[local_cwd]\ngrace_period=-1", "-s local_cwd"),
        ("[local_docker]\nretry_on=x:", "-s local_docker"),
        ("[slurm]\nsignal=99", "-s slurm"),
        ("[slurm]\ntime_limit=abc", "-s slurm"),
        ("[slurm]\nworkspace_type=x", "-s slurm"),
        ("[slurm]\nsbatch=--array=1-3", "-s slurm"),
        ("[kubernetes]\nnamespace=A_b", "-s kubernetes"),
        ("[kubernetes]\nkind=volcano", "-s kubernetes"),
        ("[kubernetes]\nlabels=a b:c", "-s kubernetes"),
        ("[profile:big:slurm]\nstall=abc", "-s slurm"),
        ("[DEFAULT]\ngrace_period=-1", "-s local_cwd"),
        ("[cli:run]\nscheduler=nowhere", ""),
        ("[cli:run]\nschedule=slurm", ""),
        ("[cli:run]\nworkspace=/nowhere", "-s local_docker"),
        ("[cli:run]\nfold=x", ""),
        ("[cli:run]\ntags=a b", ""),
        ("[component:utils.echo]\nnum_replicas=x", ""),
        ("[component:utils.echo]\nmgs=x", ""),
        ("[torchx]\nmaks=x", ""),
    ],
)
def test_errors_name_file_line_and_section(
    section: str, line: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heading = section.partition("\n")[0]
    project.write_text(f"# defaults\n{section}\n[local_cwd]\n" if "DEFAULT" in section else f"\n{section}\n")
    profile = ["--profile", "big"] if "profile" in section else []
    assert main([*profile, "run", "--dryrun", *line.split(), "utils.echo"]) == 2
    error = capsys.readouterr().err
    assert f".torchxconfig line 3 {heading}" in error
    assert len(error.splitlines()) <= 2


@pytest.mark.parametrize("flags", [[], ["--each", "size=1,2"]])
def test_an_error_of_a_component_names_configured_arguments(
    flags: list[str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write_text("[component:comps.py:train]\nlr = 3\n")
    assert main(["run", "--dryrun", *flags, "comps.py:train"]) == 2
    assert "(`lr` from .torchxconfig line 2 [component:comps.py:train]" in capsys.readouterr().err
    assert main(["run", "--dryrun", "comps.py:train", "--lr", "4"]) == 2
    assert ".torchxconfig" not in capsys.readouterr().err


def test_an_unknown_default_component_names_its_line(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write_text("[cli:run]\ncomponent = nope.x\n")
    assert main(["run", "--dryrun"]) == 2
    assert "no component `nope.x` (from .torchxconfig line 2 [cli:run])" in capsys.readouterr().err
    assert main(["run", "--dryrun", "nope.y"]) == 2
    assert ".torchxconfig" not in capsys.readouterr().err


def test_given_values_are_not_blamed_on_the_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project.write_text("[local_cwd]\ngrace_period = 1\n[cli:run]\nscheduler = slurm\n")
    line = ["run", "--dryrun", "-s", "local_cwd", "-cfg", "grace_period=-1", "utils.echo"]
    assert main(line) == 2
    assert ".torchxconfig" not in capsys.readouterr().err
    assert main(["run", "--dryrun", "-s", "nowhere", "utils.echo"]) == 2
    assert ".torchxconfig" not in capsys.readouterr().err
