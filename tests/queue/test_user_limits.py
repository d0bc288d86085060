"""The limits of users in /etc/torchx/limits.ini, with jobs of two users."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import fakegpus
import pytest
from support import wait_until
from users import User, shared_folder

from torchx.leases.holders import names_in_use

ANN = 50_000 + os.getpid() % 7_000 * 2
BEN = ANN + 1
"""Users without other jobs, as those of another test would count."""

LIMITS = f"[*]\nmax_gpus = 2\n[{ANN}]\nmax_jobs = 1\n"

MOUNT = 'mount --bind /etc "$1/real" && mount --bind "$1/etc" /etc && shift && exec "$@"'


@pytest.fixture
def folder() -> Iterator[Path]:
    with shared_folder() as folder:
        yield folder


def with_limits(folder: Path, text: str) -> Sequence[str]:
    """Returns the beginning of a command for which /etc has a file with limits.

    The processes have a mount namespace of their own, so that the file is that of root at its real place: no
    variable may replace it. All other entries of /etc are links to the real ones.
    """
    etc, real = folder / "etc", folder / "real"
    for each in (etc, real, etc / "torchx"):
        each.mkdir(mode=0o755)
    limits = etc / "torchx" / "limits.ini"
    limits.write_text(text)
    limits.chmod(0o644)
    for name in os.listdir("/etc"):
        if name != "torchx":
            (etc / name).symlink_to(real / name)
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNT, "sh", str(folder))


@pytest.mark.timeout(600)
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be several users")
def test_limits_hold_for_each_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fakegpus.install(monkeypatch, folder, 4)
    within = with_limits(folder, LIMITS)
    with contextlib.ExitStack() as running:
        ann, ben = (running.enter_context(User(uid, folder / str(uid), within)) for uid in (ANN, BEN))

        def job(user: User, name: str, gpus: int, **cfg: object) -> str:
            """Submits a job that ends when its file exists."""
            script = f"while test -d {folder} && ! test -e {folder}/{name}; do sleep 0.05; done"
            return user.submit(script, gpus, **cfg)

        def until(user: User, app_id: str, text: str) -> None:
            wait_until(lambda: user.message(app_id).startswith(text), f"{app_id} is {text}")

        first, second = job(ann, "ann-1", 1), job(ann, "ann-2", 1)
        until(ann, first, "RUNNING")
        until(ann, second, "SUBMITTED the limit of this user is 1 job, 1 in use")
        # it passes the waiting job of another user
        two, more = job(ben, "ben-1", 2, visible="2,3"), job(ben, "ben-2", 1)
        until(ben, two, "RUNNING")
        until(ben, more, "SUBMITTED the limit of this user is 2 GPUs, 2 in use")
        # neither other GPUs nor --no-queue help
        other = job(ben, "ben-2", 1, visible="0,1")
        until(ben, other, "SUBMITTED the limit of this user is 2 GPUs, 2 in use")
        with pytest.raises(AssertionError, match="the limit of this user is 2 GPUs, 2 in use"):
            job(ben, "ben-2", 1, no_wait=True)
        (folder / "ann-1").touch()
        until(ann, second, "RUNNING")
        assert ben.message(more).startswith("SUBMITTED")
        for name in ("ben-1", "ben-2", "ann-2"):
            (folder / name).touch()
        for user, app_ids in ((ann, (first, second)), (ben, (two, more, other))):
            for app_id in app_ids:
                until(user, app_id, "SUCCEEDED")
    wait_until(lambda: not {f"gpu-{gpu}" for gpu in machine.ids} & names_in_use(), "no lease is left")
    wait_until(lambda: not (ann.processes() or ben.processes()), "no process is left")
