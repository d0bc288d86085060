"""Submissions whose script is missing on this machine, or whose program is too long, are rejected."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine import IMAGE
from program import torchx

from torchx.errors import UsageError
from torchx.runner import get_runner
from torchx.specs import AppDef
from torchx.specs.app import Role


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('trained')\n")
    (tmp_path / "sub").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [
        "utils.python --script trian.py",
        "dist.torchrun -j 1x2 --script trian.py -- --lr 1",
        "dist.ddp -j 1x1 --script trian.py",
        "--each lr=1,2 utils.python --script trian.py -- {lr}",
        "-s slurm --workspace . utils.python --script trian.py",
        "--workspace . utils.python --script trian.py",
    ],
)
def test_a_missing_script_is_rejected(folder: Path, line: str) -> None:
    done = torchx("run", "-d", *line.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: the script `trian.py` of role `" in done.stderr
    assert f"does not exist in {folder}\n  did you mean `train.py`?" in done.stderr
    if "--each" not in line:
        assert torchx("run", "--dryrun", *line.split()).returncode == 0


def test_scripts_that_may_exist_are_accepted(folder: Path) -> None:
    assert torchx("run", "utils.python", "--script", "train.py").returncode == 0
    done = torchx("run", "utils.python", "-m", "trian")
    assert "No module named" in done.stderr
    assert "does not exist" not in torchx("run", "utils.python", "--script", "/nope/x.py").stderr
    made = torchx("run", "-d", "utils.sh", "sleep 1; echo 'print(1)' > made.py").stdout.strip()
    later = torchx("run", "-d", "--after", made, "utils.python", "--script", "made.py")
    assert torchx("wait", later.stdout.strip()).returncode == 0, later.stderr


@pytest.mark.docker
def test_scripts_in_images_are_accepted(folder: Path) -> None:
    for flags in ([], ["--workspace", "."]):
        line = ["-s", "local_docker", *flags, "utils.python", "--image", IMAGE, "--script", "absent.py"]
        done = torchx("run", *line)
        torchx("delete", "--yes", done.stdout.strip())
        assert "can't open file" in done.stderr


@pytest.mark.parametrize("scheduler", ["local_cwd", "local_dir", "local_docker", "slurm", "kubernetes"])
def test_programs_longer_than_an_argument_are_rejected(scheduler: str) -> None:
    def app(text: str) -> AppDef:
        return AppDef("a", [Role("r", "img", entrypoint="python3", args=["-c", text])])

    cfg = {"namespace": "default"} if scheduler == "kubernetes" else {}
    with get_runner() as runner:
        for size in (131_072, 400_000):
            with pytest.raises(UsageError, match="an argument of"):
                runner.dryrun(app("#" * size), scheduler, cfg)
        with pytest.raises(UsageError, match="an argument of"):
            runner.sweep("utils.python", {"c": ["#" * 131_072]}, scheduler, cfg=cfg)
