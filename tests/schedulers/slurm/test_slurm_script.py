"""The script is a pure function, and safe whatever stands in an application; shells run parts of it here."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slurmscripts import SH, context, made, run_task, unpacked

from torchx.errors import UsageError
from torchx.schedulers.shared.batch.node.files import node_file
from torchx.schedulers.shared.batch.quoting import APP_ID, REPLICA_ID, packed, quote
from torchx.schedulers.shared.batch.script import NODE_FILES, files_of, script_of
from torchx.schedulers.slurm.directives import directive
from torchx.specs import AppDef, Resource, RetryPolicy, Role, macros

ODD = "a,b; 'q' \"w\" $HOME `date` $(date) \\ \r\n\n\nEND\nEMPTY CR  é 🙂 #x !y\t* ~ {1,2}"


def app(**changes: Any) -> AppDef:
    role = Role("w r/é", "img", entrypoint="printf", args=["%s|", ODD.replace("$", "$$")], env={"ODD": "x"})
    role.resource = Resource(1, 0, 100)
    return AppDef("n a\nme", [role], **changes)


def test_it_is_shell_script_and_same_each_time() -> None:
    script = made(app())
    assert script == made(app())
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert "\n#| set -- ODD=x \\\n#|   -- \\\n#|   printf" in script, "it can be read"


def test_all_letters_arrive(tmp_path: Path) -> None:
    given = app()
    given.roles[0].args += [f"{macros.app_id}/{macros.replica_id}", "", "$${X}", f"$${{{macros.rank0_env}}}"]
    given.roles[0].env = {"ODD": ODD.replace("$", "$$"), "ID": f"a {macros.replica_id}"}
    folder = run_task(given, tmp_path, replica=3)
    expected = "|".join([ODD, "77/3", "", "${X}", "${TORCHX_RANK0_HOST}"]) + "|"
    assert (folder / "stdout.log").read_bytes().decode() == expected
    assert folder.parent.name == "3"


def test_variables_of_role_arrive_and_cannot_disturb_script(tmp_path: Path) -> None:
    names = ["folder", "replica_id", "attempt", "keep", "ODD"]
    role = Role("r", "", entrypoint="env", env={**dict.fromkeys(names, ODD.replace("$", "$$")), "IFS": "efo"})
    folder = run_task(AppDef("a", [role]), tmp_path)
    out = (folder / "stdout.log").read_bytes().decode()
    assert [name for name in names if f"{name}={ODD}\n" not in out] == []
    assert "torchx_place" not in out
    assert json.loads((folder / "end.json").read_text())["exit_code"] == 0


@pytest.mark.parametrize("python", [True, False])
def test_variables_of_a_role_are_for_its_program_alone(tmp_path: Path, python: bool) -> None:
    """A node without Python has the other programs that a wrapper needs."""
    (tmp_path / "bin").mkdir()
    for name in ("mkdir", "date", "env"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    if python:
        (tmp_path / "bin" / "python3").write_text(f'#!{SH}\nexec {sys.executable} "$@"\n')
        (tmp_path / "bin" / "python3").chmod(0o755)
    own = {"PATH": "/nonexistent", "TORCHX_APP_ID": "mine", "torchx_folder": "/nonexistent"}
    own |= {"TORCHX_RETRIES": "9", "TORCHX_FOLDER": "there", "LD_LIBRARY_PATH": "/x", "A": "b=c d"}
    wanted = "".join(f"{name}={value}\n" for name, value in own.items())
    command = "".join(f'echo "{name}=${name}"; ' for name in own)
    role = Role("r", "", entrypoint=SH, args=["-c", command.replace("$", "$$")], env=own)
    folder = run_task(AppDef("a", [role]), tmp_path, path=str(tmp_path / "bin"))
    assert (folder / "stdout.log").read_text() == wanted
    assert json.loads((folder / "end.json").read_text())["exit_code"] == 0
    assert (folder / "combined.log").exists() is python


@pytest.mark.parametrize("python", [True, False])
def test_the_signal_that_stopped_a_replica_is_recorded(tmp_path: Path, python: bool) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("mkdir", "date"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    role = Role("r", "", entrypoint=SH, args=["-c", "trap '' TERM; kill -TERM $$PPID"])
    path = os.environ["PATH"] if python else str(tmp_path / "bin")
    folder = run_task(AppDef("a", [role]), tmp_path, path=path)
    end = json.loads((folder / "end.json").read_text())
    assert (end["exit_code"], end["stop_signal"]) == (0, "SIGTERM")
    assert (folder / "combined.log").exists() is python


def test_program_is_looked_for_on_path_of_its_role(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine").symlink_to(shutil.which("true") or "true")
    role = Role("r", "", entrypoint="mine", env={"PATH": str(tmp_path / "own")})
    folder = run_task(AppDef("a", [role]), tmp_path)
    assert json.loads((folder / "end.json").read_text())["exit_code"] == 0


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30))
@settings(max_examples=40)
def test_words_are_one_word(text: str) -> None:
    out = subprocess.run(["sh", "-c", f"printf %s {quote(text)}"], capture_output=True, check=True).stdout
    assert out == text.encode()
    lines = list(packed({"x": text}))
    assert "" not in lines, "Slurm drops empty lines from the script of a job with several roles"
    assert not any("\r" in line or "\n" in line for line in lines), "and refuses a script that has these"
    with tempfile.TemporaryDirectory() as folder:
        found = unpacked({"x": text}, Path(folder) / "f")
    assert found == {"x": f"{text.removesuffix(chr(10))}\n".encode()}


def test_no_argument_can_pass_for_file_of_job(tmp_path: Path) -> None:
    lines = "\n#> .node/agent.py\n#| evil\n#> end\n#\\ \\r\r\\\n"
    given = AppDef("a", [Role("r", "", entrypoint="echo", args=[lines, "\udcff"])])
    files = files_of(given, {}, context(str(tmp_path)))
    expected = {name: text.encode("utf-8", "surrogateescape") for name, text in files.items()}
    assert unpacked(files, tmp_path / "f") == expected
    assert set(files) == {"role-0.sh", *(f".node/{name}" for name in NODE_FILES)}


def test_the_script_of_one_role_fits_on_a_page(tmp_path: Path) -> None:
    """The greatest one: an administrator reads it at once, and it has no argument of a role."""
    role = Role("trainer", "img", entrypoint="python", args=["secret-argument"], env={"A": "secret-value"})
    role.resource, role.max_retries, role.retry_policy = Resource(8, 4, 64_000), 3, RetryPolicy.ROLE
    role.port_map = {"C10D": 29500, "HTTP": 8000}
    cfg: dict[str, Any] = {"partition": "gpu", "account": "vision", "time": "4:00:00", "exclusive": True}
    cfg |= {"mail-user": "me", "mail-type": "END", "constraint": "a100", "qos": "high", "containers": "pyxis"}
    script = script_of(AppDef("train", [role]), cfg, context("/f"))
    assert script.count("\n") <= 60
    assert max(map(len, script.splitlines())) <= 240
    assert "secret" not in script
    for name in NODE_FILES[:2]:
        shell = "bash" if name == "batch.sh" else "sh"
        subprocess.run([shell, "-n"], input=node_file(name), text=True, check=True)


def test_lines_of_sbatch() -> None:
    assert directive("job-name", "a b") == '#SBATCH --job-name="a b"'
    assert directive("comment", 'x "y" \\ #z') == '#SBATCH --comment="x \\"y\\" \\\\ #z"'


def test_equal_replicas_are_one_step_and_roles_are_parts() -> None:
    one = made(AppDef("a", [Role("r", "", entrypoint="true", num_replicas=1000)]))
    assert one.count("    TORCHX_RETRIES=0 step ") == 1
    assert "#SBATCH --ntasks=1000" in one
    assert "hetjob" not in one
    two = made(AppDef("a", [Role(name, "", entrypoint="true", num_replicas=2) for name in "ab"]))
    assert two.count("#SBATCH hetjob") == 1
    assert "--het-group=1" in two


def test_it_does_not_grow_with_the_replicas() -> None:
    sizes = [len(made(AppDef("a", [Role("r", "", entrypoint="true", num_replicas=n)]))) for n in (10, 10_000)]
    assert sizes[1] - sizes[0] < 20


@pytest.mark.parametrize(
    ("policy", "cfg", "has"),
    [
        (RetryPolicy.APPLICATION, {}, "\nretries=(3) requeue=yes\n"),
        (RetryPolicy.APPLICATION, {"requeue": False}, "\nretries=(3) requeue=no\n"),
        (RetryPolicy.ROLE, {}, "TORCHX_RETRIES=0 again 0 3 step "),
        (RetryPolicy.REPLICA, {}, "TORCHX_RETRIES=3 step "),
    ],
)
def test_retries(policy: RetryPolicy, cfg: dict[str, Any], has: str) -> None:
    role = Role("r", "", entrypoint="false", max_retries=3, retry_policy=policy)
    script = made(AppDef("a", [role]), **cfg)
    assert has in script
    assert ("#SBATCH --no-requeue" in script) is (cfg.get("requeue") is False)
    assert "--no-requeue" in made(AppDef("a", [Role("r", "", entrypoint="false")]))


def test_containers() -> None:
    from torchx.specs import BindMount

    role = Role("r", "ghcr.io/a/b:1", entrypoint="true", mounts=[BindMount("/da ta", "/d", read_only=True)])
    script = made(AppDef("a", [role]), containers="pyxis")
    assert "--container-image='ghcr.io#a/b:1'" in script
    assert "--container-mounts=\"$folder:$folder\"',/da ta:/d:ro'" in script
    script = made(AppDef("a", [role]), containers="apptainer")
    assert "--container" not in script
    assert (
        'apptainer exec --bind "$folder" --bind \'/da ta:/d:ro\' docker://ghcr.io/a/b:1 sh "$folder/role'
        in script
    )
    role.image, role.resource = "/images/a.sif", Resource(1, 2, 100)
    assert ' /images/a.sif sh "$folder/role-0.sh" r\n' in made(AppDef("a", [role]), containers="apptainer")
    assert "apptainer exec --nv " in made(AppDef("a", [role]), containers="apptainer")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"args": ["a\0b"]}, "zero byte"),
        ({"env": {"a b": "c"}}, "invalid environment variable"),
        ({"args": ["x" * 200_000]}, "a program can get"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        made(AppDef("a", [Role("r", "", entrypoint="true", **changes)]))


def ports_of(wanted: dict[str, int], job_id: int) -> list[int]:
    """Runs the part of a script that looks for ports, on this machine."""
    given = AppDef("a", [Role("r", "", entrypoint="true", port_map=wanted)])
    lines = [
        line for line in script_of(given, {}, context("/f")).splitlines() if line.startswith("find_port ")
    ]
    answer = "; ".join(f"echo $TORCHX_PORT_{name}" for name in wanted)
    argv = ["bash", "-c", "\n".join([node_file("batch.sh"), *lines, answer])]
    out = subprocess.run(
        argv, env={"SLURM_JOB_ID": str(job_id)}, capture_output=True, check=True, timeout=240
    )
    return [int(word) for word in out.stdout.split()]


def test_each_port_is_one_and_nobody_elses() -> None:
    assert len(set(ports_of({"A": 29500, "B": 29500}, 7))) == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        first, second = ports_of({"A": port, "B": port + 1 if port < 65535 else port}, 1000)
    assert len({port, first, second}) == 3


@pytest.mark.parametrize("job_id", [0, 1, 999])
def test_behind_the_last_port_the_first_ones_come(job_id: int) -> None:
    found = ports_of({"A": 65535, "B": 65535, "C": 65000}, job_id)
    assert len(set(found)) == 3
    assert all(1024 <= port <= 65535 for port in found)


SHARP = [
    "'",
    '"',
    "\\",
    "$(touch x)",
    "`touch x`",
    "\n",
    "\r",
    "-n",
    "--",
    "END",
    "EMPTY",
    "%s",
    "!",
    "*",
    "a=b",
]


def test_arguments_and_values_arrive_through_all_shells(tmp_path: Path) -> None:
    """From the script through bash, its files and sh to a program: every pair of texts that a shell reads."""
    letters = Random(11)
    odd = [
        "".join(chr(letters.choice([*range(1, 256), 0x2028, 0x1F600])) for _ in range(9)) for _ in range(200)
    ]
    args = [
        *SHARP,
        *(first + second for first in SHARP for second in SHARP),
        *odd,
        "#> end",
        "",
    ]
    role = Role("r", "", entrypoint="sh", args=["-c", 'printf "%s\\0" "$$A" "$$@"', "sh", *args])
    role.env = {"A": "".join(args)}
    folder = run_task(_escaped(AppDef("a", [role])), tmp_path)
    assert (folder / "stdout.log").read_bytes().decode().split("\0")[:-1] == ["".join(args), *args]


def _escaped(given: AppDef) -> AppDef:
    (role,) = given.roles
    role.args[3:] = [text.replace("$", "$$") for text in role.args[3:]]
    role.env = {name: text.replace("$", "$$") for name, text in role.env.items()}
    return given


@pytest.mark.parametrize("text", ["$HOME", "a b", "'", "~", "#x", "", "-n", "*", "a\\b", "!x", "a;b", "a\nb"])
def test_a_quoted_word_is_not_read_by_a_shell(text: str) -> None:
    for shell in ("sh", "bash"):
        argv = [shell, "-c", f"set -- {quote(text)}; printf '%s|%s' $# \"$1\""]
        assert subprocess.run(argv, capture_output=True, check=True).stdout == f"1|{text}".encode()


def test_variables_of_the_job_stand_between_quoted_texts() -> None:
    text = quote(f"$(a){APP_ID}'b{REPLICA_ID}")
    argv = ["sh", "-c", f"torchx_app='1 $x' torchx_replica=2; printf %s {text}"]
    assert subprocess.run(argv, capture_output=True, check=True).stdout == b"$(a)1 $x'b2"


def test_a_replica_tries_again(tmp_path: Path) -> None:
    role = Role("r", "", entrypoint="sh", args=["-c", "echo $$TORCHX_ATTEMPT; exit 3"])
    run_task(AppDef("a", [role]), tmp_path, retries=2)
    ends = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("r/0/*/end.json")}
    assert {name: end["exit_code"] for name, end in ends.items()} == {f"attempt-{n}": 3 for n in (1, 2, 3)}
