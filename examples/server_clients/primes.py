"""An application of two roles: a server that hands out work, and clients that do it.

torchx run -s local_cwd examples/server_clients/primes.py:count --upto 200000 --clients 3
"""

from __future__ import annotations

import torchx.specs as specs
from torchx.specs import macros

PORT = 8765


def count(
    upto: int = 200_000,
    clients: int = 3,
    folder: str = "examples/server_clients",
    image: str = "python:3.12-slim",
) -> specs.AppDef:
    """Counts the prime numbers below a limit: a server hands out the work, and its clients do it.

    Args:
        upto: the limit
        clients: how many replicas do the work
        folder: where server.py and client.py lie, in the image or below the working directory
        image: image with Python; not used by local_cwd
    """
    # Replica 0 of the first role is where the others find the application: the scheduler puts its host into
    # an environment variable, and the macro rank0_env is the name of that variable. The port is the one of
    # port_map; where all share this machine it is a free one instead, in TORCHX_PORT_WORK.
    server = specs.Role(
        name="server",
        image=image,
        entrypoint="python",
        args=[f"{folder}/server.py", "--upto", str(upto), "--clients", str(clients), "--port", str(PORT)],
        port_map={"work": PORT},
        resource=specs.resource(cpu=1, memMB=256),
    )
    client = specs.Role(
        name="client",
        image=image,
        entrypoint="python",
        args=[f"{folder}/client.py", "--host-in", macros.rank0_env, "--port", str(PORT)],
        env={"CLIENT": macros.replica_id},
        num_replicas=clients,
        resource=specs.resource(cpu=1, memMB=256),
    )
    return specs.AppDef(name="primes", roles=[server, client])
