"""Conformance tests of the queue of this machine."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from torchx.errors import StateError
from torchx.leases import gpus
from torchx.leases.holders import take
from torchx.scheduling.base import AnyScheduler, Waits
from torchx.specs.resources import Resource
from torchx.specs.status import AppState
from torchx.testing.limits import LimitConformance

DRIVER = """#!/bin/sh
if [ "$1" = -L ]; then echo "GPU 0: a GPU (UUID: {id})"; fi
"""
"""A program `nvidia-smi` of a machine with one GPU."""


class WaitingConformance(LimitConformance):
    """Tests that applications wait for resources, if the scheduler declares ``waits_in_queue``."""

    @pytest.fixture
    def _busy_gpus(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """A machine whose GPUs, at least one, are all in use."""
        program = tmp_path / "nvidia-smi"
        program.write_text(DRIVER.format(id=f"GPU-{secrets.token_hex(8)}"))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.delenv(gpus.CUDA_VISIBLE_DEVICES, raising=False)
        with ExitStack() as held:
            for gpu in gpus.visible_gpus(os.environ):
                if (lease := take([gpu.lease])) is not None:
                    held.enter_context(lease)
            yield

    @pytest.mark.usefixtures("_busy_gpus")
    def test_an_application_waits_for_its_resources(self, scheduler: AnyScheduler) -> None:
        options = {name for name, _ in scheduler.run_opts()}
        if not scheduler.waits_in_queue:
            assert "no_wait" not in options, "`waits_in_queue` is not declared"
            return
        assert {"priority", "no_wait"} <= options
        app = self.app(self.role("true", resource=Resource(cpu=1, gpu=1, memMB=256)))
        with pytest.raises(StateError):
            self.submit(scheduler, app, no_wait=True)
        first, second = (self.submit(scheduler, app) for _ in range(2))
        status = self.until_state(scheduler, second, AppState.SUBMITTED)
        assert status.msg.startswith("waiting for 1 GPU: 0 of "), status.msg
        assert status.msg.endswith("; second in the queue"), status.msg
        assert scheduler.may_wait(second)
        assert {first, second} <= {row.app_id for row in scheduler.list(self.cfg)}
        if isinstance(scheduler, Waits):
            assert scheduler.wait(second, timeout=0.1) is False
        for app_id in (first, second):
            scheduler.cancel(app_id)
            self.check_ends(scheduler, app_id, AppState.CANCELLED)
            assert not scheduler.may_wait(app_id)
            scheduler.delete(app_id)
            assert not scheduler.exists(app_id)
