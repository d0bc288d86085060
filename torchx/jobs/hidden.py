"""The secrets of applications, so that later commands on this machine can mask them in quoted output.

The state home has a private file for each application with secrets, on every engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from torchx import masking
from torchx.errors import StateError
from torchx.jobs.paths import Home, place, user_home
from torchx.json_limits import Data
from torchx.json_shape import items_at
from torchx.machine import files

if TYPE_CHECKING:
    from torchx.specs.app import AppDef

LARGEST = 1 << 24
"""Maximum bytes of a file."""


def keep(backend: str, app_id: str, apps: Iterable[AppDef], parameters: Iterable[Data] = ()) -> None:
    """Keeps the secrets of an application, adds them to those kept before, and masks them in this process.

    Args:
        backend: the name of its scheduler.
        app_id: its id.
        apps: the application; several for a sweep.
        parameters: the parameters of the runs of a sweep.

    Raises:
        StateError: they cannot be written.
    """
    roles = [role for app in apps for role in app.roles]
    values = set(masking.secrets_in_roles(roles))
    # secrets of the component and of its caller that became a part of an argument
    values |= {*masking.values_in(text for role in roles for text in (*role.args, *role.env.values()))}
    values |= {value for row in parameters for value in masking.secrets_in_environment(row)}
    values |= {value.replace("$$", "$") for value in values}  # without the escapes of macros
    _add(backend, app_id, values)


def share(sweep: tuple[str, str], backend: str, app_id: str) -> None:
    """Keeps the secrets of a sweep for one of its runs.

    Args:
        sweep: the scheduler and the id of the sweep.
        backend: the name of the scheduler of the run.
        app_id: the id of the run.

    Raises:
        StateError: they cannot be written.
    """
    _add(backend, app_id, set(_read(_file(*sweep))))


def _add(backend: str, app_id: str, values: set[str]) -> None:
    if not values:
        return
    masking.add_values(values)
    path = _file(backend, app_id)
    try:
        files.make_folder(path.parent)
        files.write_file(path, json.dumps(sorted(values.union(_read(path)))).encode())
    except OSError as error:
        raise StateError(f"{error.filename or path}: {error.strerror}") from error


def register(backend: str, app_id: str) -> None:
    """Masks the secrets of an application in all later output of this process."""
    with suppress(StateError):
        masking.add_values(_read(_file(backend, app_id)))


def forget(backend: str, app_id: str) -> None:
    """Removes the secrets of an application that was removed."""
    with suppress(StateError, OSError):
        _file(backend, app_id).unlink(missing_ok=True)


def _file(backend: str, app_id: str) -> Path:
    return Home(user_home()).secrets / place(backend, app_id)


def _read(path: Path) -> list[str]:
    """Returns the secrets in a file, none if it is missing or damaged."""
    with suppress(OSError, ValueError, RecursionError):
        values = items_at(json.loads(files.read_file(path, LARGEST)), str)
        return [value for value in values if len(value) >= masking.SHORTEST]
    return []
