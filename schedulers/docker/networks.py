"""The network of the applications, in which replicas find each other by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TypeVar

from torchx.errors import StateError
from torchx.json_limits import Data, Object
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.request import NETWORK

TRIES = 20
"""Maximum repetitions of a request while another submission removes a second network of the same name."""

_T = TypeVar("_T")


def provide(engine: Engine) -> None:
    """Creates the network, unless it exists.

    An engine may create two networks of the same name for two concurrent requests, and rejects that name
    afterwards. So the youngest ones are removed; all submissions remove the same ones.

    Raises:
        StateError: it cannot be created, or there are several that are in use.
    """
    if len(_existing(engine)) == 1:
        return
    if not _existing(engine):
        _create(engine)
    for network in _existing(engine)[1:]:
        _remove(engine, network)


def provide_for(engine: Engine, bodies: Iterable[Data]) -> None:
    """Creates the network, unless it exists or none of the containers joins it.

    Args:
        engine: the engine.
        bodies: the requests that create the containers.

    Raises:
        StateError: it cannot be created, or there are several that are in use.
    """
    if any(body["HostConfig"].get("NetworkMode") == NETWORK for body in bodies):
        provide(engine)


def while_unique(engine: Engine, request: Callable[[], _T]) -> _T:
    """Returns the result of a request that names the network, repeated while the name is ambiguous.

    Raises:
        StateError: the engine rejects the request for another reason, or the name stays ambiguous.
    """
    for _ in range(TRIES):
        try:
            return request()
        except EngineError as error:
            if "ambiguous" not in error.message:
                raise
            provide(engine)
    return request()


def _existing(engine: Engine) -> list[Object]:
    """Returns the networks of that name, the oldest first."""
    # the filter matches parts of names, too
    listed = engine.call("GET", "/networks", {"filters": json.dumps({"name": [NETWORK]})})
    named = [network for network in listed if network.get("Name") == NETWORK]
    return sorted(named, key=lambda network: (str(network.get("Created")), str(network.get("Id"))))


def _create(engine: Engine) -> None:
    body = {"Name": NETWORK, "Driver": "bridge", "CheckDuplicate": True}
    try:
        engine.call("POST", "/networks/create", None, body)
    except EngineError as race:
        if race.status != 409 and not _existing(engine):  # Podman reports 500 for an existing one
            raise StateError(f"the network {NETWORK} cannot be created: {race.message}") from race


def _remove(engine: Engine, network: Object) -> None:
    """Removes a network; one that is in use stays, and is removed once its containers have ended."""
    name = str(network.get("Id"))
    try:
        engine.call("DELETE", f"/networks/{name}")
    except EngineError as error:
        if error.status == 404:
            return
        raise StateError(
            f"the engine has several networks called {NETWORK}, and cannot remove one: {error.message}",
            hint=f"remove it once its containers have ended: docker network rm {name[:12]}",
        ) from error
