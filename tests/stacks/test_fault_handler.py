"""Python prints its stacks if a signal ends it, on each engine."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from torchx.runner import get_runner
from torchx.specs.app import AppDef, Role


@pytest.mark.parametrize("scheduler", ["local_cwd", "local_docker", "slurm", "kubernetes"])
def test_the_request_switches_the_fault_handler_on(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONFAULTHANDLER", raising=False)
    for own, expected in (({}, "1"), ({"PYTHONFAULTHANDLER": "0"}, "0")):
        role = Role("w", image="image", entrypoint="sh", args=["-c", "true"], env=dict(own))
        with get_runner() as runner:
            cfg = {"partition": "any"} if scheduler == "slurm" else {}
            request = str(runner.dryrun(AppDef("job", [role]), scheduler, cfg))
        lines = [line for line in request.splitlines() if "PYTHONFAULTHANDLER" in line]
        assert lines, request
        if scheduler != "slurm":
            form = rf"PYTHONFAULTHANDLER(=|\n *value: )['\"]?{expected}"
            assert re.search(form, request), request
            continue
        script = lines[0].removeprefix("#| ") + '\nprintf %s "$PYTHONFAULTHANDLER"'
        for given, printed in (({}, "1"), ({"PYTHONFAULTHANDLER": "2"}, "2")):
            env = {"PATH": os.environ["PATH"], **given}
            done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, check=True)
            assert done.stdout == printed
        assert ("PYTHONFAULTHANDLER=0" in request) is bool(own)
