"""Secrets on the command line: what is known of them, and the names that the configuration adds."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torchx import masking
from torchx.masking import MASK as MASK

if TYPE_CHECKING:
    from torchx.specs.app import AppDef


@functools.cache
def read_configuration() -> None:
    """Adds the names of secrets that `mask` in [torchx] of the configuration files lists, once.

    The files of all profiles count: to mask too much does no harm. A file that cannot be read is passed over,
    as the command that needs it says so.
    """
    from torchx.config.masks import masked_names

    masking.add_patterns(masked_names())


def looks_secret(name: str) -> bool:
    """Returns True if a variable, flag or key of this name may hold a secret."""
    read_configuration()
    return masking.looks_secret(name)


def mask_text(text: str, values: Iterable[str] = ()) -> str:
    """Returns a text without secrets: the given ones, those that are known, and those that look like one."""
    read_configuration()
    for value in values:
        text = text.replace(value, MASK)
    return masking.mask_text(text)


def mask(data: Any, values: Iterable[str] = ()) -> Any:
    """Returns plain data with secrets masked; see :func:`torchx.masking.mask`."""
    read_configuration()
    return masking.mask(data, values)


def command_line(words: Sequence[str]) -> str:
    """Returns a command line as it can be typed again, secrets masked."""
    read_configuration()
    return shlex.join(masking.mask_arguments(words))


def remember(app: AppDef | None) -> None:
    """Masks the secrets of an application in all that this command prints or logs from now on."""
    masking.add_values(secret_values(app))


def forget() -> None:
    """Forgets the secrets of applications and the configuration: a new command line begins."""
    masking.forget_values()
    masking.forget_patterns()
    read_configuration.cache_clear()


def secret_names(app: AppDef | None) -> list[str]:
    """Returns the names of an application's variables that may hold a secret."""
    roles = app.roles if app is not None else ()
    return sorted({name for role in roles for name in role.env if looks_secret(name)})


def secret_values(app: AppDef | None) -> tuple[str, ...]:
    """Returns what an application's environment and arguments hold that must not be shown anywhere.

    Short words and numbers are left out: they occur by chance, and are no secrets.
    """
    if app is None:
        return ()
    values = {v for role in app.roles for n, v in role.env.items() if looks_secret(str(n))}
    for role in app.roles:  # what has not been checked may hold anything
        words = [word if isinstance(word, str) else "" for word in (role.entrypoint, *role.args)]
        values.update(masking.secrets_in_arguments(words))
    kept = (v for v in values if isinstance(v, str) and len(v) >= 8 and not v.isdigit())
    return tuple(sorted(kept, key=len, reverse=True))
