"""Finding the application that a command is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx.specs.handles import UnknownAppException, parse_app_handle

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse


def find(runner: Runner, text: str, *, whole: bool = False) -> tuple[str, DescribeAppResponse]:
    """Returns the handle that a person means, and how the application fares.

    Args:
        runner: who knows the schedulers.
        text: a handle, or a short name of one.
        whole: tell also what the application is.

    Raises:
        UnknownAppException: no scheduler knows it.
        UsageError: the text is no handle, or names a scheduler that does not exist.
    """
    handle = runner.resolve_handle(text)
    described = runner.description(handle, brief=not whole)
    if described is None:
        raise UnknownAppException(handle)
    return handle, described


def short(runner: Runner, handle: str) -> str:
    """Returns what to type for an application: the app id on the default scheduler, else the handle."""
    backend, _, app_id = parse_app_handle(handle)
    return app_id if backend == runner.default_scheduler else handle
