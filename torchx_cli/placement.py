"""The scheduler of an application, its options and its workspace, from flags and configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torchx.config.paths import located
from torchx.errors import UsageError
from torchx_cli.run_request import RunRequest, run_options
from torchx_cli.terminal.output import note

if TYPE_CHECKING:
    from torchx.config import Config
    from torchx.runner.api import Runner
    from torchx.specs.run_options import CfgVal


class Placement(NamedTuple):
    """The scheduler of an application, with its options.

    Attributes:
        scheduler: the name of the scheduler.
        cfg: its run options.
        workspace: the folders to send, empty for none.
    """

    scheduler: str
    cfg: dict[str, CfgVal]
    workspace: str


def placement(request: RunRequest, runner: Runner, config: Config) -> Placement:
    """Returns the scheduler, the run options and the workspace of a request.

    Raises:
        UsageError: the scheduler or its options are invalid.
    """
    named = config.get("cli:run", "scheduler")
    scheduler = request.scheduler or (named.value if named else runner.default_scheduler)
    if named and not request.scheduler:
        request.origins["unknown_scheduler"] = f"from {named.origin}"
    cfg = run_options(request, scheduler, runner, config)

    workspace = request.workspace
    if workspace and not runner.takes_workspace(scheduler):
        raise UsageError(f"{scheduler} does not support workspaces (from --workspace)")
    configured = config.get("cli:run", "workspace")
    if workspace is None and configured is not None and configured.value:
        if runner.takes_workspace(scheduler, requested=False):
            workspace = located(configured).value
            request.origins["unknown_workspace"] = f"from {configured.origin}"
        elif runner.takes_workspace(scheduler):
            note(
                f"note: {scheduler} runs in the working directory; the workspace from {configured.origin} is "
                "ignored without --workspace"
            )
        else:
            note(
                f"note: {scheduler} does not support workspaces; the one from {configured.origin} is ignored"
            )
    return Placement(scheduler, cfg, workspace or "")
