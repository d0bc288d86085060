"""The process that takes the stacks of stalled containers, and writes them to the folder about stalls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.exec import execute_in
from torchx.schedulers.docker.rules.job import job_of
from torchx.schedulers.docker.unstarted import readable
from torchx.scheduling.stack_program import arguments, take_in_replicas
from torchx.scheduling.streams import Streams
from torchx.supervisor.stalls.report import finish, write


def main(argv: list[str]) -> None:
    """Writes the stacks of the running containers.

    Args:
        argv: the application, and the folder to write to.
    """
    engine = Engine()
    containers = readable(engine, argv[0])
    running = {(c.role, c.replica): c.id for c in containers if c.status == "running"}

    def run(role: str, replica: int, command: Sequence[str], streams: Streams) -> int:
        return execute_in(engine, running[role, replica], command, streams)

    roles = [role.name for role in job_of(containers).roles]
    stacks = take_in_replicas(run, running, roles, arguments("", None, None, False))
    write(Path(argv[1]), stacks)
    finish(stacks)
