"""An application with two roles: a server that distributes work, and clients that do it.

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
    """Counts the prime numbers below a limit: a server distributes the work to its clients.

    Args:
        upto: the limit
        clients: number of client replicas
        folder: folder with server.py and client.py, in the image or below the working directory
        image: image with Python; not used by local_cwd
    """
    # The other replicas connect to replica 0 of the first role: the scheduler sets an environment variable to
    # its host, and the macro rank0_env is the name of that variable. The port is that of port_map; on local
    # schedulers it is a free port instead, in TORCHX_PORT_WORK.
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
