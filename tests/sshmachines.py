"""Another machine behind ssh for tests: a server on loopback, with another user and another home."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from program import torchx
from sshd import ssh_server

from torchx.machine import processes

UID = 65533
IS_ROOT = os.geteuid() == 0
"""Without root, the other machine has the same user, with another home."""


class Machine:
    """The other machine.

    Args:
        folder: a folder that its user may enter.
        options: the options of ssh that lead to it.
    """

    def __init__(self, folder: Path, options: dict[str, str]) -> None:
        self.folder, self.home = folder, folder / "home"
        self.python = sys.executable
        self.path = f"{Path(sys.executable).resolve().parent}:/usr/local/bin:/usr/bin:/bin"
        self.shell = "/bin/sh"
        self.first = ""  # a line of the shell before the command
        self.variables = f"HOME={self.home}"
        self.is_other_user = IS_ROOT
        self.home.mkdir(mode=0o700)
        lines = [
            "Host lab login1",
            "HostName 127.0.0.1",
            *(f"{name} {value}" for name, value in options.items()),
        ]
        (folder / "ssh_config").write_text("\n".join(lines) + "\n")
        (folder / "bin").mkdir()
        wrapper = folder / "bin/ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
        wrapper.chmod(0o755)
        if IS_ROOT:
            os.chown(self.home, UID, UID)
        self.configure()

    def configure(self, **changes: str | bool) -> None:
        """Changes the shell, the PATH, the variables, the first line or the user of a login."""
        for name, value in changes.items():
            setattr(self, name, value)
        user = ""
        if self.is_other_user:  # the interpreter of the tests may be in the home of root
            user = (
                f"setpriv --reuid {UID} --regid {UID} --clear-groups "
                "--inh-caps=+dac_read_search --ambient-caps=+dac_read_search"
            )
        enter = self.folder / "enter"
        part = enter.with_name("enter.part")
        part.write_text(
            f"#!/bin/sh\ncd {self.home}\n{self.first}\n"
            f'exec {user} env -i {self.variables} PATH={self.path} {self.shell} -c "$SSH_ORIGINAL_COMMAND"\n'
        )
        part.chmod(0o755)
        part.rename(enter)

    def env(self) -> dict[str, str]:
        """Returns the variables of a user here whose ssh knows the machine."""
        return {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(self.folder),
            "TORCHX_RECONNECT": "60",
        }

    def cut(self) -> int:
        """Kills the connections from here; returns their number."""
        count = 0
        for entry in processes.table():
            with suppress(OSError):
                words = processes.read_proc(f"/proc/{entry.process.pid}/cmdline").split(b"\0")
                is_ssh = words[0].startswith(b"ssh:") or words[0].endswith(b"/ssh")
                if is_ssh and any(os.fsencode(self.folder) in word for word in words):
                    os.kill(entry.process.pid, signal.SIGKILL)
                    count += 1
        return count

    def jobs(self) -> list[str]:
        """Returns the ids of the jobs there."""
        jobs = self.home / ".torchx/jobs"
        return sorted(p.name for p in jobs.iterdir() if not p.name.startswith(".")) if jobs.exists() else []

    def there(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs torchx there without a context."""
        command = f"PYTHONPATH={Path(__file__).parent.parent} {sys.executable} -m torchx_cli"
        env = {**os.environ, "SSH_ORIGINAL_COMMAND": " ".join([command, *words])}
        return subprocess.run([self.folder / "enter"], env=env, capture_output=True, text=True)


@contextmanager
def machine() -> Iterator[Machine]:
    """Starts another machine."""
    folder = Path(tempfile.mkdtemp(prefix="txm-", dir="/tmp"))  # short: it has sockets
    folder.chmod(0o711 if IS_ROOT else 0o700)
    try:
        limits = "MaxSessions 100\nMaxStartups 200:30:400\n"
        with ssh_server(folder, f"{limits}ForceCommand {folder}/enter\n") as options:
            found = Machine(folder, options)
            yield found
            for app_id in found.jobs():
                found.there("delete", "--force", "--yes", app_id)
            found.cut()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def add(name: str = "lab", address: str = "lab", *flags: str) -> None:
    """Adds a context."""
    done = torchx("context", "add", name, address, *flags)
    assert done.returncode == 0, done.stderr
