"""The program that checks the place of a replica, and then becomes the program of the replica.

It runs with the Python of the replica, wherever that is, so it imports the standard library only (and PyTorch
for a collective operation), and works with Python 3.8. A failed check ends it with exit code 94, and a line
with the host and the finding. Its source follows those of handover.py and preflight_gpus.py: see preflight.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from torchx.json_limits import Object
from torchx.scheduling.handover import become, fail, note, own_environment
from torchx.scheduling.preflight_gpus import GB, CheckFailedError, check_gpus

FAILED = 94
"""The exit code of a failed check."""
MARK = "torchx preflight failed on "
"""The beginning of the line about failed checks."""


def main(arguments: list[str]) -> None:
    """Runs checks, then becomes the program of the replica.

    Args:
        arguments: the request as JSON, `--`, and the program with its arguments; or `collective`, and its
            request.
    """
    if arguments[0] == "collective":
        collective(json.loads(arguments[1]))
    request, command = json.loads(arguments[0]), arguments[2:]
    # a process with pid 1 in a container would ignore TERM
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    findings: list[str] = []
    for check in sorted(request["checks"], key=lambda check: bool(check["kind"] == "collective")):
        if findings and check["kind"] == "collective":
            break  # this replica has failed already: the engine ends the others
        try:
            CHECKS[check["kind"]](request, check)
        except CheckFailedError as failure:
            findings.append(f"{check['kind']}: {failure}")
    if findings:
        fail(f"{MARK}{socket.gethostname()}: {'; '.join(findings)}", FAILED)
    become(command, own_environment())


def check_disk(_: Object, check: Object) -> None:
    """Checks the free space of the folders that a program usually writes to.

    Raises:
        CheckFailedError: one of them has too little, or cannot be read.
    """
    error_file = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    folders = {
        "the working folder": os.getcwd(),  # noqa: PTH109 - removed, perhaps
        "TMPDIR": tempfile.gettempdir(),
        "the checkpoint folder": os.environ.get("TORCHX_CHECKPOINT_DIR", ""),
        "the log folder": str(Path(error_file).parent) if error_file else "",
    }
    problems: list[str] = []
    devices = set()
    for what, folder in folders.items():
        if not folder or (what == "the log folder" and not Path(folder).is_dir()):
            continue
        try:
            space, device = os.statvfs(folder), os.stat(folder).st_dev  # noqa: PTH116
        except OSError as error:
            problems.append(f"{what} {folder}: {error.strerror}")
            continue
        if device in devices:
            continue
        devices.add(device)
        free = space.f_bavail * space.f_frsize
        if free < check["least"]:
            needed = f"{check['least'] / GB:.2f} GB are needed"
            problems.append(f"{what} {folder} has {free / GB:.2f} GB free, {needed}")
        elif space.f_files and not space.f_favail:
            problems.append(f"{what} {folder} has no free inodes")
    if problems:
        raise CheckFailedError("; ".join(problems))


def check_command(_: Object, check: Object) -> None:
    """Runs a command, whose output is part of the log.

    Raises:
        CheckFailedError: it fails, or does not end in time.
    """
    command, limit = check["command"], check["limit"]
    try:
        code = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=limit, check=False).returncode
    except subprocess.TimeoutExpired:
        raise CheckFailedError(f"`{command[0]}` did not end within {limit:g} s") from None
    except OSError as error:
        raise CheckFailedError(f"`{command[0]}` cannot be started: {error.strerror}") from None
    if code:
        if code > 0:
            how = f"exit code {code}"
        else:
            how = f"signal {-code}"
        raise CheckFailedError(f"`{command[0]}` ended with {how}")


def check_collective(request: Object, check: Object) -> None:
    """Runs an all_reduce over all replicas of the role, with a process for each GPU.

    Raises:
        CheckFailedError: it fails, or not all replicas take part in time.
    """
    if os.environ.get("TORCHX_ATTEMPT", "1") != "1" and not request["together"]:
        return  # only this replica restarts: the others would not take part
    code = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('torch'))"
    if subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, check=False).returncode:
        note(f"torchx preflight: no collective operation, as {sys.executable} has no torch")
        return
    replica = int(os.environ["TORCHX_REPLICA"].rpartition("/")[2])
    gpus, limit = max(0, request["gpus"]), check["limit"]
    each = max(1, gpus)
    share = {"world": request["replicas"] * each, "gpus": gpus, "limit": limit, "store": store_of(request)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", own_code(), "collective", text],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        for local in range(each)
        for text in [json.dumps({**share, "rank": replica * each + local, "local": local})]
    ]
    end = time.monotonic() + limit + 60
    problems = []
    for process in processes:
        try:
            output = process.communicate(timeout=max(end - time.monotonic(), 0.1))[0]
        except subprocess.TimeoutExpired:
            process.kill()
            output = process.communicate()[0] or f"no answer within {limit:g} s".encode()
        if process.returncode:
            lines = output.decode("utf-8", "replace").strip().splitlines()
            problems.append(lines[-1] if lines else f"a process ended with code {process.returncode}")
    if problems:
        raise CheckFailedError(problems[0])


def store_of(request: Object) -> list[Any]:
    """Returns the place where the replicas meet: a file in a folder that all share, or a host and a port."""
    if request["meet"] == "file":
        folder = Path(os.environ["TORCHELASTIC_ERROR_FILE"]).parent.parent
        return [str(folder / f".preflight-{os.environ.get('TORCHX_ATTEMPT', '1')}")]
    return [request["meet"] or os.environ["TORCHX_RANK0_HOST"], request["port"]]


def own_code() -> bytes:
    """Returns the text of this program that its Python was called with, after `-c`."""
    with open("/proc/self/cmdline", "rb") as file:
        arguments = file.read().split(b"\0")
    return arguments[arguments.index(b"-c") + 1]


def collective(share: Object) -> NoReturn:
    """Takes part in the operation, in a process of its own; prints the finding, and ends the process."""
    try:
        take_part(share)
    except Exception as error:
        text = (str(error) or type(error).__name__).strip().splitlines()[0]
        sys.stdout.write(f"rank {share['rank']} of {share['world']}: {text[:300]}\n")
        sys.stdout.flush()
        os._exit(1)
    os._exit(0)


def take_part(share: Object) -> None:
    """Takes part in the operation.

    Raises:
        CheckFailedError: not all ranks have arrived, or the result is wrong.
    """
    torch, dist = (importlib.import_module(name) for name in ("torch", "torch.distributed"))
    rank, world, limit = share["rank"], share["world"], timedelta(seconds=share["limit"])
    place = share["store"]
    if os.environ.get("TORCHX_RANK0_HOST") == "localhost":  # the name of this machine may not resolve
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if len(place) == 1:
        store = dist.FileStore(place[0], world)
    else:
        store = dist.TCPStore(*place, world, rank == 0, timeout=limit, wait_for_workers=False)
    arrive(store, rank, world, share["limit"])
    cuda = bool(share["gpus"]) and torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(share["local"])
    group = dist.PrefixStore("group", store)
    backend = "nccl" if cuda else "gloo"
    dist.init_process_group(backend, store=group, rank=rank, world_size=world, timeout=limit)
    value = torch.full((1 << 16,), float(rank + 1), device="cuda" if cuda else "cpu")
    dist.all_reduce(value)
    if not bool((value == world * (world + 1) / 2).all()):
        raise CheckFailedError("the sum over all ranks is wrong")
    store.set(f"done{rank}", "1")
    if rank == 0 and len(place) > 1:  # its end would end the store of the others
        store.wait([f"done{other}" for other in range(world)], limit)


def arrive(store: Any, rank: int, world: int, limit: float) -> None:
    """Waits until all ranks have arrived.

    Raises:
        CheckFailedError: some have not arrived in time.
    """
    end = time.monotonic() + limit
    store.set(f"here{rank}", socket.gethostname())
    missing = list(range(world))
    while True:
        missing = [other for other in missing if not store.check([f"here{other}"])]
        if not missing:
            return
        if time.monotonic() > end:
            names = ", ".join(map(str, missing[:16]))
            raise CheckFailedError(f"ranks {names} did not arrive within {limit:g} s")
        time.sleep(0.05)


CHECKS: dict[str, Callable[[Object, Object], None]] = {
    "gpu": check_gpus,
    "disk": check_disk,
    "cmd": check_command,
    "collective": check_collective,
}
"""The checks by their names."""

if __name__ == "__main__":
    main(sys.argv[1:])
