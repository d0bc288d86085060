"""A zoo of failures: small applications, each with the cause that `why` has to name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from support import wait_until

from torchx.runner.api import Runner
from torchx.runner.why.explain import Explanation, explain
from torchx.scheduling.logs import LogQuery
from torchx.specs.app import AppDef, RetryPolicy, Role
from torchx.specs.app_metadata import after, service
from torchx.specs.resources import Resource
from torchx.specs.status import AppState, is_terminal

LOCAL, DOCKER, SLURM, KUBERNETES = "local_cwd", "local_docker", "slurm", "kubernetes"
ENGINES = (LOCAL, DOCKER, SLURM, KUBERNETES)
SLEEPS = "sleep 600"
PYTHON = "exec python3 -c"
CHILD_FAILED = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "train.py FAILED",
    "Failures:",
    "  <NO_OTHER_FAILURES>",
    "Root Cause (first observed failure):",
    "[0]:",
    "  time      : 2026-11-20_10:00:00",
    "  host      : localhost",
    "  rank      : 1 (local_rank: 1)",
    "  exitcode  : 1 (pid: 42)",
    "  error_file: <N/A>",
)
ABORTED = (
    "Fatal Python error: Aborted",
    "",
    *("Thread 0x00007f0000000000 (most recent call first):", "  <no Python frame>") * 40,
    "Extension modules: numpy.core (total: 1)",
)
"""The lines of Python's fault handler at an abort, which follow its cause."""
WATCHDOG = (
    "[rank1]:[E1128 12:00:00.000000000 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=1) ran for 600000 milliseconds before timing out.",
    '[rank1]: terminate called after throwing an instance of "c10::DistBackendError" what(): [Rank 1]',
    "Exception raised from ncclCommWatchdog at ProcessGroupNCCL.cpp:1601 (most recent call first):",
    *("frame #1: c10d::ProcessGroupNCCL::watchdog() + 0x1 (0x7f in libtorch.so)",) * 20,
    *ABORTED,
)


@dataclass(frozen=True)
class Case:
    """An application that fails, and its cause.

    Attributes:
        name: a short name.
        cause: the class of its cause.
        roles: its roles; a text is the shell command of the role `r`.
        engines: the engines on which it can fail so.
        replica: the replica that fails first; None if no replica has failed.
        state: the state of the application.
        cfg: its run options.
        act: the name of a disturbance, which the test of an engine carries out while the application runs.
        says: a text that the evidence has.
    """

    name: str
    cause: str
    roles: str | tuple[Role, ...]
    engines: tuple[str, ...] = ENGINES
    replica: str | None = "r/0"
    state: AppState = AppState.FAILED
    cfg: Mapping[str, Any] = field(default_factory=dict)
    act: str = ""
    says: str = ""


def sh(script: str, name: str = "r", replicas: int = 1, **fields: Any) -> Role:
    """Returns a role that runs a shell command."""
    small = Resource(cpu=1, gpu=0, memMB=64)
    return Role(
        name, "", num_replicas=replicas, entrypoint="sh", args=["-c", script], **{"resource": small, **fields}
    )


def prints(lines: Iterable[str], end: str = "exit 1") -> str:
    """Returns a shell command that prints lines to stderr, and then ends."""
    return "".join(f"echo '{line}' >&2; " for line in lines) + end


def retried(script: str, **fields: Any) -> Role:
    """Returns a role with one retry of its replica."""
    return sh(script, max_retries=1, retry_policy=RetryPolicy.REPLICA, **fields)


NOT_KUBERNETES = (LOCAL, DOCKER, SLURM)
MACHINE = (LOCAL, DOCKER)
TWO_RUNS = {"no_retry_on": ["none"]}
SERVER = "echo up; "

