"""The run option that limits the size of a workspace."""

from __future__ import annotations

from contextvars import ContextVar

from torchx.specs.run_options import RunOptions, runopt, runopts

LIMIT_NAME = "workspace_limit_mb"
LIMIT_MB = 1024
"""Default largest workspace, in MB."""
LIMIT = runopt(LIMIT_MB, int, False, "largest workspace, in MB")

hold: ContextVar[bool] = ContextVar("hold", default=False)
"""Whether a dry-run keeps the files of workspaces: their folders may be removed before the submission."""


def add_limit(opts: runopts) -> None:
    """Adds the option."""
    opts.add(LIMIT_NAME, LIMIT.opt_type, LIMIT.help, LIMIT.default)


def limit_of(cfg: RunOptions) -> int | None:
    """Returns the largest workspace, in MB, or None for no limit."""
    limit = cfg.get(LIMIT_NAME)
    if isinstance(limit, int):
        return limit
    return None
