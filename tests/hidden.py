"""Checks that no view of an application shows its secrets, on any engine."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from canary import canary
from program import torchx

from torchx.masking import MASK

VIEWS = (
    ["status"],
    ["status", "-o", "json"],
    ["why"],
    ["why", "-o", "json"],
    ["wait", "-o", "json"],
    ["top", "-o", "json"],
    ["report", "-o", "-"],
)
"""Commands that quote lines of the output."""


def kept() -> list[Path]:
    """The private files with secrets in the state home."""
    return [path for path in Path(os.environ["TORCHX_HOME"], "secrets").rglob("*") if path.is_file()]


def check_no_view_shows_secrets(folder: Path, *flags: str, image: str = "") -> None:
    """Runs an application that prints its secrets, reads it with each command, and removes it.

    Args:
        folder: a folder for the secret.
        flags: the flags of `run`.
        image: the image of the role.
    """
    value = canary()
    (folder / "token").write_text(value)
    component = ["utils.sh", "--image", image, "echo failed with $API; exit 3"]
    submitted = torchx("run", "-d", *flags, "--secret", f"API=@{folder}/token", *component)
    assert submitted.returncode == 0, submitted.stderr
    handle = submitted.stdout.strip()
    assert torchx("wait", handle).returncode == 3
    assert value in torchx("log", handle).stdout, "the log is shown unchanged"
    for command, *form in VIEWS:
        shown = torchx(command, handle, *form)
        assert value not in shown.stdout + shown.stderr, command
        assert form or f"with {MASK}" in shown.stdout, command
    (file,) = kept()
    assert value in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert torchx("delete", "--force", handle).returncode == 0
    assert kept() == []


def check_no_view_of_a_sweep_shows_secrets(folder: Path, *flags: str, image: str = "") -> None:
    """The same for a sweep and one of its runs."""
    value = canary()
    (folder / "token").write_text(value)
    component = ["utils.sh", "--image", image, "echo failed with $API; exit {a}"]
    each = ["--each", "a=0,3", "--secret", f"API=@{folder}/token"]
    submitted = torchx("run", "-d", *flags, *each, *component)
    assert submitted.returncode == 0, submitted.stderr
    handle = submitted.stdout.strip()
    assert torchx("wait", handle).returncode == 3
    for target in (handle, f"{handle}/2"):
        for command, *form in VIEWS:
            shown = torchx(command, target, *form)
            assert value not in shown.stdout + shown.stderr, (command, target)
    assert f"with {MASK}" in torchx("why", f"{handle}/2").stdout
    assert torchx("delete", "--force", handle).returncode == 0
    assert kept() == []
