"""Mask secrets in output, including names added by the configuration."""

from __future__ import annotations

import contextlib
import itertools
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torchx import masking
from torchx.lazy import lazy_imports
from torchx.masking import MASK as MASK

with lazy_imports:
    from torchx.config import model

if TYPE_CHECKING:
    from torchx.config import Config
    from torchx.specs.app import AppDef, Role

_is_configured = False


def configure(config: Config | None = None) -> None:
    """Adds the secret names from `mask` in section [torchx] of the configuration files, once.

    All profiles are included. Unreadable files are ignored; the command that needs them reports the error.

    Args:
        config: the configuration, if the command has read it.
    """
    global _is_configured
    if not _is_configured:
        masking.add_patterns(model.masked_names(None if config is None else config.files))
        _is_configured = True


def looks_secret(name: str) -> bool:
    """Returns True if a variable, flag or key of this name may hold a secret."""
    configure()
    return masking.looks_secret(name)


def mask_text(text: str) -> str:
    """Masks known secrets and likely secrets in a text."""
    configure()
    return masking.mask_text(text)


def mask(data: Any) -> Any:
    """Returns plain data with secrets masked; see :func:`torchx.masking.mask`."""
    configure()
    return masking.mask(data)


def command_line(args: Sequence[str]) -> str:
    """Returns a command line, quoted for a shell, with secrets masked."""
    configure()
    return shlex.join(masking.mask_arguments(args))


def remember(roles: Iterable[Role]) -> None:
    """Registers the secrets of an application, to be masked in all later output and log messages."""
    masking.add_values(secret_values(roles))


def allow_references(line: str, app: AppDef) -> None:
    """Excludes the names and files after `--secret` in a recorded command line from masking.

    The variables named there are masked in the record. Other arguments after a flag of this name were masked
    when the command line was recorded.
    """
    declared = {name for role in app.roles for name, value in role.env.items() if value == MASK}
    with contextlib.suppress(ValueError):  # not quoted properly
        for flag, text in itertools.pairwise(shlex.split(line.replace("--secret=", "--secret "))):
            name, _, source = text.partition("=")
            if flag == "--secret" and name in declared and source[:1] in ("", "@"):
                masking.add_references([text, source])


def forget() -> None:
    """Forgets registered secrets and configured names, before a new command line."""
    global _is_configured
    masking.forget_values()
    masking.forget_patterns()
    _is_configured = False


def secret_names(app: AppDef | None) -> list[str]:
    """Returns the names of an application's variables that may hold a secret."""
    roles = app.roles if app is not None else ()
    return sorted(
        {
            name
            for role in roles
            for name, value in role.env.items()
            if isinstance(value, masking.SecretValue) or looks_secret(name)
        }
    )


def secret_values(roles: Iterable[Role]) -> list[str]:
    """Returns the secret values in the environment and the arguments of roles."""
    configure()
    return masking.secrets_in_roles(roles)
