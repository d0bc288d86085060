"""`rerun --set`, `rerun -s` and `rerun -- ARGS`: an application again, with changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from engine import IMAGE
from fakecluster import FakeCluster
from program import answer, torchx

from torchx import settings
from torchx.masking import MASK
from torchx.specs import AppDef, Role
from torchx_cli.main import main
from torchx_cli.recorded import parse
from torchx_cli.rerun.rebuild import merged

COMPONENT = """
from torchx.specs import AppDef, Role


def trainer(*args: str, lr: float = 0.1, fast: bool = False, names: list[str] = [], env: dict[str, str] = {},
            roles: int = 1) -> AppDef:
    program = ["--lr", str(lr), "--names", "+".join(names), str(fast), *args]
    env = {"LR": str(lr), **env}
    made = [Role(f"w{n}", "", entrypoint="echo", args=program, env=env) for n in range(roles)]
    return AppDef("train", made)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "comp.py").write_text(COMPONENT)
    return tmp_path


def rerun(*args: str) -> dict[str, Any]:
    """Runs `@first` again with flags, and returns its description."""
    done = torchx("rerun", *args)
    assert done.returncode == 0, done.stderr
    described: dict[str, Any] = answer("describe", "-o", "json", done.stdout.strip())
    return described


def args_of(described: dict[str, Any]) -> list[str]:
    args: list[str] = described["app"]["roles"][0]["args"]
    return args


def test_flags_of_the_component_and_its_program_change() -> None:
    argv = ["--names", "a", "--names", "b", "--", "--beta", "2", "pos"]
    first = torchx("run", "--env", "A=1", "--tag", "sweep=1", "comp.py:trainer", *argv).stdout.strip()
    described = rerun(first, "--set", "lr=1e-3", "--set", "fast", "--set", "beta=3", "--tag", "sweep=2")
    assert args_of(described) == ["--lr", "0.001", "--names", "a+b", "True", "--beta", "3", "pos"]
    env = described["app"]["roles"][0]["env"]
    assert (env["LR"], env["A"]) == ("0.001", "1")
    assert described["tags"] == {"sweep": "2"}
    assert described["command_line"] == (
        "torchx run --env A=1 --tag sweep=1 comp.py:trainer --names a --names b --lr 1e-3 --fast=true"
        " -- --beta 3 pos"
    )
    shortened = torchx("rerun", "--dryrun", first, "--set", "fas=true")
    assert shortened.stderr.splitlines()[-1] == "note: `--fas` was read as `--fast`"
    again = rerun(described["handle"], "--set", "names=c", "--", "other")
    assert args_of(again) == ["--lr", "0.001", "--names", "c", "True", "other"]
    assert again["app"]["roles"][0]["env"]["A"] == "1"


def test_invalid_changes_are_the_errors_of_run() -> None:
    first = torchx("run", "comp.py:trainer", "--", "--beta", "2", "--beta", "3").stdout.strip()
    for change, message, hint in (
        ("lrr=1", "unknown flag `--lrr` for comp.py:trainer", "did you mean `--lr`?"),
        ("lr=high", '--lr takes a float, got "high"', ""),
        (
            "gamma=1",
            "unknown flag `--gamma`",
            "its program has no such argument to change; to give it others: -- ARGUMENTS",
        ),
        ("lr", "--set lr needs a value", "e.g. --set lr=VALUE"),
        ("beta=1", "the program has --beta more than once", "torchx rerun ... -- ARGUMENTS"),
    ):
        done = torchx("rerun", first, "--set", change)
        assert done.returncode == 2
        assert message in done.stderr
        assert hint in done.stderr
    assert len(answer("list", "-o", "json")) == 1


