"""Look up the application given to a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx.specs.handles import UnknownAppException, parse_app_handle

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse


def find(runner: Runner, text: str, *, full: bool = False) -> tuple[str, DescribeAppResponse]:
    """Returns the full handle and the description of an application.

    Args:
        runner: used to query the schedulers.
        text: a handle or a short name.
        full: include roles and metadata.

    Raises:
        UnknownAppException: the application does not exist.
        UsageError: the handle is invalid or its scheduler does not exist.
    """
    handle = runner.resolve_handle(text)
    described = runner.description(handle, brief=not full)
    if described is None:
        raise UnknownAppException(handle)
    return handle, described


def short_name(runner: Runner, handle: str) -> str:
    """Returns the app id on the default scheduler, the handle elsewhere."""
    backend, _, app_id = parse_app_handle(handle)
    return app_id if backend == runner.default_scheduler else handle
