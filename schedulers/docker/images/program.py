"""Checks that a role's program is in its image; the init process starts even without it."""

from __future__ import annotations

from posixpath import join

from torchx.json_limits import Data
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.engine.parallel import in_parallel

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def is_missing(engine: Engine, container: str, program: str) -> bool:
    """Returns True if a created container that is not started yet lacks a program; its mounts count.

    Returns False if the engine cannot check.

    Args:
        engine: the engine.
        container: the container's id.
        program: a path, or a name to find on its PATH.
    """
    config: Data = engine.call("GET", f"/containers/{container}/json")["Config"]
    if "/" in program:
        paths = [join(config.get("WorkingDir") or "/", program)]
    else:
        env = dict(line.partition("=")[::2] for line in config.get("Env") or ())
        paths = [join(folder or "/", program) for folder in (env.get("PATH") or DEFAULT_PATH).split(":")]

    def absent(path: str) -> bool:
        try:
            engine.call("HEAD", f"/containers/{container}/archive", {"path": path})
        except EngineError as error:
            return error.status == 404
        return False

    return all(result is True for result in in_parallel(absent, paths))