CASES = (
    Case("exit code", "exit_code", "exit 7", says="exit code 7"),
    Case("exit code of a usage error", "exit_code", "exit 2"),
    *(
        Case(name, "signal", f"kill -{name[3:]} $$$$", says=name)
        for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGKILL", "SIGTERM", "SIGXCPU")
    ),
    Case("out of memory", "out_of_memory", f"{PYTHON} 'b\"1\" * (1 << 30)'", (DOCKER,)),
    Case("memory error", "allocation_failed", f"ulimit -v 500000; {PYTHON} 'b\"1\" * (1 << 40)'"),
    Case("missing program", "missing_program", "nope --lr 1", says="not found"),
    Case("no right to execute", "missing_program", "exec /etc/passwd", says="ermission denied"),
    Case(
        "bad interpreter",
        "missing_program",
        "cd $$(mktemp -d); printf '#!/nope\\n' > x; chmod +x x; exec ./x",
    ),
    Case("missing module", "import_error", f"{PYTHON} 'import nope'", says="ModuleNotFoundError"),
    Case("missing name", "import_error", f"{PYTHON} 'from os import nope'", says="ImportError"),
    Case("syntax error", "syntax_error", f"{PYTHON} 'if'"),
    Case(
        "usage error",
        "usage_error",
        f'{PYTHON} \'import argparse; p = argparse.ArgumentParser(); p.add_argument("--lr", required=True);'
        " p.parse_args()'",
    ),
    Case("exception", "exception", f"{PYTHON} '[][1]'", says="IndexError"),
    Case("assertion", "assertion", f"{PYTHON} 'assert not 1'"),
    Case("disk full", "disk_full", f'{PYTHON} \'open("/dev/full", "w", 1).write("x\\n")\''),
    Case("disk full of a shell", "disk_full", "cat /etc/passwd > /dev/full || exit 3"),
    Case("no right to read", "permission_denied", prints(["PermissionError: [Errno 13] Permission denied"])),
    Case("read-only folder", "permission_denied", f'{PYTHON} \'open("/sys/x", "w")\''),
    Case(
        "port in use",
        "port_in_use",
        f"{PYTHON} 'import socket as s; a = s.create_server((\"\", 0)); s.create_server(a.getsockname())'",
    ),
    Case("CUDA memory", "cuda_out_of_memory", prints(["torch.OutOfMemoryError: CUDA out of memory."])),
    Case("missing GPU", "cuda_error", prints(["RuntimeError: No CUDA GPUs are available"])),
    Case("missing driver", "cuda_error", prints(["RuntimeError: Found no NVIDIA driver on your system."])),
    Case(
        "NCCL timeout",
        "nccl_timeout",
        prints(["[rank1]: Watchdog caught collective operation timeout: WorkNCCL(3)"], "kill -ABRT $$$$"),
    ),
    Case("NCCL error", "nccl_error", prints(["torch.distributed.DistBackendError: NCCL error in: x.cpp:1"])),
    Case("NCCL timeout, aborted", "nccl_timeout", prints(WATCHDOG, "kill -ABRT $$$$"), says="Watchdog"),
    Case("NCCL timeout of a rank", "nccl_timeout", prints([*WATCHDOG, *CHILD_FAILED]), says="Watchdog"),
    Case(
        "exception, then abort",
        "exception",
        f"{PYTHON} 'import os, sys; sys.excepthook(ValueError, ValueError(3), None); os.abort()'",
        says="ValueError: 3",
    ),
    Case(
        "exception of C++",
        "exception",
        prints(["terminate called after throwing", "  what():  vector", *ABORTED], "kill -ABRT $$$$"),
        says="what():  vector",
    ),
    Case(
        "NCCL timeout, retried",
        "exit_code",
        (retried(f"[ $$TORCHX_ATTEMPT = 2 ] && exit 7; {prints([*WATCHDOG, *CHILD_FAILED])}"),),
        NOT_KUBERNETES,
        cfg={"retry_on": ["nccl-timeout"]},
        says="exit code 7",
    ),
    Case(
        "failure of a rank",
        "import_error",
        prints(["[rank1]: ModuleNotFoundError: No module named x", *CHILD_FAILED]),
    ),
    Case(
        "stalled, ended",
        "stalled",
        "echo up; sleep 600",
        MACHINE,
        cfg={"stall": "0.5s", "on_stall": "restart"},
        says="stalled for",
    ),
    Case(
        "stalled, ends with 0",
        "stalled",
        "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done",
        MACHINE,
        cfg={"stall": "0.5s", "on_stall": "restart"},
    ),
    Case(
        "stalled, cancelled",
        "stalled",
        SLEEPS,
        MACHINE,
        None,
        AppState.CANCELLED,
        {"stall": "0.5s", "on_stall": "cancel"},
        says="cancelled, as it was stalled",
    ),
    Case(
        "stalled, running",
        "stalled",
        "echo up; sleep 600",
        MACHINE,
        None,
        AppState.RUNNING,
        {"stall": "0.5s"},
        says="stalled for",
    ),
    Case("time limit", "time_limit", SLEEPS, (LOCAL, DOCKER), None, cfg={"time_limit": "2s"}),
    Case("time limit of pods", "time_limit", SLEEPS, (KUBERNETES,), cfg={"time_limit": "2s"}),
    Case(
        "ends at the notice",
        "succeeded",
        "trap 'exit 0' USR1; echo up; while :; do sleep 0.05; done",
        MACHINE,
        None,
        AppState.SUCCEEDED,
        {"time_limit": "60s", "notice": "58s:USR1"},
    ),
    Case(
        "fails at the notice",
        "time_limit",
        "trap 'exit 9' USR1; echo up; while :; do sleep 0.05; done",
        MACHINE,
        cfg={"time_limit": "60s", "notice": "58s:USR1"},
    ),
    Case(
        "service that is not ready",
        "not_ready",
        (service(sh(SLEEPS, "s"), "log:never", within="2s"), after(sh("true"), ["s"])),
        replica="s/0",
        says="not ready within",
    ),
    Case(
        "service that ended",
        "service_ended",
        (service(sh("echo is-up; sleep 1", "s"), "log:is-up"), sh(SLEEPS)),
        replica="s/0",
    ),
    Case(
        "service that failed",
        "import_error",
        (service(sh(f"{PYTHON} 'import nope'", "s"), "log:is-up"), sh(SLEEPS)),
        replica="s/0",
    ),
    Case(
        "dependency that failed",
        "exit_code",
        (sh("exit 5", "data"), after(sh("true"), ["data"])),
        replica="data/0",
        says="exit code 5",
    ),
    Case("preflight", "preflight", "true", cfg={"preflight": ["cmd:false"]}),
    Case("setup", "exit_code", "true", (SLURM,), cfg={"setup": "exit 4"}),
    Case(
        "retries with two causes",
        "exit_code",
        (retried(f"[ $$TORCHX_ATTEMPT = 2 ] && exit 7; {PYTHON} 'import nope'"),),
        NOT_KUBERNETES,
        cfg=TWO_RUNS,
        says="exit code 7",
    ),
    Case(
        "not retried",
        "import_error",
        (retried(f"{PYTHON} 'import nope'"),),
        NOT_KUBERNETES,
    ),
    Case(
        "first of many",
        "exit_code",
        (
            sh(
                "trap 'exit 143' TERM; [ {replica} = 2 ] && exit 5; while :; do sleep 0.05; done".replace(
                    "{replica}", "${replica_id}"
                ),
                replicas=3,
            ),
        ),
        replica="r/2",
        says="exit code 5",
    ),
    Case("cancelled", "cancelled", SLEEPS, replica=None, state=AppState.CANCELLED, act="cancel"),
    Case(
        "cancelled while it waits",
        "cancelled",
        "true",
        (SLURM,),
        None,
        AppState.CANCELLED,
        {"begin": "now+1hour"},
        "cancel",
    ),
    Case("lost supervisor", "supervisor_lost", SLEEPS, (LOCAL,), act="kill the supervisor"),
    Case("container removed", "removed", (sh(SLEEPS, replicas=2),), (DOCKER,), act="remove the container"),
    Case("container killed", "signal", SLEEPS, (DOCKER,), act="kill the container", says="SIGKILL"),
    # without a command that watched, its container may have failed before
    Case("pod deleted", "unknown", SLEEPS, (KUBERNETES,), None, act="delete the pod"),
    Case(
        "cancelled by Slurm's command", "cancelled", SLEEPS, (SLURM,), None, AppState.CANCELLED, act="scancel"
    ),
    Case(
        "killed step",
        "supervisor_lost",
        (sh(SERVER + SLEEPS, replicas=2),),
        (SLURM,),
        None,
        act="kill the step",
        says="the step of r was killed by SIGKILL",
    ),
    Case(
        "ended step",
        "supervisor_lost",
        (sh(SERVER + SLEEPS, replicas=2),),
        (SLURM,),
        None,
        act="end the step",
        says="the step of r was killed by SIGTERM",
    ),
    Case(
        "killed batch script",
        "supervisor_lost",
        (sh(SERVER + SLEEPS, replicas=2),),
        (SLURM,),
        None,
        act="kill the batch script",
        says="its batch script was killed",
    ),
    Case(
        "failed job before it",
        "dependency_failed",
        "true",
        (SLURM,),
        None,
        AppState.PENDING,
        {"hold": True},
        act="depend on a failure",
    ),
)
"""All failures."""

