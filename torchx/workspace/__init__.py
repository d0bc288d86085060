"""Workspaces: folders that travel with a job. Documented names: those of :mod:`torchx.workspace.api`."""

from __future__ import annotations
