"""Local jobs that lease GPUs, processors and memory: of several state homes and users, and killed ones."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import fakegpus
import pytest
from local import ended, scheduler, sh, submit, supervision_of, text
from support import wait_until

from torchx.errors import StateError
from torchx.jobs.paths import Home
from torchx.leases.gpus import user_name, visible_gpus
from torchx.leases.holders import PREFIX, holders, names_in_use, take
from torchx.leases.waiting import Watch
from torchx.machine import cgroups, locks, processes, socket_names
from torchx.specs.app import AppDef, Role
from torchx.specs.resources import Resource
from torchx.specs.run_options import CfgVal

SHOW = "echo ${replica_id}=$CUDA_VISIBLE_DEVICES,$CUDA_DEVICE_ORDER; sleep 600"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fakegpus.FakeGpus:
    return fakegpus.install(monkeypatch, tmp_path, 4)


def gpu_job(replicas: int = 1, gpus: int = 1, script: str = SHOW) -> Role:
    role = sh(script, replicas)
    role.resource = Resource(1, gpus, 64)
    return role


def submit_now(role: Role, **cfg: CfgVal) -> str:
    """Submits a job that does not wait, even if other users of this machine have waiting jobs."""
    return submit(role, no_wait=True, **cfg)


def shown(app_id: str, lines: int = 1) -> list[str]:
    return wait_until(
        lambda: sorted(text(app_id).split()) if text(app_id).count("\n") == lines else [], "replicas print"
    )


def cancel(*app_ids: str) -> None:
    for app_id in app_ids:
        scheduler().cancel(app_id)
        ended(app_id)


def test_jobs_of_several_state_homes_share_no_gpu(
    machine: fakegpus.FakeGpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = submit_now(gpu_job(2), auto_set_cuda_visible_devices=True)
    assert shown(one, 2) == ["0=0,PCI_BUS_ID", "1=1,PCI_BUS_ID"]
    (supervisor, _) = supervision_of(one)
    holder = wait_until(
        lambda: (h := holders([name := f"gpu-{machine.ids[0]}"]).get(name)) and h.app and h,
        "the supervisor answers",
    )
    assert (holder.app, holder.uid, holder.pid) == (one, os.geteuid(), supervisor.pid)
    first_home = os.environ["TORCHX_HOME"]
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "second"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{machine.ids[0]},{machine.ids[2]},3")
    two = submit_now(gpu_job())
    assert shown(two) == [f"0={machine.ids[2]},PCI_BUS_ID"], "named as the caller does"
    machine.compute((3, os.getpid(), "python3"))
    with pytest.raises(StateError, match="job requests 1 GPU; this machine has 3, 0 of them free") as error:
        submit_now(gpu_job())
    me = user_name(os.geteuid())
    assert error.value.hint == (
        f"GPU {machine.ids[0]}: {one} of {me}; GPU {machine.ids[2]}: {two} of {me}; "
        f"GPU 3: python3 (pid {os.getpid()}) of {me}, not started by torchx"
    )
    # more than there are: a note; no GPU is reserved
    three = submit(gpu_job(gpus=4))
    assert shown(three) == [f"0={os.environ['CUDA_VISIBLE_DEVICES']},"]
    cancel(two, three)
    monkeypatch.setenv("TORCHX_HOME", first_home)
    cancel(one)
    assert not {f"gpu-{gpu}" for gpu in machine.ids} & names_in_use()


def test_without_driver_names_of_caller_are_leased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fakegpus.install(monkeypatch, tmp_path, 2)
    (tmp_path / "driver" / "nvidia-smi").unlink()
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(machine.ids))
    one = submit_now(gpu_job(2), auto_set_cuda_visible_devices=True)
    assert shown(one, 2) == [f"{n}={gpu}," for n, gpu in enumerate(machine.ids)]
    cancel(one)


@pytest.mark.parametrize("order", [["supervisor"], ["guard"], ["guard", "supervisor"]])
def test_killed_job_frees_gpus_after_its_processes(machine: fakegpus.FakeGpus, order: list[str]) -> None:
    app_id = submit_now(gpu_job())
    shown(app_id)
    lease = f"gpu-{machine.ids[0]}"
    both = dict(zip(("supervisor", "guard"), supervision_of(app_id), strict=True))
    for name in order:
        processes.send(both[name], signal.SIGKILL)
        assert processes.wait_end(both[name], 120)
    if order == ["guard"]:
        assert lease in names_in_use(), "its supervisor runs"
        cancel(app_id)
    while lease in names_in_use():
        with Watch([lease]) as watch:
            watch.wait(120)
    scheduler().reconcile(app_id)
    ended(app_id)
    assert visible_gpus(os.environ)[0].lease not in names_in_use()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_another_user_has_other_gpus(machine: fakegpus.FakeGpus) -> None:
    """A program of another user that holds the name of a lease is named, and does no harm."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.setresuid(65534, 65534, 65534)
        leases = take([f"gpu-{machine.ids[0]}"])
        foreign = socket_names.hold(f"{PREFIX}gpu-{machine.ids[1]}")  # accepts no connection
        os.write(writer, b"." if leases and foreign else b"-")
        signal.pause()
    try:
        assert os.read(reader, 1) == b"."
        with pytest.raises(
            StateError, match="job requests 3 GPUs; this machine has 4, 2 of them free"
        ) as error:
            submit_now(gpu_job(3))
        assert error.value.hint == (
            f"GPU 0: a process (pid {pid}) of {user_name(65534)}; GPU 1: a process of an unknown user"
        )
        app_id = submit_now(gpu_job(2))
        assert shown(app_id, 2) == ["0=2,PCI_BUS_ID", "1=3,PCI_BUS_ID"]
        cancel(app_id)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)


