"""A run through the command line of an installed torchx that needs its run-time dependencies and no others.

`PYTHON tests/smoke/smoke.py` runs it with the torchx of that Python: `.ci/smoke` on the lowest and on the
newest versions of the dependencies, where the tools of the test suite are not installed. With the package
`kubernetes` it includes a small cluster of its own.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

REQUIREMENTS = ("typer", "click", "rich", "pyyaml", "docker", "fsspec", "docstring-parser", "kubernetes")
COMPONENT = '''"""A component of the smoke test."""
import torchx.specs as specs


def greet(name: str, times: int = 2, loud: bool = False) -> specs.AppDef:
    """Greets somebody.

    Args:
        name: the name of the person
        times: how often
        loud: whether to shout
    """
    text = f"hello {name}" + "!" * loud
    return specs.AppDef("greet", [specs.Role("greet", "", entrypoint="echo", args=[text] * times)])
'''
CONFIG = "[component:greet.py:greet]\ntimes = 3\n[local_docker]\nimage_repo = registry.example.com/team\n"


class Failed(Exception):
    """A command did not do what it has to do."""


class Case(NamedTuple):
    """A command line and its expected result.

    Attributes:
        args: the arguments after `torchx`.
        prints: patterns that its stdout has to match, each somewhere.
        code: its exit code.
        errors: patterns that its stderr has to match; without one it has to be empty.
    """

    args: str
    prints: tuple[str, ...] = ()
    code: int = 0
    errors: tuple[str, ...] = ()


USAGE = (r"\AUsage: torchx run \[OPTIONS\]", r"--dryrun", r"-h, --help +Show this message and exit\.\n")
FIRST = (
    Case("--version", (r"\Atorchx-\d\S+\n\Z",)),
    Case(
        "run -s local_cwd utils.echo --msg hi", (r"\Alocal_cwd://torchx/echo-\w+\n",), 0, (r"echo/0 \S hi\n",)
    ),
)
CASES = (
    Case("--version", (r"\Atorchx-\d\S+\n\Z",)),
    Case(
        "--help",
        (r"\AUsage: torchx \[OPTIONS\] COMMAND \[ARGS\]\.\.\.\n", r"\n  run +Run an", r"--log_level LEVEL"),
    ),
    Case("", (r"\AUsage: torchx \[OPTIONS\] COMMAND",)),
    Case("run --help", USAGE),
    Case("run -h", USAGE),
    Case("run utils.echo --help", (r"--msg TEXT +\S+",)),
    Case(
        "run greet.py:greet --help",
        (r"--name TEXT +the name of the person", r"how often .default 3, from .torchxconfig line 2"),
    ),
    Case("run --dryrun -s local_cwd greet.py:greet --name you", (r"- hello you\n( *- hello you\n){2}",)),
    Case("run --dryrun -s local_docker utils.echo --msg hi", (r"=== SCHEDULER REQUEST ===\napp_id: echo-",)),
    Case("run --dryrun -s slurm -cfg partition=gpu utils.echo", (r"#SBATCH --partition=gpu",)),
    Case("run --dryrun -s kubernetes utils.echo --msg hi", (r"kind: Job",)),
    Case("run --dryrun -o json -s local_cwd utils.echo", (r"\A\{",)),
    Case("exec --help", (r"COMMAND \[ARGS\]\.\.\.",)),
    Case("status @last", (r"SUCCEEDED",)),
    Case("status @last -o yaml", (r"state: SUCCEEDED",)),
    Case("log @last", (r"\Aecho/0 \S hi\n\Z",)),
    Case(
        "list", (r"\AAPP +NAME +SCHEDULER", r"echo-\w+ +echo +local_cwd +SUCCEEDED"), 0, (r"\Anot reached",)
    ),
    Case("list -s local_cwd --state succeeded -n 1 -o json", (r"SUCCEEDED",)),
    Case("wait @last", (r"SUCCEEDED|",), 0, (r"",)),
    Case("cancel @last", (), 0, (r"has already ended",)),
    Case("describe @last -o json", (r'"state": "SUCCEEDED"',)),
    Case("why @last", (r"SUCCEEDED",)),
    Case("why @last -o json", (r'"state": "SUCCEEDED"',)),
    Case("diff @last @last", (r"equal",)),
    Case("describe @last --source", (r"python",)),
    Case("rerun --set msg=ho --dryrun @last", (r"- ho\n",)),
    Case("status local_cwd://torchx/nosuch -o json", (r'"code": "unknown_application"',), 1),
    Case("schema why", (r'"title": "torchx why -o json"',)),
    Case("mcp", (), 1, (r"\Aerror: .*\n  pip install 'mcp>=2'",)),
    Case("runopts local_docker", (r"image_repo",)),
    Case("builtins", (r"utils\.echo +built-in +Prints a message",)),
    Case("lint greet.py", (r"",), 0, (r"",)),
    Case("config show", (r"image_repo",)),
    Case("completion bash", (r"complete .*torchx",)),
    Case("__complete bash torchx~stat", (r"\Astatus\n\Z",)),
    Case("tracker --help", (r"lineage",)),
    Case("plugins", (r"",), 0, (r"",)),
    Case("run --nonsense", (), 2, (r"\Aerror: unknown flag `--nonsense`",)),
    Case("stauts", (), 2, (r"\Aerror: unknown command `stauts`\n.*status",)),
    Case("status", (), 2, (r"\Aerror: missing argument",)),
    Case("config shwo", (), 2, (r"\Aerror: unknown command `shwo` of torchx config",)),
    Case("--debug status nonsense-1", (), 69, (r"\ATraceback", r"\nerror: ")),
    Case("status nonsense-1", (), 69, (r"\Aerror: local_docker did not answer",)),
    Case("run --dryrun -s local_cwd greet.py:greet", (), 2, (r"--name",)),
)


class Done(NamedTuple):
    """The result of a command."""

    returncode: int
    stdout: str
    stderr: str


def split(line: str) -> list[str]:
    """Returns the arguments of a command line, in which `~` stands for a space within an argument.

    >>> split("run utils.sh echo~one")
    ['run', 'utils.sh', 'echo one']
    """
    return [arg.replace("~", " ") for arg in line.split()]


def run(line: str, folder: Path, env: dict[str, str]) -> Done:
    """Runs a command line of torchx in a folder, as a user does."""
    program = Path(sys.executable).with_name("torchx")
    start = [str(program)] if program.exists() else [sys.executable, "-m", "torchx_cli"]
    done = subprocess.run(
        [*start, *split(line)],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def fork(line: str, folder: Path, env: dict[str, str]) -> Done:
    """Runs a command line in a child process that has most modules loaded already, which saves time."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            code = 70
            try:
                os.chdir(folder)
                os.environ.clear()
                os.environ.update(env)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                sys.path[0] = ""
                from torchx_cli.__main__ import leave
                from torchx_cli.main import main as torchx

                leave(torchx(split(line)))
            except BaseException:  # the copy of this program must not go on
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return Done(os.waitstatus_to_exitcode(status), out.read().decode(), err.read().decode())


