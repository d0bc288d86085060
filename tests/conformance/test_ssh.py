"""The example ``examples/ssh_scheduler`` passes the conformance suite, against an sshd on this machine."""

from __future__ import annotations

import getpass
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from project.sources import ROOT
from support import wait_until

from torchx.scheduling.base import Scheduler
from torchx.testing import AbilityConformance, Meaning, SchedulerConformance

EXAMPLE = ROOT / "examples" / "ssh_scheduler"
HOW = "apt install openssh-server openssh-client"


def create() -> Scheduler[Any]:
    spec = importlib.util.spec_from_file_location("torchx_ssh", EXAMPLE / "torchx_ssh.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["torchx_ssh"] = module
    spec.loader.exec_module(module)
    scheduler: Scheduler[Any] = module.create_scheduler("torchx")
    return scheduler


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def ssh_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The options that lead to an sshd of the tests' own."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if sshd is None or shutil.which("ssh-keygen") is None:
        message = f"needs an ssh server: {HOW}"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    folder = tmp_path_factory.mktemp("sshd")
    for key in ("host", "user"):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(made, check=True)
    port = free_port()
    known = f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}"
    (folder / "known").write_text(known)
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\nMaxStartups 100\n"
        # what this user's shell does at its start is not part of the test
        f"SetEnv HOME={folder}\n"
        f"PasswordAuthentication no\nPermitRootLogin prohibit-password\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # the server, as root, insists on it
    words = [sshd, "-D", "-f", str(folder / "config"), "-E", str(folder / "log")]
    (folder / "log").touch()
    server = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: "listening" in (folder / "log").read_text(), "the ssh server listens")
        yield {
            "Port": str(port),
            "IdentityFile": f"{folder}/user",
            "UserKnownHostsFile": f"{folder}/known",
            "IdentitiesOnly": "yes",
        }
    finally:
        server.terminate()
        server.wait()


class OverSsh:
    factory = staticmethod(create)
    cfg: ClassVar[dict[str, Any]] = {}
    begins_within = 0.7
    fields: ClassVar[dict[str, Meaning]] = {
        "image": Meaning.IGNORED,
        "min_replicas": Meaning.WARNED,
        "resource.cpu": Meaning.WARNED,
        "resource.memMB": Meaning.WARNED,
        "resource.gpu": Meaning.WARNED,
        "resource.devices": Meaning.WARNED,
        "resource.capabilities": Meaning.IGNORED,
        "resource.tags": Meaning.IGNORED,
        "mounts": Meaning.WARNED,
        "metadata": Meaning.IGNORED,
        "workspace": Meaning.REJECTED,
    }

    @pytest.fixture(autouse=True)
    def _server(self, ssh_options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the agent is a program of its own
        me = f"{getpass.getuser()}@127.0.0.1"
        told = {"hosts": [me, me], "ssh_options": ssh_options}
        type(self).cfg = {**told, "grace_period": 4.0, "retry_backoff": 0.1}


@pytest.mark.xdist_group("ssh")
class TestSsh(OverSsh, SchedulerConformance):
    pass


@pytest.mark.xdist_group("ssh")
class TestAbilities(OverSsh, AbilityConformance):
    pass
