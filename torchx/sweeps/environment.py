"""The environment of the runs of a sweep: that of the command that submitted it, for any later conductor."""

from __future__ import annotations

import contextlib
import json
import os
from functools import partial
from typing import Annotated, NamedTuple

from torchx import json_shape, settings
from torchx.errors import StateError
from torchx.jobs.record import damaged
from torchx.json_limits import LARGEST, Object, load_json
from torchx.json_shape import SystemText
from torchx.machine import files
from torchx.sweeps.paths import SweepPaths


class _Environment(NamedTuple):
    """The recorded environment."""

    env: Object
    cwd: SystemText
    umask: Annotated[int, partial(json_shape.integer, maximum=0o777)]


def write(paths: SweepPaths) -> None:
    """Records the environment, the working directory and the umask of this process, in a private file.

    Raises:
        OSError: it cannot be written.
    """
    umask = os.umask(0o077)
    os.umask(umask)
    cwd = ""
    with contextlib.suppress(OSError):  # it was removed
        cwd = os.getcwd()  # noqa: PTH109  # a string
    data = {"env": dict(os.environ), "cwd": cwd, "umask": umask}
    files.write_file(paths.environment, json.dumps(data).encode("utf-8", "surrogatepass"))


def enter(paths: SweepPaths) -> None:
    """Makes the recorded environment that of this process.

    The state home stays that of this process. A working directory that no longer exists is left out: the runs
    then report it.

    Raises:
        StateError: it is damaged, or cannot be read.
    """
    try:
        text = files.read_file(paths.environment, LARGEST).decode("utf-8", "surrogatepass")
        env, cwd, umask = json_shape.read(_Environment, load_json(text), "environment")
        pairs = {str(name): str(value) for name, value in env.items() if name and "=" not in name}
    except OSError as error:
        raise damaged(paths.environment, error.strerror) from error
    except (ValueError, TypeError) as error:
        raise damaged(paths.environment, str(error)) from error
    home = str(paths.folder.parent.parent)
    os.environ.clear()
    with contextlib.suppress(ValueError, UnicodeEncodeError):
        os.environ.update(pairs)
    os.environ[settings.TORCHX_HOME] = home
    os.umask(umask)
    try:
        os.chdir(cwd or "/")
    except OSError as error:
        raise StateError(f"the working directory {cwd} cannot be used: {error.strerror}") from error