def test_a_job_of_the_version_before_keeps_its_gpus(machine: fakegpus.FakeGpus) -> None:
    """Its supervisor holds a lock file, named after the index or the id."""
    folder = Home(Path(os.environ["TORCHX_HOME"])).devices
    folder.mkdir(parents=True)
    held = [locks.acquire(folder / f"gpu-{name}") for name in ("0", machine.ids[2])]
    app_id = submit_now(gpu_job(2))
    assert shown(app_id, 2) == ["0=1,PCI_BUS_ID", "1=3,PCI_BUS_ID"]
    cancel(app_id)
    for descriptor in held:
        assert descriptor is not None
        os.close(descriptor)


RESERVE = """
import os, sys
from torchx.errors import StateError
from torchx.leases import machine
from torchx.leases.holders import names_in_use
from torchx.leases.waiting import Watch
from torchx.schedulers.local.scheduler import create_cwd_scheduler
from torchx.specs.app import AppDef, Role
from torchx.specs.resources import Resource
from torchx.specs.run_options import CfgVal

local = create_cwd_scheduler("torchx")
unit = machine.memory_unit() >> 20

def submit(cpus, memory, replicas=1, **cfg):
    role = Role("w", "", entrypoint="sleep", args=["600"], num_replicas=replicas)
    role.resource = Resource(cpus, 0, memory)
    try:
        return local.submit(AppDef("job", [role]), {"grace_period": 0.0, "no_wait": True, **cfg})
    except StateError as error:
        print(error.message)

free = submit(1, 2 * unit)
assert not names_in_use(), "only on request"
one = submit(1, unit + 1, reserve=True)
names = names_in_use()
assert sorted(names) == ["cpu-0", "memory-0", "memory-1"] or len(names) == 3, names
submit(len(machine.cpu_names()), 1, reserve=True, no_wait=True)
submit(-1, len(machine.memory_names()) * unit, reserve=True, no_wait=True)
assert names_in_use() == names, "a refused job keeps nothing"
for app_id in (free, one):
    local.cancel(app_id)
while names_in_use():
    with Watch(names) as watch:
        watch.wait(120)
two = submit(len(machine.cpu_names()), len(machine.memory_names()) * unit, reserve=True)
local.cancel(two)
assert local.wait(two, 120)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a network namespace with leases of its own")
def test_processors_and_memory_are_reserved_on_request() -> None:
    command = ["unshare", "-n", sys.executable, "-c", RESERVE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    cpus, memory = done.stdout.splitlines()
    assert re.fullmatch(r"job requests (\d+) CPUs?; this machine has \1, \d+ of them free", cpus)
    assert re.fullmatch(
        r"job requests ([\d,.]+ GiB) of memory; this machine has \1, [\d,.]+ GiB of them free", memory
    )


def notes_with(cpu: int, memory: int = 64, **cfg: CfgVal) -> list[str]:
    role = Role("w", "", entrypoint="true", resource=Resource(cpu, 0, memory))
    notes = scheduler().submit_dryrun(AppDef("job", [role]), cfg).notes
    return [note for note in notes if "requests" in note]


def test_a_reservation_beyond_the_machine_has_no_note() -> None:
    """Its submission is an error, which a note that nothing is limited contradicts."""
    beyond = (os.cpu_count() or 1) + 1
    assert len(notes_with(beyond)) == 1
    assert notes_with(beyond, reserve=True) == []


def test_a_small_cpu_mask_gets_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    mask = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mask)})  # as the shell of a job of another batch system has it
    try:
        (note,) = notes_with(2)
        assert notes_with(1) == []
    finally:
        os.sched_setaffinity(0, mask)
    limited = "this process may use 1 of 64 CPUs, by its CPU mask or its control group"
    assert note == f"a replica requests more CPUs than it gets: {limited}"


@pytest.mark.parametrize(
    "files",
    [
        {
            "proc/self/cgroup": "0::/a\n",
            "sys/fs/cgroup/a/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/a/memory.max": str(1 << 30),
        },
        {
            "proc/self/cgroup": "2:cpu,cpuacct:/a\n3:memory:/a\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": str(1 << 30),
        },
    ],
    ids=["version 2", "version 1"],
)
def test_a_small_control_group_gets_a_note(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text_of in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_of, encoding="ascii")
    limits = cgroups.own_limits(str(tmp_path))
    monkeypatch.setattr(cgroups, "own_limits", lambda: limits)
    cpus, memory = notes_with(1, 1025)
    assert "may use 0.5 of " in cpus
    assert "may use 1,024 MiB, by its control group" in memory
    assert notes_with(0, 1024) == []