def check(case: Case, done: Done) -> None:
    """Compares the result of a case with the expected one.

    Raises:
        Failed: it ended or printed otherwise than expected.
    """
    wrong = [f"exit code {done.returncode}, expected {case.code}"] if done.returncode != case.code else []
    wrong += [f"stdout lacks {p!r}" for p in case.prints if not re.search(p, done.stdout)]
    wrong += [f"stderr lacks {p!r}" for p in case.errors if not re.search(p, done.stderr)]
    if done.stderr and not case.errors:
        wrong.append("stderr is not empty")
    if "bug in torchx" in done.stderr or ("Traceback" in done.stderr and "--debug" not in case.args):
        wrong.append("it broke")
    if wrong:
        raise Failed(f"torchx {case.args}: {'; '.join(wrong)}\n{done.stdout[-500:]}{done.stderr[-500:]}")


def functions() -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Yields the uses of dependencies that no short command reaches, by name."""
    yield "fsspec", use_fsspec
    yield "docker", use_docker


def use_fsspec(folder: Path) -> None:
    """Reads an overlay from an address, and copies a workspace from one."""
    import fsspec

    from torchx.specs.overlays import load_overlay_file
    from torchx.tracker.backend.fsspec import create

    with fsspec.open("memory://smoke/overlay.yaml", "w") as file:
        file.write("spec: {priority: !!python/tuple [1, 2]}\n")
    assert load_overlay_file("memory://smoke/overlay.yaml") == {"spec": {"priority": (1, 2)}}
    settings = folder / "tracker.txt"
    settings.write_text("protocol=memory\nroot_path=/smoke/runs\n")
    for tracker in (create(str(folder / "tracked")), create(str(settings))):
        tracker.add_metadata("run-1", loss=0.5)
        tracker.add_artifact("run-1", "model", "memory://smoke/model", {"epoch": 1})
        tracker.add_source("run-1", "run-0")
        assert dict(tracker.metadata("run-1")) == {"loss": 0.5}
        assert [source.source_run_id for source in tracker.sources("run-1")] == ["run-0"]
        assert list(tracker.run_ids()) == ["run-1"]


def use_docker(folder: Path) -> None:
    """Reads the credentials for a registry."""
    from torchx.schedulers.docker.images.pull import credentials_for

    settings = {"auths": {"registry.example.com": {"auth": "dXNlcjpwYXNzd29yZA=="}}}
    (folder / "config.json").write_text(json.dumps(settings))
    os.environ["DOCKER_CONFIG"] = str(folder)
    assert credentials_for("registry.example.com/team/image")
    assert credentials_for("elsewhere.example.com/image") is None


@contextmanager
def cluster(folder: Path, env: dict[str, str]) -> Iterator[None]:
    """Runs a small cluster; leads the commands to it."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from fakecluster import FakeCluster  # lies beside this folder

    with FakeCluster() as running:
        env["KUBECONFIG"] = str(running.kubeconfig(folder / "kubeconfig"))
        yield


