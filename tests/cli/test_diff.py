"""`torchx diff`: two applications compared, without their secrets, in windows of any width."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakecluster import FakeCluster
from program import answer, environment, on_terminal, torchx

from torchx.masking import add_values, forget_values
from torchx.provenance.model import Editable, File, Machine, Provenance, Python, Source
from torchx.runner.api import Runner
from torchx.scheduling.base import DescribeAppResponse
from torchx.scheduling.measurement import AppUsage, ReplicaUsage, Sample
from torchx.specs import Resource, Role
from torchx.specs.status import AppState
from torchx.tracker.backend.fsspec import create
from torchx_cli.diff.sections import Side, compare
from torchx_cli.diff.values import compared, named, of_roles
from torchx_cli.diff.view import lines_of
from torchx_cli.main import main

EVIL = "\x1b]0;evil\x07\u202e"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*args: str) -> str:
    """Runs an application and returns its handle."""
    return torchx("run", *args).stdout.strip()


def differences(data: dict[str, Any], section: str) -> dict[str, tuple[Any, Any]]:
    (found,) = [each for each in data["sections"] if each["name"] == section]
    return {each["name"]: (each["a"], each["b"]) for each in found["differences"]}


def test_two_runs_are_compared() -> None:
    run("--env", "A=1", "--tag", "sweep=1", "utils.sh", "--num_replicas", "1", "exit 0")
    run("--env", "B=1", "-cfg", "grace_period=2", "utils.sh", "--num_replicas", "2", "--image", "i", "exit 3")
    shown = torchx("diff", "@last~1", "@last")
    assert shown.returncode == 0, shown.stderr
    head, *lines = shown.stdout.replace("→", "->").splitlines()
    assert re.fullmatch(r"- local_cwd://torchx/sh-\w+  SUCCEEDED  .+", head)
    assert re.fullmatch(r"\+ local_cwd://torchx/sh-\w+  FAILED  .+", lines.pop(0))
    assert lines[: lines.index("results") + 3] == [
        "arguments",
        "  --num_replicas  1 -> 2",
        "  argument 1      exit 0 -> exit 3",
        "  --image         (none) -> i",
        "run options",
        "  grace_period  10.0 -> 2.0",
        "environment",
        "  A  1 -> (none)",
        "  B  (none) -> 1",
        "resources",
        "  replicas  1 -> 2",
        "image",
        "  image  python:3.12-slim -> i",
        "tags",
        "  sweep  1 -> (none)",
        "results",
        "  state          SUCCEEDED -> FAILED",
        "  exit code      0 -> 3",
    ]
    assert torchx("diff", "--exit-code", "@last~1", "@last").returncode == 1


def test_equal_runs_are_equal() -> None:
    run("utils.echo", "--msg", "same")
    run("utils.echo", "--msg", "same")
    done = torchx("diff", "--exit-code", "echo~1", "echo~0")
    assert done.returncode == 0
    assert "equal: arguments, program, run options, environment, resources, image, tags" in done.stdout
    data = answer("diff", "@last~1", "@last", "-o", "json")
    assert data["equal"] is True
    assert [each["equal"] for each in data["sections"] if not each["missing"]].count(True) >= 8


def test_secrets_are_compared_and_not_shown() -> None:
    secret = {"env": {"API_KEY": "canary-one"}}
    a = run("--env", "MY_TOKEN=canary-1", "--env", "C=1", "utils.sh", "--env", "DB_PASSWORD=canary-3", ":")
    b = run("--env", "MY_TOKEN=canary-2", "--env", "C=2", "utils.sh", "--env", "DB_PASSWORD=canary-3", ":")
    for args in ([], ["-o", "json"], ["-o", "yaml"]):
        shown = torchx("diff", a, b, *args)
        assert shown.returncode == 0
        assert "canary" not in shown.stdout + shown.stderr
    assert "  MY_TOKEN  differs (a secret)" in torchx("diff", a, b).stdout
    found = differences(answer("diff", a, b, "-o", "json"), "environment")
    assert set(found) == {"MY_TOKEN", "C"}
    c, d = (
        torchx("run", "--secret", "API_KEY", "utils.sh", ":", env=secret["env"]).stdout.strip() for _ in "ab"
    )
    assert "note: the secret value of API_KEY is not on record" in torchx("diff", c, d).stdout


def test_values_compare_by_name() -> None:
    section = compared("x", ({"a": 1, "b": [1], "token": "x"}, {"a": 1, "c": "", "token": "y"}))
    assert [(each.name, each.a, each.b) for each in section.differences] == [
        ("b", "[1]", None),
        ("token", "********", "differs (a secret)"),
        ("c", None, ""),
    ]
    assert section.is_equal is False
    measured = compared("x", ({"a": 1}, {"a": 2}), measured=True)
    assert measured.is_equal is True
    add_values(["canary"])
    hidden = compared("x", ({"--lr": "a canary b"}, {"--lr": "c"}))
    forget_values()
    assert hidden.differences[0].a == "a ******** b"
    assert named(["train.py", "-x", "--", "--lr=1"]) == {"argument 1": "train.py", "-x": "given", "--lr": "1"}


def test_roles_are_named_where_they_differ() -> None:
    def app(*values: str) -> list[Role]:
        return [Role(f"r{n}", "i", env={"LR": value, "SAME": "1"}) for n, value in enumerate(values)]

    assert of_roles(app("1", "1"), app("2", "2"), lambda role: role.env) == (
        {"LR": "1", "SAME": "1"},
        {"LR": "2", "SAME": "1"},
    )
    one, other = of_roles(app("1", "1"), app("1", "2"), lambda role: role.env)
    assert (one["r1 LR"], other["r1 LR"], one["SAME"]) == ("1", "2", "1")


PROVENANCE = Provenance(
    1.0,
    "0.2",
    directory="/p",
    source=Source("/p", "a" * 40, "main", files=(File("x.py", "modified", digest="1" * 64),), complete=True),
    python=Python("3.11", "/py", packages={"torch": "2.0", "gone": "1"}, editable={"mine": Editable("/m")}),
    machine=Machine("here", gpus=("H100",)),
)


def side(provenance: Provenance | None, **changes: Any) -> Side:
    role = Role("r", "i", entrypoint="p", resource=Resource(cpu=1, gpu=0, memMB=1), **changes)
    described = DescribeAppResponse("a", AppState.SUCCEEDED, roles=[role], name="a")
    return Side("local_cwd://s/a", described, None, provenance)


class Runs(Runner):
    """A runner without measurements."""

    def usage(self, app_handle: str) -> None:
        return None


def sections_of(a: Side, b: Side) -> dict[str, dict[str, Any]]:
    with Runs() as runner:
        return {each.name: each.as_data() for each in compare((a, b), runner, runner.load_config())}


class Measured(Runner):
    """A runner with all measurements of each application."""

    def usage(self, app_handle: str) -> AppUsage:
        size = int(app_handle[-1]) << 20
        total = Sample(1.0, 20.0, cpu=1.0, memory=size, gpu=0.5, gpu_memory=2 * size)
        return AppUsage((ReplicaUsage("r", 0, 1, total),), "test")


def test_measurements_are_shown_and_make_no_difference() -> None:
    a = side(None)
    with Measured() as runner:
        sides = replace(a, handle=f"{a.handle}1"), replace(a, handle=f"{a.handle}2")
        results = compare(sides, runner, runner.load_config())[-1]
    assert {each.name: (each.a, each.b) for each in results.differences} == {
        "peak memory": ("1 MiB", "2 MiB"),
        "peak GPU memory": ("2 MiB", "4 MiB"),
    }
    assert results.is_equal


def test_source_packages_and_machine_are_compared() -> None:
    assert PROVENANCE.source is not None
    assert PROVENANCE.python is not None
    other = PROVENANCE._replace(
        torchx_version="0.3",
        source=PROVENANCE.source._replace(commit="b" * 40, files=()),
        python=PROVENANCE.python._replace(
            packages={"torch": "2.1", "new": "1"}, editable={"mine": Editable("/m", "c" * 40, True)}
        ),
    )
    found = sections_of(side(PROVENANCE), side(other))

    def values(name: str) -> dict[str, Any]:
        return {each["name"]: (each["a"], each["b"]) for each in found[name]["differences"]}

    assert values("source") == {
        "commit": ("a" * 12, "b" * 12),
        "file x.py": ("modified (111111111111)", None),
    }
    assert found["source"]["notes"] == []
    partial = PROVENANCE._replace(source=PROVENANCE.source._replace(files=(), complete=False))
    source = sections_of(side(PROVENANCE), side(partial))["source"]
    assert (source["equal"], source["notes"]) == (True, ["the changed files of both are not on record"])
    source = sections_of(side(PROVENANCE), side(partial._replace(recording=True)))["source"]
    assert source["notes"] == ["the changed files are still being recorded"]
    assert values("packages") == {
        "torch": ("2.0", "2.1"),
        "gone": ("1", None),
        "new": (None, "1"),
        "mine": ("from /m", f"from /m at {'c' * 12} with changes"),
    }
    assert values("machine") == {"torchx": ("0.2", "0.3")}
    assert sections_of(side(PROVENANCE), side(None))["source"]["missing"] == "not on record for the second"
    recording = PROVENANCE._replace(python=None, recording=True)
    assert sections_of(side(recording), side(recording))["packages"]["missing"] == "still being recorded"
    damaged = side(None)
    damaged.damage = "it is damaged"
    assert sections_of(damaged, side(None))["source"]["missing"] == "it is damaged"


def test_control_characters_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PROVENANCE.python is not None
    evil = PROVENANCE._replace(
        directory=EVIL, python=PROVENANCE.python._replace(packages={f"p{EVIL}": f"1{EVIL}\n2"})
    )
    sides = side(PROVENANCE, args=[EVIL, "--x", f"{EVIL}\nFAKE"]), side(evil, env={"A": f"{EVIL}\nb"})
    monkeypatch.setattr(Side, "of", lambda runner, text: sides[int(text)])
    for flags in ([], ["-o", "json"], ["-o", "yaml"], ["--source"]):
        assert main(["diff", "0", "1", *flags]) == 0
        shown = capsys.readouterr()
        assert not set("\x1b\x07\u202e") & set(shown.out + shown.err)
    assert "\nFAKE" not in shown.out


@pytest.mark.parametrize("width", [40, 80, 200])
def test_lines_fit_the_window(width: int) -> None:
    run("--env", "A=" + "word " * 30, "utils.echo", "--msg", "a")
    run("--env", "A=" + "text " * 30, "utils.echo", "--msg", "b")
    shown, code = on_terminal("diff", "@last~1", "@last", columns=width)
    assert code == 0
    assert "\x1b[31m" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= width


def test_many_differences_are_counted() -> None:
    a = side(None, env={f"V{n}": "1" for n in range(40)})
    with Runs() as runner:
        sections = compare((a, side(None)), runner, runner.load_config())
    text = "\n".join(lines_of(a, side(None), sections, io.StringIO()))
    assert "10 more are not shown (list them with -o json)" in text


def test_engines_may_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))

        def call(*args: str) -> str:
            assert main(args) == 0
            return capsys.readouterr().out.strip()

        a = call("run", "-s", "local_cwd", "-d", "utils.echo", "--msg", "a", "--image", "i")
        b = call("run", "-s", "kubernetes", "-d", "utils.echo", "--msg", "b", "--image", "i")
        data = json.loads(call("diff", a, b, "-o", "json"))
    assert differences(data, "run options") == {"scheduler": ("local_cwd", "kubernetes")}, "no defaults"
    assert differences(data, "program") == {"argument 1": ("a", "b")}
    assert differences(data, "resources") == {}


def test_tracked_values_are_results(tmp_path: Path) -> None:
    Path(".torchxconfig").write_text(f"[torchx:tracker]\nfsspec =\n[tracker:fsspec]\nconfig = {tmp_path}/t\n")
    handles = [run("utils.echo", "--msg", "a") for _ in range(2)]
    for handle, loss in zip(handles, (0.5, 0.25), strict=True):
        create(f"{tmp_path}/t").add_metadata(handle, loss=loss)
    data = answer("diff", *handles, "-o", "json")
    assert differences(data, "results")["tracked loss"] == ("0.5", "0.25")
    assert data["equal"] is True, "a metric is a measurement"


def test_older_applications_have_names() -> None:
    handles = [run("utils.echo", "--msg", str(n)) for n in range(3)]
    for text, expected in (("@last~2", 0), ("@last~0", 2), ("echo~1", 1), ("echo~0", 2)):
        assert answer("status", text, "-o", "json")["handle"] == handles[expected]
    torchx("delete", handles[1])
    assert answer("status", "@last~1", "-o", "json")["handle"] == handles[0]
    missing = torchx("status", "@last~5")
    assert (missing.returncode, missing.stderr.splitlines()[0]) == (
        1,
        "error: there is no `@last~5`: the handles of 2 submissions are known",
    )
    assert "the newest called echo: echo~0 " in torchx("status", "echo").stderr


def test_few_modules_are_loaded() -> None:
    """A comparison of local applications draws nothing, runs no git and imports no component."""
    a, b = run("utils.echo", "--msg", "a"), run("utils.echo", "--msg", "b")
    code = "import sys; from torchx_cli.main import main; main(sys.argv[1:]); print('LOADED', *sys.modules)"

    def loaded(*args: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", code, *args], capture_output=True, text=True, env=environment(), check=True
        )
        return set(done.stdout.rpartition("LOADED")[2].split())

    more = loaded("diff", a, b) - loaded("describe", a)
    assert len(more) < 42, more
    heavy = {"rich", "yaml", "tempfile", "asyncio", "torchx.provenance.git", "torchx.discovery.find.finder"}
    assert not more & heavy, more & heavy
