"""The older name of the scheduler of local jobs."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from importlib import import_module

    return getattr(import_module("torchx.schedulers.local.scheduler"), name)