ON_KUBERNETES = (
    Case(
        "run -s kubernetes --wait utils.sh --image registry.example.com/shell echo~one",
        (r"kubernetes://",),
        0,
        (r"",),
    ),
    Case("log @last", (r"one",)),
)


def environment(folder: Path) -> dict[str, str]:
    """Returns the environment of the commands: no trace of the caller's home, engines or settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHX", "KUBE", "LOGLEVEL"))}
    home = str(folder / "home")
    return {
        **kept,
        "HOME": home,
        "TORCHX_HOME": f"{home}/.torchx",
        "KUBECONFIG": f"{home}/none",
        "DOCKER_HOST": f"unix://{home}/no-engine.sock",
        "SLURM_CONF": f"{home}/no-slurm.conf",
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
    }


def versions() -> str:
    """Returns the versions of Python and of the dependencies on a line."""
    found = [f"Python {sys.version.split()[0]}"]
    for name in REQUIREMENTS:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def has_kubernetes() -> bool:
    """Returns True if the extra `kubernetes` is installed."""
    try:
        importlib.metadata.version("kubernetes")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def smoke(folder: Path) -> list[str]:
    """Runs all; returns what failed."""
    env = environment(folder)
    (folder / "home").mkdir()
    (folder / "greet.py").write_text(COMPONENT)
    (folder / ".torchxconfig").write_text(CONFIG)
    failures: list[str] = []

    def attempt(case: Case, how: Callable[[str, Path, dict[str, str]], Done]) -> None:
        try:
            check(case, how(case.args, folder, env))
        except (Failed, subprocess.TimeoutExpired) as error:
            failures.append(str(error))

    for case in FIRST:
        attempt(case, run)
    importlib.import_module("torchx_cli.main")  # what most commands load, once for all
    importlib.import_module("typer")
    for name in ("torchx_cli.app", "yaml", "torchx.runner"):
        importlib.import_module(name)
    for case in CASES:
        attempt(case, fork)
    with cluster(folder, env) if has_kubernetes() else nullcontext():
        for case in ON_KUBERNETES if has_kubernetes() else ():
            attempt(case, run)
    for name, use in functions():
        try:
            use(folder)
        except Exception as error:  # whatever it is, it is to be reported, and the next one is to run
            failures.append(f"{name}: {type(error).__name__}: {error}")
    return failures


def main() -> int:
    """Runs all in a scratch folder; returns 1 when something failed."""
    sys.stdout.write(f"{versions()}\n")
    sys.stdout.flush()  # else each forked command would write it again
    scratch = tempfile.mkdtemp()  # no TemporaryDirectory: a forked command would remove it at its exit
    try:
        failures = smoke(Path(scratch).resolve())
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sys.stdout.write("".join(f"failed: {each}\n" for each in failures) or f"{len(CASES)} commands work\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
