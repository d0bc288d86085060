"""The script is a pure function, and safe whatever stands in an application; shells run parts of it here."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from canary import open_files
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx.errors import UsageError
from torchx.schedulers.slurm.directives import ATTEMPT_LOOP, agent_text
from torchx.schedulers.slurm.paths import SlurmPaths
from torchx.schedulers.slurm.quoting import APP_ID, REPLICA_ID, directive, heredoc, quote
from torchx.schedulers.slurm.script import ScriptContext, script_of, without_roles
from torchx.specs import AppDef, Resource, RetryPolicy, Role, macros

SH = shutil.which("sh") or "sh"
ODD = "a,b; 'q' \"w\" $HOME `date` $(date) \\ \r\n\n\nEND\nEMPTY CR  é 🙂 #x !y\t* ~ {1,2}"


def app(**changes: Any) -> AppDef:
    role = Role("w r/é", "img", entrypoint="printf", args=["%s|", ODD.replace("$", "$$")], env={"ODD": "x"})
    role.resource = Resource(1, 0, 100)
    return AppDef("n a\nme", [role], **changes)


def made(given: AppDef, folder: str = "/f o", **cfg: Any) -> str:
    return script_of(given, cfg, ScriptContext("name", folder, "s", "torchx:t:/f", {}))


def run_task(script: str, tmp_path: Path, replica: int = 0, path: str = os.environ["PATH"]) -> Path:
    """Runs what a replica runs, as srun would have it started; returns the folder of its attempt."""
    keep = "\n".join(heredoc("keep", ATTEMPT_LOOP))
    write = f"{keep}\n{without_roles(script)[1]}"
    subprocess.run(["bash", "-c", write], env={**os.environ, "folder": str(tmp_path)}, check=True)
    (tmp_path / "keeper.py").write_text(agent_text())
    env = {"TORCHX_FOLDER": str(tmp_path), "TORCHX_APP_ID": "77", "TORCHX_SLURM_ATTEMPT": "1"}
    env |= {"SLURM_PROCID": str(replica), "TORCHX_RETRIES": "0", "PATH": path}
    subprocess.run([SH, tmp_path / "role-0.sh", "role"], env=env, check=False, timeout=30)
    (found,) = tmp_path.glob("*/*/attempt-1")
    return found


def test_it_is_a_shell_script_and_the_same_each_time() -> None:
    script = made(app())
    assert script == made(app())
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert "set -- ODD=x \\\n  -- \\\n  printf" in script


def test_all_letters_arrive(tmp_path: Path) -> None:
    given = app()
    given.roles[0].args += [f"{macros.app_id}/{macros.replica_id}", "", "$${X}", f"$${{{macros.rank0_env}}}"]
    given.roles[0].env = {"ODD": ODD.replace("$", "$$"), "ID": f"a {macros.replica_id}"}
    folder = run_task(made(given), tmp_path, replica=3)
    expected = "|".join([ODD, "77/3", "", "${X}", "${TORCHX_RANK0_HOST}"]) + "|"
    assert (folder / "stdout.log").read_bytes().decode() == expected
    assert folder.parent.name == "3"


def test_variables_of_a_role_arrive_and_cannot_disturb_the_script(tmp_path: Path) -> None:
    names = ["folder", "replica_id", "attempt", "keep", "ODD"]
    role = Role("r", "", entrypoint="env", env={**dict.fromkeys(names, ODD.replace("$", "$$")), "IFS": "efo"})
    folder = run_task(made(AppDef("a", [role])), tmp_path)
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
    folder = run_task(made(AppDef("a", [role])), tmp_path, path=str(tmp_path / "bin"))
    assert (folder / "stdout.log").read_text() == wanted
    assert json.loads((folder / "end.json").read_text())["exit_code"] == 0
    assert (folder / "combined.log").exists() is python


@pytest.mark.parametrize("python", [True, False])
def test_the_signal_that_stopped_a_replica_is_recorded(tmp_path: Path, python: bool) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("mkdir", "date"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    role = Role("r", "", entrypoint=SH, args=["-c", "kill -TERM $$PPID"])
    path = os.environ["PATH"] if python else str(tmp_path / "bin")
    folder = run_task(made(AppDef("a", [role])), tmp_path, path=path)
    end = json.loads((folder / "end.json").read_text())
    assert (end["exit_code"], end["stop_signal"]) == (0, "SIGTERM")
    assert (folder / "combined.log").exists() is python


def test_a_program_is_looked_for_on_the_path_of_its_role(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine").symlink_to(shutil.which("true") or "true")
    role = Role("r", "", entrypoint="mine", env={"PATH": str(tmp_path / "own")})
    folder = run_task(made(AppDef("a", [role])), tmp_path)
    assert json.loads((folder / "end.json").read_text())["exit_code"] == 0


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30))
@settings(max_examples=40)
def test_words_are_one_word(text: str) -> None:
    out = subprocess.run(["sh", "-c", f"printf %s {quote(text)}"], capture_output=True, check=True).stdout
    assert out == text.encode()
    lines = heredoc("x", text)
    assert "" not in lines, "Slurm drops empty lines from the script of a job with several roles"
    assert not any("\r" in line for line in lines), "and refuses a script that has these"
    out = subprocess.run(
        ["bash", "-c", "\n".join([*lines, 'printf %s "$x"'])], capture_output=True, check=True
    ).stdout
    assert out == text.encode() + b"\n"


def test_an_argument_cannot_pass_for_the_program_that_looks_after_a_replica(tmp_path: Path) -> None:
    script = made(
        AppDef("a", [Role("r", "", entrypoint="echo", args=["\n: <<'KEEPER'\nKEEPER\n"])]), str(tmp_path)
    )
    (tmp_path / "job.sh").write_text(script)
    line = next(line for line in script.splitlines() if line.startswith("sed "))
    subprocess.run(
        ["bash", "-c", line, tmp_path / "job.sh"], env={**os.environ, "folder": str(tmp_path)}, check=True
    )
    assert (tmp_path / ".keeper").read_text() == agent_text() + "\n"


def test_lines_of_sbatch() -> None:
    assert directive("job-name", "a b") == '#SBATCH --job-name="a b"'
    assert directive("comment", 'x "y" \\ #z') == '#SBATCH --comment="x \\"y\\" \\\\ #z"'


def test_equal_replicas_are_one_step_and_roles_are_parts() -> None:
    one = made(AppDef("a", [Role("r", "", entrypoint="true", num_replicas=1000)]))
    assert one.count("    TORCHX_RETRIES=0 step") == 1
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
        (RetryPolicy.APPLICATION, {}, "scontrol requeue"),
        (RetryPolicy.APPLICATION, {"requeue": False}, "until run; do"),
        (RetryPolicy.ROLE, {}, "until TORCHX_RETRIES=0"),
        (RetryPolicy.REPLICA, {}, "TORCHX_RETRIES=3 step"),
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
    script = made(AppDef("a", [role]), containers=True)
    assert "--container-image='ghcr.io#a/b:1'" in script
    assert "--container-mounts=\"$folder:$folder\"',/da ta:/d:ro'" in script


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"args": ["a\0b"]}, "zero byte"),
        ({"env": {"a b": "c"}}, "invalid environment variable"),
        ({"args": ["x" * 200_000]}, "too long"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        made(AppDef("a", [Role("r", "", entrypoint="true", **changes)]))


def ports_of(wanted: dict[str, int], job_id: int) -> list[int]:
    """Runs the part of a script that looks for ports, on this machine."""
    lines = made(AppDef("a", [Role("r", "", entrypoint="true", port_map=wanted)])).splitlines()
    part = lines[next(at for at, line in enumerate(lines) if line.startswith("ports=")) :]
    del part[max(at for at, line in enumerate(part) if "export TORCHX_PORT_" in line) + 1 :]
    told = "; ".join(f"echo $TORCHX_PORT_{name}" for name in wanted)
    argv = ["bash", "-c", "\n".join([*part, told])]
    out = subprocess.run(argv, env={"SLURM_JOB_ID": str(job_id)}, capture_output=True, check=True, timeout=30)
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


def run_script(script: str, folder: Path, programs: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Runs a whole script, with a `srun` that starts one task on this machine."""
    programs.mkdir(exist_ok=True)
    srun = f'#!{SH}\nwhile [ "${{1#--}}" != "$1" ]; do shift; done\nSLURM_PROCID=0 exec "$@"\n'
    for name, text in {"srun": srun, "scontrol": f"#!{SH}\necho node1\n", "scancel": f"#!{SH}\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (programs / "job.sh").write_text(script)
    given = {"SLURM_JOB_ID": "77", "PATH": f"{programs}:{os.environ['PATH']}", "SLURMD_NODENAME": "n", **env}
    return subprocess.run(["bash", programs / "job.sh"], env=given, timeout=30, check=False, umask=0)


def test_all_that_a_script_makes_is_private_whatever_the_umask(tmp_path: Path) -> None:
    folder, shown = tmp_path / "above" / "jobs" / "a", tmp_path / "made-by-the-program"
    role = Role("r", "", entrypoint="sh", args=["-c", f"echo out; touch {shown}; exit 3"], env={"A": "b"})
    assert run_script(made(AppDef("a", [role]), str(folder)), folder, tmp_path / "bin").returncode == 3
    assert (folder / "r" / "0" / "attempt-1" / "end.json").is_file()
    assert open_files(tmp_path / "above") == []
    assert shown.stat().st_mode & 0o777 == 0o666, "the program has the umask of its owner"


def test_a_script_writes_to_no_folder_of_another_user_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    script = made(AppDef("a", [Role("r", "", entrypoint="true")]), str(tmp_path / "link"))
    assert run_script(script, tmp_path, tmp_path / "bin").returncode == 73
    if os.geteuid() == 0:
        (tmp_path / "theirs").mkdir()
        os.chown(tmp_path / "theirs", 65534, 65534)
        script = made(AppDef("a", [Role("r", "", entrypoint="true")]), str(tmp_path / "theirs"))
        assert run_script(script, tmp_path, tmp_path / "bin").returncode == 73
    assert [path for name in ("elsewhere", "theirs") for path in (tmp_path / name).glob("*")] == []


def test_a_role_that_has_left_no_end_is_no_success(tmp_path: Path) -> None:
    script = made(AppDef("a", [Role("r", "", entrypoint="true")]), str(tmp_path / "f"))
    assert run_script(script, tmp_path / "f", tmp_path / "bin").returncode == 0
    assert (tmp_path / "f" / "over").read_text().split()[::3] == ["77", "1"]
    silent = script.replace('    echo "$ended" > "$folder/.ended-$1"\n', "").replace("/f", "/g")
    assert silent != script
    assert run_script(silent, tmp_path / "g", tmp_path / "bin").returncode == 1


@pytest.mark.parametrize("name", ["over", "id", "cancelled", "job.json", ".hidden", "role-0.sh"])
def test_a_role_may_be_called_like_a_file_of_the_job(tmp_path: Path, name: str) -> None:
    script = made(AppDef("a", [Role(name, "", entrypoint="echo", args=["ran"])]), str(tmp_path / "f"))
    assert run_script(script, tmp_path / "f", tmp_path / "bin").returncode == 0
    assert (SlurmPaths(tmp_path / "f").replica(name, 0) / "attempt-1" / "stdout.log").read_text() == "ran\n"


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
        "END_OF_ROLES",
        "KEEPER",
        "",
    ]
    role = Role("r", "", entrypoint="sh", args=["-c", 'printf "%s\\0" "$$A" "$$@"', "sh", *args])
    role.env = {"A": "".join(args)}
    folder = run_task(made(_escaped(AppDef("a", [role]))), tmp_path)
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
    script = made(AppDef("a", [role])).replace("torchx_retries=$TORCHX_RETRIES", "torchx_retries=2")
    run_task(script, tmp_path)
    ends = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("r/0/*/end.json")}
    assert {name: end["exit_code"] for name, end in ends.items()} == {f"attempt-{n}": 3 for n in (1, 2, 3)}
