"""Runs a program beside a replica of this machine: with its environment, working directory and GPUs.

It also runs on the nodes of clusters, with any Python 3, where torchx is not installed.
"""

import json
import os
import shutil
import signal
import sys
from typing import Any

REQUEST = "TORCHX_EXEC_REQUEST"
"""The variable with the request: arguments are visible to other users and in the accounting."""
FAILED = 77
"""The exit code for a program that was not started."""
IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTERM)
END = signal.SIGUSR2
"""The signal that ends the program. ``srun`` forwards it; after TERM it would kill the task itself, and from
Slurm 25.11 on with it a job of several roles."""
WATCHED = (signal.SIGCHLD, signal.SIGHUP, END)
FROM_KERNEL = 128
"""The code of a signal that no process has sent (sigaction(2), SI_KERNEL)."""


def environment_of(pid: int) -> Any:
    """Returns the initial environment of a process of this user; empty if it has ended."""
    try:
        if os.stat("/proc/" + str(pid)).st_uid != os.geteuid():
            return {}
        with open("/proc/" + str(pid) + "/environ", "rb") as file:
            entries = [entry.partition(b"=") for entry in file.read().split(b"\0")]
    except OSError:
        return {}
    return {name: value for name, equals, value in entries if equals and name}


def is_of(env: Any, job: str, replica: str) -> bool:
    """Returns True if an environment belongs to the program of a replica.

    Args:
        env: the environment.
        job: the handle of the application.
        replica: the replica, as ``role/id``.
    """
    marks = {b"TORCHX_JOB_ID": job, b"TORCHX_REPLICA": replica}
    return b"TORCHX_ATTEMPT" in env and all(
        env.get(name) == os.fsencode(value) for name, value in marks.items()
    )


def start_of(pid: int) -> int:
    """Returns the start time of a process in clock ticks since boot, -1 if it has ended."""
    try:
        with open("/proc/" + str(pid) + "/stat", "rb") as file:
            stat = file.read()
        fields = stat[stat.rindex(b")") + 2 :].split()
        if fields[0] in (b"Z", b"X"):
            return -1
        return int(fields[19])
    except (OSError, ValueError, IndexError):
        return -1


def find(job: str, replica: str) -> Any:
    """Returns the pid of the first process of the current attempt of a replica and its environment, or None.

    Args:
        job: the handle of the application.
        replica: the replica, as ``role/id``.
    """
    best = None  # type: Any
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        env, start = environment_of(int(name)), start_of(int(name))
        if start < 0 or not is_of(env, job, replica):
            continue
        attempt = env[b"TORCHX_ATTEMPT"]
        order = (-int(attempt) if attempt.isdigit() else 0, start)
        if best is None or order < best[0]:
            best = (order, int(name), env)
    if best is None:
        return None
    return best[1:]


def program_of(command: Any, env: Any) -> str:
    """Returns the file of a program, looked up on the PATH of an environment.

    Raises:
        OSError: it does not exist or is not a program.
    """
    path = os.fsdecode(env.get(b"PATH", os.fsencode(os.defpath)))
    found = shutil.which(str(command[0]), path=path)
    if found is None:
        raise OSError("no program `" + command[0] + "` on the PATH of the replica")
    return found


def in_namespaces(pid: int, command: Any) -> Any:
    """Returns a command that enters the namespaces of a process, if it has others than this one."""
    options = []
    for kind, option in (("user", "--user"), ("mnt", "--mount")):
        try:
            if os.readlink("/proc/self/ns/" + kind) != os.readlink("/proc/" + str(pid) + "/ns/" + kind):
                options.append(option)
        except OSError:
            pass
    if "--mount" not in options:
        return command
    preserve = []
    if "--user" in options:
        preserve = ["--preserve-credentials"]
    return (
        ["nsenter", "--target", str(pid)]
        + options
        + preserve
        + ["--wd=/proc/" + str(pid) + "/cwd", "--"]
        + command
    )


def main() -> None:
    """Runs the requested program and exits with its exit code.

    A mark is written before it; earlier output is an error message.
    """
    request = json.loads(os.environ.pop(REQUEST))
    found = find(request["job"], request["replica"])
    if found is None:
        sys.stderr.write("torchx: " + request["replica"] + " is not running on this node\n")
        raise SystemExit(FAILED)
    pid, env = found
    command = in_namespaces(pid, request["command"])
    try:
        os.chdir("/proc/" + str(pid) + "/cwd")
        if command is request["command"]:
            program = program_of(command, env)
        else:
            program = program_of(command, {os.fsencode(k): os.fsencode(v) for k, v in os.environ.items()})
    except OSError as error:
        sys.stderr.write("torchx: " + (error.strerror or str(error)) + "\n")
        raise SystemExit(FAILED) from None
    (sys.stdout if request["terminal"] else sys.stderr).write(request["mark"] + "\n")
    sys.stdout.flush()
    sys.stderr.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED + IGNORED)
    child = os.fork()
    if child:
        raise SystemExit(wait(child))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED + IGNORED)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and programs would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, command, env)  # noqa: S606
    except OSError as error:
        sys.stderr.write("torchx: " + command[0] + ": " + str(error.strerror) + "\n")
        sys.stderr.flush()
        os._exit(126)


def wait(child: int) -> int:
    """Returns the exit code of the program, 128 + N if signal N ended it.

    Slurm drops the last output of a task that a signal has ended, so this process ends with an exit code.

    The signals of Slurm are for all processes of a step, those of the keys of a terminal for its group: the
    program gets them, so this process has them blocked and forwards none. Only the end of a terminal is a
    signal to this process alone, by the kernel: it is the first of its session.
    """
    while True:
        received = signal.sigwaitinfo(WATCHED)
        if received.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                if os.WIFSIGNALED(status):
                    return 128 + os.WTERMSIG(status)
                return os.WEXITSTATUS(status)
        elif received.si_signo == END:
            os.kill(child, signal.SIGKILL)
        elif received.si_code == FROM_KERNEL:
            os.kill(child, signal.SIGHUP)  # not reaped yet: its pid is not that of another process


if __name__ == "__main__":
    main()
