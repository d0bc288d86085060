"""The status of an application, from a scheduler's description."""

from __future__ import annotations

from torchx.printable import printable
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs.status import AppStatus


def status_of(described: DescribeAppResponse) -> AppStatus:
    """Returns the status in a scheduler's description of an application."""
    return AppStatus(
        state=described.state,
        num_restarts=described.num_restarts,
        msg=described.msg if isinstance(described.msg, str) else printable(described.msg),
        structured_error_msg=described.structured_error_msg,
        ui_url=described.ui_url,
        roles=described.roles_statuses,
        submitted_at=described.submitted_at,
        started_at=described.started_at,
        ended_at=described.ended_at,
        first_failure=described.first_failure,
        log_dir=described.log_dir,
        workspaces=described.workspaces,
        run=described.run,
        report_dir=described.report_dir,
        cause=described.cause,
    )
