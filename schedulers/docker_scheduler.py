"""Runs applications in the containers of a Docker engine: ``local_docker``.

So far this module knows the run options and makes the exact request; it does not submit yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torchx.errors import StateError
from torchx.scheduler import DescribeAppResponse, ListAppResponse, Scheduler
from torchx.schedulers.docker_request import DockerJob, as_text, to_request
from torchx.schedulers.ids import make_unique
from torchx.specs.app import AppDef
from torchx.specs.dryrun import AppDryRunInfo
from torchx.specs.run_options import CfgVal, runopts


class DockerScheduler(Scheduler[DockerJob]):
    """Starts each replica as a container.

    Args:
        session_name: the session part of the handles it makes.
    """

    def __init__(self, session_name: str) -> None:
        super().__init__("local_docker", session_name)

    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.add(
            "copy_env",
            type_=list[str],
            help="names of the caller's environment variables to hand on; patterns such as AWS_* work",
        )
        opts.add("env", type_=dict[str, str], help="environment variables for all containers, as A:1,B:2")
        opts.add(
            "privileged", type_=bool, default=False, help="give the containers all rights of this machine"
        )
        opts.add("image_repo", type_=str, help="registry repository to push images to, for engines that pull")
        opts.add("quiet", type_=bool, default=False, help="show no progress of pulls and builds")
        return opts

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal]) -> None:
        """Lets any application pass: without a resource, a container has no limits."""

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[DockerJob]:
        return AppDryRunInfo(to_request(app, make_unique(app.name), cfg), as_text)

    def schedule(self, dryrun_info: AppDryRunInfo[DockerJob]) -> str:
        """Refuses: this version makes the request and does not send it.

        Raises:
            StateError: always.
        """
        raise StateError(
            "local_docker does not start containers in this version",
            hint="see what it would start with --dryrun, or run it on this machine: -s local_cwd",
        )

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns None: nothing was submitted."""
        return None

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[ListAppResponse]:
        """Returns nothing: nothing was submitted."""
        return []

    def _cancel_existing(self, app_id: str) -> None:
        """Does nothing: nothing was submitted."""


def create_scheduler(session_name: str, **kwargs: Any) -> DockerScheduler:
    """Returns the scheduler ``local_docker``."""
    return DockerScheduler(session_name)