Act = Callable[[Runner, str], None]


def cases_of(engine: str) -> list[Case]:
    """Returns the failures of an engine."""
    return [case for case in CASES if engine in case.engines]


def app_of(case: Case, image: str) -> AppDef:
    """Returns the application of a failure, with an image for its roles."""
    roles = [sh(case.roles)] if isinstance(case.roles, str) else list(case.roles)
    copies = [Role(**{**vars(role), "image": image}) for role in roles]
    return AppDef(case.name.replace(" ", "-").replace(",", ""), copies)


def run_all(runner: Runner, engine: str, acts: Mapping[str, Act], image: str = "", **cfg: Any) -> str:
    """Runs all failures of an engine side by side, and deletes them; returns a line for each wrong cause.

    Args:
        runner: runs them.
        engine: the name of the scheduler.
        acts: the disturbances.
        image: the image of all roles.
        cfg: further run options.
    """
    cases, handles = cases_of(engine), dict[str, str]()
    try:
        for case in cases:
            handles[case.name] = runner.run(app_of(case, image), engine, {**cfg, **case.cfg})
        for case in cases:
            if case.act:
                acts[case.act](runner, handles[case.name])
        return "\n".join(filter(None, (_wrong(runner, case, handles[case.name]) for case in cases)))
    finally:
        for handle in handles.values():
            runner.cancel(handle)
            runner.wait(handle, timeout=200)
            runner.delete(handle)


