"""Looks whether the program of a role is in its image: without it, the init process starts all the same."""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import join
from typing import Any

from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.engine.parallel import in_parallel

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def is_missing(engine: Engine, container: str, program: str) -> bool:
    """Tells whether a container that was made, and has not been started, lacks a program.

    Its mounts count. When the engine cannot tell, the program is taken to be there.

    Args:
        engine: where it is.
        container: the container's id.
        program: a name that is looked for on its PATH, or a path.
    """
    config: Mapping[str, Any] = engine.call("GET", f"/containers/{container}/json")["Config"]
    if "/" in program:
        places = [join(config.get("WorkingDir") or "/", program)]
    else:
        env = dict(line.partition("=")[::2] for line in config.get("Env") or ())
        places = [join(folder or "/", program) for folder in (env.get("PATH") or DEFAULT_PATH).split(":")]

    def absent(place: str) -> bool:
        try:
            engine.call("HEAD", f"/containers/{container}/archive", {"path": place})
        except EngineError as error:
            return error.status == 404
        return False

    return all(result is True for result in in_parallel(absent, places))
