"""An ssh server of the tests' own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import wait_until

HOW = "apt install openssh-server openssh-client"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def ssh_server(folder: Path, more: str = "") -> Iterator[dict[str, str]]:
    """Starts an ssh server on 127.0.0.1, and yields the options of ssh that lead to it.

    Args:
        folder: the folder of its files.
        more: more lines of its configuration.
    """
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if sshd is None or shutil.which("ssh-keygen") is None:
        pytest.skip(f"needs an ssh server: {HOW}")
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
        f"PasswordAuthentication no\nPermitRootLogin prohibit-password\n{more}"
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