def until_running(runner: Runner, handle: str) -> None:
    """Waits until an application runs."""

    def runs() -> bool:
        status = runner.status(handle)
        return status is not None and status.state is AppState.RUNNING

    wait_until(runs, f"{handle} runs")


def until_up(runner: Runner, handle: str, replicas: int) -> None:
    """Waits until the programs of an application have printed that they are up."""

    def lines() -> int:
        return sum(chunk.data.count(b"up\n") for chunk in runner.log_chunks(handle, LogQuery()))

    wait_until(lambda: lines() == replicas, f"{replicas} replicas of {handle} are up")


def cancel(runner: Runner, handle: str) -> None:
    """Cancels an application when it is known to its engine."""
    runner.cancel(handle)


def _wrong(runner: Runner, case: Case, handle: str) -> str:
    def explained() -> Explanation:
        described = runner.description(handle)
        assert described is not None, case.name
        return explain(runner, handle, described, case.name)

    if is_terminal(case.state):
        runner.wait(handle, timeout=200)
    else:
        wait_until(lambda: explained().cause.name == case.cause, f"{case.name} is {case.cause}")
    made = explained()
    first = made.status.first_failure
    replica = None if first is None else f"{first.role}/{first.replica}"
    found = (made.cause.name, replica, made.status.state)
    if found == (case.cause, case.replica, case.state) and case.says in made.cause.evidence:
        return ""
    return f"{case.name}: {found}: {made.cause.evidence}"
