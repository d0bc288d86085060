"""Submit a request: create the folder of the job, call sbatch, write the record."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from torchx.errors import RunOptionError, StateError, UsageError
from torchx.json_limits import without_none
from torchx.lazy import lazy_imports
from torchx.schedulers.shared.batch.folders import keep_submitted, remove, write_files
from torchx.schedulers.shared.batch.paths import BatchPaths, write
from torchx.schedulers.shared.batch.record import BatchRecord, Records
from torchx.schedulers.shared.batch.workspaces import copy
from torchx.schedulers.shared.options import progress_of
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.checks import check_nodes, check_tasks
from torchx.schedulers.slurm.directives import in_containers, plugin_image_name
from torchx.schedulers.slurm.options import sbatch_options
from torchx.schedulers.slurm.request import SlurmRequest
from torchx.scheduling.checks import require_application
from torchx.specs.app import AppDef, AppDryRunInfo
from torchx.specs.run_options import RunOptions
from torchx.specs.serialize import app_to_dict

with lazy_imports:
    from torchx.schedulers.docker.images import workspace


NO_MEMORY = 1000
"""Maximum MB of nodes without configured memory, for which Slurm rejects requests for memory."""
_MEMORY = r"(?m)^#SBATCH --mem(?:-per-cpu)?=.*\n"


def schedule(info: AppDryRunInfo[SlurmRequest], session: str) -> str:
    """Submits a request with the copies and images of its workspaces, and returns the id of the job.

    Raises:
        UsageError: the cluster cannot run it, or the request was already submitted.
        StateError: Slurm is missing, does not respond or rejects the job, or a folder cannot be created.
    """
    app = require_application(info)
    request, notes = provide_workspaces(info.request, progress_of(info))
    job_id, more = submit(request, app, info.cfg, session)
    info.notes += notes + more
    return str(job_id)


def submit(request: SlurmRequest, app: AppDef, cfg: RunOptions, session: str) -> tuple[int, list[str]]:
    """Submits a job.

    Returns:
        Its id, and notes, one line each.

    Raises:
        UsageError: the cluster cannot run it, or the request was already submitted.
        StateError: Slurm is missing, does not respond or rejects the job, or its folder cannot be created.
    """
    check_cluster()
    check_supported(request.script, cfg)
    paths = BatchPaths(Path(request.folder))
    created: list[Path] = []
    notes: list[str] = []
    try:
        for folder in request.folders:
            write_files(request, folder, created)
    except BaseException:
        remove(created)
        raise
    try:
        job_id = sbatch(request, paths, notes)
    except BaseException:
        remove(created)
        Records("slurm").mark_deleted(request.token)  # Slurm lists some jobs that it has rejected
        raise
    record = record_of(request, app, cfg, session, job_id)
    keep_submitted(record, ["scancel", str(job_id)], client.call)
    return job_id, notes


def record_of(request: SlurmRequest, app: AppDef, cfg: RunOptions, session: str, job_id: int) -> BatchRecord:
    """Returns the record of a job that was submitted now."""
    return BatchRecord(
        job_id=job_id,
        token=request.token,
        name=app.name,
        job_name=str(sbatch_options(cfg).get("job-name") or request.name),
        session=session,
        folder=request.folder,
        submitted_at=time.time(),
        app=app_to_dict(app, strict=False),
        cfg=without_none(cfg),
        fallback=request.fallback,
    )


def provide_workspaces(
    request: SlurmRequest, report: Callable[[str], None]
) -> tuple[SlurmRequest, list[str]]:
    """Creates missing copies and images of the workspaces.

    Returns:
        The request with the names of pushed images, and notes.

    Raises:
        StateError: a copy cannot be created, or an image cannot be built or pushed.
    """
    for folder, tree, fallback in request.copies.values():
        for each in filter(None, (folder, fallback)):
            copy(tree, Path(each), report)
    if not request.builds:
        return request, []
    script = request.script
    images, notes = workspace.provide_images(request.builds, report)
    for planned, image in images.items():
        script = script.replace(plugin_image_name(planned), plugin_image_name(image))
        script = script.replace(f"docker://{planned}", f"docker://{image}")
    return replace(request, script=script), notes


def check_cluster() -> None:
    """Checks that all programs of Slurm use the same cluster.

    Raises:
        UsageError: they do not.
    """
    if (cluster := os.environ.get("SBATCH_CLUSTERS")) and not os.environ.get("SLURM_CLUSTERS"):
        raise UsageError(
            f"SBATCH_CLUSTERS={cluster} affects only sbatch, not squeue and scancel",
            hint=f"set SLURM_CLUSTERS={cluster} instead",
        )


def sbatch(request: SlurmRequest, paths: BatchPaths, notes: list[str], held: Sequence[int] = ()) -> int:
    """Calls sbatch, and returns the id of the job.

    Args:
        request: the job.
        paths: its files.
        notes: gets a note for each change of the request.
        held: descriptors of locks that are held until sbatch has ended.

    Raises:
        StateError: Slurm is missing, does not respond or rejects the job.
    """
    env = client.submit_env(options_in(request.script))
    try:
        output = client.call(request.cmd, text=request.script, env=env, held=held)
    except client.NoAnswerError:
        raise
    except client.ProgramError as error:
        if (
            "emory" not in error.output
            or not re.search(_MEMORY, _header(request.script))
            or not _memory_unconfigured(request.script)
        ):
            raise _rejection(error) from error
        script = _without_memory(request.script)
        write(paths.script, script)
        notes.append("no memory is configured for the nodes, so none is requested")
        try:
            output = client.call(request.cmd, text=script, env=env, held=held)
        except client.ProgramError as again:
            raise _rejection(again) from again
    match = re.search(r"^(\d+)(?:;.*)?$", output.strip(), re.MULTILINE)
    if match is None:
        raise StateError(f"sbatch printed no job id: {output.strip()[:200]!r}")
    return int(match[1])


def _without_memory(script: str) -> str:
    header = _header(script)
    return re.sub(_MEMORY, "", header) + script[len(header) :]


def _memory_unconfigured(script: str) -> bool:
    partition = re.search(r"^#SBATCH --partition=(\S+)$", _header(script), re.MULTILINE)
    more = []
    if partition:
        more = [f"--partition={partition[1]}"]
    output = client.answer(["sinfo", "--noheader", "--format=%m", *more])
    sizes = [int(number) for number in re.findall(r"\d+", output)]
    return bool(sizes) and max(sizes) <= NO_MEMORY


_HINTS = {
    "partition": "list partitions: sinfo -s",
    "account": "list your accounts: sacctmgr show associations user=$USER",
    "qos": "set -cfg qos=…; list them: sacctmgr show qos",
    "memory": "list node resources: sinfo -o '%n %m'",
    "node configuration": "list node resources: sinfo -o '%n %c %m %G %f'",
    "node count": "list node counts: sinfo -s",
    "gres": "list node resources: sinfo -o '%n %G'",
    "time limit": "set -cfg time=…; list limits: sinfo -o '%P %l'",
    "feature": "list node resources: sinfo -o '%n %f'",
}


def _rejection(error: client.ProgramError) -> StateError:
    message = client.full_error(error.output) or error.message
    hint = next((hint for text, hint in _HINTS.items() if text in error.output.lower()), None)
    return StateError(f"Slurm rejected the job: {message}", hint=hint, code=error.code)


def options_in(script: str) -> list[str]:
    """Returns the sbatch options in a script."""
    return re.findall(r"^#SBATCH --([a-z][a-z0-9-]*)", _header(script), re.MULTILINE)


def _header(script: str) -> str:
    """Returns the #SBATCH lines; later lines that look alike are arguments."""
    return script.partition("\n\n")[0] + "\n"


def check_supported(script: str, cfg: RunOptions) -> None:
    """Checks that the cluster supports the containers of a script, and its number of replicas.

    Args:
        script: the script for sbatch.
        cfg: run options.

    Raises:
        UsageError: the containers are not supported, a node gets more replicas than Slurm starts on
            one, or the roles need more nodes than their partition has.
    """
    if cfg.get("containers") == "apptainer" and shutil.which("apptainer") is None:
        raise RunOptionError(
            "containers",
            "is apptainer, which is not on PATH",
            hint="load it first, e.g. module load apptainer; or use the plugin of srun: containers=pyxis",
        )
    check_tasks(_header(script))
    check_nodes(_header(script))
    plugin = in_containers(cfg) and cfg.get("containers") != "apptainer"
    if plugin and "container-image" not in client.options_of("srun"):
        raise RunOptionError(
            "containers",
            "is not possible: this cluster has no container plugin (srun has no --container-image)",
            hint="run without: -cfg containers=false; or with Apptainer: -cfg containers=apptainer",
        )