def test_new_arguments_follow_two_dashes() -> None:
    first = torchx("run", "-d", "comp.py:trainer", "--", "--beta", "2").stdout.strip()
    instead = f"to replace all arguments of the program: torchx rerun {first} --"
    for words, hints in (
        (["lr=3"], f"to change one: --set lr=3   {instead} lr=3"),
        (["a", "b c"], f"{instead} a 'b c'"),
        (["a", "--", "b"], f"{instead} a"),
    ):
        done = torchx("rerun", "-d", first, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"error: unexpected argument `{words[0]}`\n  {hints}\n"
    assert args_of(rerun("-d", first, "--", "a", "b c"))[-2:] == ["a", "b c"]


def test_a_component_that_has_changed_since_keeps_the_record(folder: Path) -> None:
    first = torchx("run", "comp.py:trainer", "--lr", "0.5").stdout.strip()
    (folder / "comp.py").write_text(COMPONENT.replace('"echo"', '"printf"').replace('"LR"', '"RATE"'))
    described = rerun(first, "--set", "fast=true")
    assert described["app"]["roles"][0]["entrypoint"] == "echo"
    assert described["app"]["roles"][0]["env"]["LR"] == "0.5"
    (folder / "comp.py").write_text(COMPONENT.replace("lr: float", "rate: float"))
    done = torchx("rerun", first, "--set", "fast=true")
    assert done.returncode == 1
    assert "the component no longer accepts the recorded arguments" in done.stderr
    assert "recorded: comp.py:trainer --lr 0.5" in done.stderr


def test_a_secret_argument_is_that_of_the_record() -> None:
    argv = ["comp.py:trainer", "--", "--api_key", "canary-1"]
    first = torchx("run", *argv).stdout.strip()
    done = torchx("rerun", first, "--set", "lr=0.2")
    assert "--api_key canary-1" in done.stderr, "the program prints it"
    done = torchx("rerun", first, "--set", "lr=0.2", "--dryrun")
    assert "canary" not in done.stdout + done.stderr


def test_what_has_no_recorded_arguments_cannot_change() -> None:
    first = torchx("run", "utils.sh", ": " + "x" * 20_000).stdout.strip()
    done = torchx("rerun", first, "--set", "image=x")
    assert done.returncode == 1
    assert done.stderr.startswith("error: the arguments of local_cwd://")


def test_another_scheduler_names_the_options_that_it_lacks() -> None:
    Path(".torchxconfig").write_text("[slurm]\npartition = debug\n")
    options = "grace_period=3.0,prepend_cwd=true"
    first = torchx("run", "-cfg", options, "comp.py:trainer").stdout.strip()
    done = torchx("rerun", first, "-s", "slurm", "-cfg", "time=5", "--dryrun", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert "note: slurm has no run option `prepend_cwd`; it is omitted" in done.stderr
    cfg = json.loads(done.stdout)["cfg"]
    assert (cfg["partition"], cfg["time"]) == ("debug", "5")
    bad = torchx("rerun", first, "-s", "slurm", "-cfg", "tme=5", "--dryrun")
    assert bad.returncode == 2
    assert "did you mean `time`?" in bad.stderr


def test_options_of_the_same_scheduler_override_the_recorded_ones() -> None:
    first = torchx("run", "-cfg", "grace_period=3,fail_fast=false", "comp.py:trainer").stdout.strip()
    described = rerun(first, "-cfg", "grace_period=4")
    assert (described["cfg"]["grace_period"], described["cfg"]["fail_fast"]) == (4.0, False)
    line = "torchx run -cfg fail_fast=false -cfg grace_period=4 comp.py:trainer"
    assert described["command_line"] == line
    assert rerun(described["handle"], "--set", "lr=1")["command_line"] == f"{line} --lr 1"


@pytest.mark.long
@pytest.mark.docker
def test_image_with_workspace_is_built_for_another_scheduler(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "name").write_text("first")
    args = ["run", "-s", "local_docker", "--workspace", "src", "utils.sh", "--image", IMAGE, "cat name >&2"]
    first = torchx(*args).stdout.strip()
    done = torchx("rerun", first, "-s", "local_cwd")
    assert done.returncode == 0, done.stderr
    assert "first" in done.stderr
    described = answer("describe", "-o", "json", "@last")
    assert described["app"]["roles"][0]["image"] == IMAGE
    torchx("delete", first)


def test_on_a_cluster_the_command_line_stays_through_reruns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))

        def call(*args: str) -> str:
            assert main(args) == 0
            return capsys.readouterr().out.strip()

        handle = call("run", "-s", "kubernetes", "utils.sh", "--num_replicas", "2", "echo secret-value")
        for _ in range(2):
            handle = call("rerun", "-d", handle)
        described = json.loads(call("describe", "-o", "json", handle))
        assert described["command_line"] == "torchx run utils.sh --num_replicas … …"


def test_again_names_the_application() -> None:
    first = torchx("run", "utils.sh", "exit 3")
    app_id = first.stdout.strip().rpartition("/")[2]
    done = torchx("rerun", "@last", "--set", "num_replicas=2")
    assert done.stderr.splitlines()[-1] == f"  again:    torchx rerun {app_id} --set num_replicas=2"


def test_fields_that_do_not_change_stay_as_recorded() -> None:
    def app(**changes: Any) -> AppDef:
        given: dict[str, Any] = {"args": ["a", "b"], "env": {"A": "1"}, **changes}
        return AppDef("app", [Role("r", entrypoint="e", **{"image": "i", **given})], {"k": "1"})

    recorded = app(args=["a", "secret"], env={"A": "1", "B": "2", "GONE": "3"}, image="built", num_replicas=4)
    before, after = app(args=["a", MASK], env={"A": "1", "GONE": "3"}), app(args=["x", MASK], env={"A": "5"})
    role = merged(recorded, before, after).roles[0]
    assert (role.args, role.env) == (["x", "secret"], {"A": "5", "B": "2"})
    assert (role.image, role.num_replicas) == ("built", 4)
    longer = merged(recorded, before, app(args=["x", MASK, "y"])).roles[0]
    assert longer.args == ["x", MASK, "y"]
    more = app()
    more.roles.append(Role("new", "i", entrypoint="e"))
    assert merged(recorded, app(), more).roles[1].env == {"B": "2", "GONE": "3"}


def test_a_component_file_is_found_from_any_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = parse("torchx run comp.py:trainer", str(folder))
    assert command is not None
    assert command.located_component == "comp.py:trainer"
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    assert command.located_component == f"{folder}/comp.py:trainer"
    named = parse("torchx run utils.sh", str(folder))
    assert named is not None
    assert named.located_component == "utils.sh"


def test_the_recorded_command_line_is_parsed() -> None:
    command = parse("torchx --profile p run -s slurm -- -j 1x2 -- --epochs 3")
    assert command is not None
    assert (command.component, command.argv) == ("", ["-j", "1x2", "--", "--epochs", "3"])
    line = command.metadata()[settings.COMMAND_LINE]
    assert line == "torchx --profile p run -s slurm -- -j 1x2 -- --epochs 3"
    for other in ("torchx run --stdin", "torchx rerun @last", "python 'x", ""):
        assert parse(other) is None
