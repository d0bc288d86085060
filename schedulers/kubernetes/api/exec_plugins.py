"""Credential plugins of a kubeconfig: checked before they run, and named in errors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from torchx.errors import StateError
from torchx.json_shape import items_at, typed_at
from torchx.lazy import lazy_imports
from torchx.schedulers.kubernetes.api.objects import Object

with lazy_imports:
    import logging


_MAX_LENGTH = 300


class PluginError(StateError):
    """A credential plugin is missing or has failed."""

    code = "access_denied"


class Plugin(NamedTuple):
    """A credential plugin of a kubeconfig.

    Attributes:
        command: its name or path.
        user: the user of the kubeconfig.
        path: the kubeconfig.
        context: the context of the user.
        hint: the first line of the kubeconfig's installation hint.
    """

    command: str
    user: str
    path: Path
    context: str
    hint: str = ""

    @property
    def origin(self) -> str:
        """The place in the kubeconfig, as a phrase."""
        return f"the exec plugin of user `{self.user}` in {self.path}"

    def require(self) -> None:
        """Checks that the program exists.

        Raises:
            PluginError: the program is not on PATH or at the path of the kubeconfig.
        """
        relative = "/" in self.command and not Path(self.command).is_absolute()
        if relative:
            where = str(self.path.parent / self.command)
        else:
            where = self.command
        if shutil.which(where) is None:
            place = "which is not on PATH"
            if "/" in self.command:
                place = "which does not exist"
            raise PluginError(
                f"context `{self.context}` gets credentials from `{self.command}`, {place} ({self.origin})",
                hint=self.hint or "install it, or choose another context: kubectl config get-contexts",
            )

    def failed(self, complaint: str) -> PluginError:
        """Returns the error for a program that gave no credentials."""
        detail = " ".join(complaint.removeprefix("exec: ").split())[:_MAX_LENGTH]
        return PluginError(
            f"`{self.command}` gave no credentials for context `{self.context}`: {detail} ({self.origin})",
            hint="log in again as your cluster requires, then try: kubectl auth whoami",
        )


def plugin_of(files: Sequence[tuple[Path, object]], context: str) -> Plugin | None:
    """Returns the credential plugin of a context, or None.

    Args:
        files: the kubeconfigs as plain data; the first entry of a name counts.
        context: its name.

    Raises:
        PluginError: the program does not exist.
    """
    chosen = _first(files, "contexts", "context", context)
    name = None
    if chosen is not None:
        name = chosen[1].get("user")
    user = _first(files, "users", "user", name)
    # the package prefers a token to the plugin
    if user is None or user[1].get("token") or user[1].get("tokenFile") or "auth-provider" in user[1]:
        return None
    program = typed_at(user[1], dict, "exec")
    command = typed_at(program, str, "command")
    if not command:
        return None
    hint = str(program.get("installHint") or "").strip().partition("\n")[0][:_MAX_LENGTH]
    plugin = Plugin(command, str(name), user[0], context, hint)
    plugin.require()
    return plugin


def _first(
    files: Sequence[tuple[Path, object]], section: str, kind: str, name: object
) -> tuple[Path, Object] | None:
    for path, data in files:
        for entry in items_at(data, dict, section):
            if entry.get("name") == name and isinstance(entry.get(kind), dict):
                return path, entry[kind]
    return None


@contextmanager
def logged_errors() -> Iterator[list[str]]:
    """Collects errors that the package ``kubernetes`` logs instead of raising."""
    messages: list[str] = []

    class Collector(logging.Handler):
        """Collects error messages."""

        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    collector = Collector(logging.ERROR)
    root = logging.getLogger()
    root.addHandler(collector)
    try:
        yield messages
    finally:
        root.removeHandler(collector)
