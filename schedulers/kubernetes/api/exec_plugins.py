"""Programs that a kubeconfig names to obtain credentials: found before they run, and named when they fail."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchx.errors import StateError

_LONGEST = 300


class PluginError(StateError):
    """The program that obtains credentials for a cluster is missing, or has failed."""


@dataclass(frozen=True)
class Plugin:
    """A program that a kubeconfig names to obtain credentials.

    Attributes:
        command: its name or path.
        user: the user of the kubeconfig.
        path: the kubeconfig.
        context: the context that chooses the user.
        hint: the first line of the kubeconfig's hint of how to install it.
    """

    command: str
    user: str
    path: Path
    context: str
    hint: str = ""

    @property
    def origin(self) -> str:
        """The place that names the program, as a phrase."""
        return f"the exec plugin of user `{self.user}` in {self.path}"

    def require(self) -> None:
        """Refuses a program that is not there.

        Raises:
            PluginError: it is not on PATH, or not at the path that the kubeconfig names.
        """
        relative = "/" in self.command and not Path(self.command).is_absolute()
        where = str(self.path.parent / self.command) if relative else self.command
        if shutil.which(where) is None:
            place = "there is no such program" if "/" in self.command else "which is not on PATH"
            raise PluginError(
                f"context `{self.context}` gets credentials from `{self.command}`, {place} ({self.origin})",
                hint=self.hint or "install it, or choose another context: kubectl config get-contexts",
            )

    def failed(self, complaint: str) -> PluginError:
        """Returns the error for a program that gave no credentials."""
        told = " ".join(complaint.removeprefix("exec: ").split())[:_LONGEST]
        return PluginError(
            f"`{self.command}` gave no credentials for context `{self.context}`: {told} ({self.origin})",
            hint="log in again as your cluster requires, then try: kubectl auth whoami",
        )


def plugin_of(files: Sequence[tuple[Path, object]], context: str) -> Plugin | None:
    """Returns the program that obtains the credentials of a context; None when there is none.

    Args:
        files: the kubeconfigs as plain data, in their order: of two entries of a name the first counts.
        context: its name.

    Raises:
        PluginError: the program is not there.
    """
    chosen = _first(files, "contexts", "context", context)
    name = chosen[1].get("user") if chosen is not None else None
    found = _first(files, "users", "user", name)
    # the package takes a token in place of the program
    if found is None or found[1].get("token") or found[1].get("tokenFile") or "auth-provider" in found[1]:
        return None
    told = found[1].get("exec")
    command = told.get("command") if isinstance(told, dict) else None
    if not isinstance(told, dict) or not isinstance(command, str) or not command:
        return None
    hint = str(told.get("installHint") or "").strip().partition("\n")[0][:_LONGEST]
    plugin = Plugin(command, str(name), found[0], context, hint)
    plugin.require()
    return plugin


def _first(
    files: Sequence[tuple[Path, object]], section: str, kind: str, name: object
) -> tuple[Path, dict[str, Any]] | None:
    for path, data in files:
        entries = data.get(section) if isinstance(data, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(kind), dict):
                return path, entry[kind]
    return None


@contextmanager
def complaints() -> Iterator[list[str]]:
    """Collects the errors that the package ``kubernetes`` logs in place of raising them."""
    import logging  # loaded on demand: it is slow to import

    found: list[str] = []

    class Collector(logging.Handler):
        """Keeps messages of errors."""

        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    collector = Collector(logging.ERROR)
    root = logging.getLogger()
    root.addHandler(collector)
    try:
        yield found
    finally:
        root.removeHandler(collector)
