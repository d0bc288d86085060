"""Submit a request: create the folder of the job, call qsub, write the record."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from torchx.errors import UsageError
from torchx.json_limits import without_none
from torchx.schedulers.gridengine import commands
from torchx.schedulers.gridengine.commands import OF_JOBS, NoAnswerError, ProgramError, one_line
from torchx.schedulers.gridengine.jobs import ENGINE
from torchx.schedulers.gridengine.request import GridEngineRequest, environment_file
from torchx.schedulers.shared.batch.folders import keep_submitted, remove, write_files
from torchx.schedulers.shared.batch.paths import NODE_FOLDER, BatchPaths, write
from torchx.schedulers.shared.batch.record import BatchRecord
from torchx.schedulers.shared.batch.workspaces import copy
from torchx.schedulers.shared.options import progress_of
from torchx.scheduling.checks import require_application
from torchx.specs.app import AppDryRunInfo
from torchx.specs.serialize import app_to_dict

_ID = r"([0-9]{1,18})(?:\.[0-9:-]+)?\s*"


def schedule(info: AppDryRunInfo[GridEngineRequest], session: str) -> str:
    """Submits a request with the copies of its workspaces, and returns the id of the job.

    Raises:
        UsageError: the request was already submitted.
        StateError: Grid Engine is missing, does not respond or rejects the job.
    """
    app, request, cfg = require_application(info), info.request, info.cfg
    commands.require("qsub")
    for folder, tree, _ in request.copies.values():
        copy(tree, Path(folder), progress_of(info))
    created: list[Path] = []
    paths = BatchPaths(Path(request.folder))
    try:
        write_files(request, paths.folder, created)
        if cfg.get("export", True):
            env = {name: value for name, value in os.environ.items() if not re.fullmatch(OF_JOBS, name)}
            write(paths.folder / NODE_FOLDER / "environment.sh", environment_file(env))
        job_id = qsub(request, paths)
    except BaseException:
        remove(created)
        raise
    record = BatchRecord(
        job_id=job_id,
        token=request.token,
        name=app.name,
        job_name=request.name,
        session=session,
        folder=request.folder,
        submitted_at=time.time(),
        app=app_to_dict(app, strict=False),
        cfg=without_none(cfg),
        engine=ENGINE,
    )
    keep_submitted(record, ["qdel", str(job_id)], commands.call)
    return str(job_id)


def qsub(request: GridEngineRequest, paths: BatchPaths) -> int:
    """Submits the script of a job, and returns its id.

    Raises:
        UsageError: the cluster does not have its queue, its parallel environment or a resource.
        StateError: Grid Engine does not respond or rejects the job.
    """
    try:
        output = commands.call([*request.cmd, str(paths.script)])
    except NoAnswerError:
        raise
    except ProgramError as error:
        why = one_line(error.output) or error.message
        if re.search(r"parallel environment|\bPE\b", why):
            raise UsageError(
                f"Grid Engine rejected the job: {why}", hint="list them with: qconf -spl; set -cfg pe=NAME"
            ) from None
        if re.search(r"unknown resource", why):
            raise UsageError(
                f"Grid Engine rejected the job: {why}",
                hint="list them with: qconf -sc; set -cfg gpu_resource=… or memory_resource=…",
            ) from None
        raise ProgramError(f"Grid Engine rejected the job: {why}", output=error.output) from None
    match = re.search(rf"(?m)^{_ID}$", output)
    if match is None:
        raise ProgramError(f"qsub printed no id of the job: {one_line(output)}", output=output)
    return int(match[1])
