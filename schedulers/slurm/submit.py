"""The hand that submits a request: makes the folder of a job, calls sbatch, puts the job on record."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from torchx.errors import StateError, UsageError
from torchx.machine import files
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.directives import in_containers
from torchx.schedulers.slurm.options import sbatch_options
from torchx.schedulers.slurm.parse import words
from torchx.schedulers.slurm.paths import SlurmPaths, write
from torchx.schedulers.slurm.record import Records, SlurmRecord
from torchx.schedulers.slurm.request import SlurmRequest
from torchx.schedulers.slurm.script import without_roles
from torchx.specs.app import AppDef
from torchx.specs.run_options import CfgVal
from torchx.specs.serialize import app_to_dict
from torchx.suggestions import did_you_mean

NO_MEMORY = 1000
"""MB: nodes that claim no more have memory that nobody has told Slurm of; it refuses any wish for some."""
_MEMORY = re.compile(r"^#SBATCH --mem-per-cpu=.*\n", re.MULTILINE)


def submit(
    request: SlurmRequest, app: AppDef, cfg: Mapping[str, CfgVal], session: str
) -> tuple[int, list[str]]:
    """Submits a job.

    Returns:
        Its id, and what there is to say about it, a line each.

    Raises:
        UsageError: sbatch does not take one of the options, or the request was submitted before.
        StateError: there is no Slurm, it does not answer or refuses the job, or its folder cannot be made.
    """
    _check_cluster()
    check_known(request.script, in_containers(cfg))
    paths = SlurmPaths(Path(request.folder))
    try:
        files.make_folder(paths.folder.parent)
        paths.folder.mkdir(mode=0o700)
        write(paths.script, request.script)
        write(paths.roles, without_roles(request.script)[1])
    except FileExistsError:
        raise UsageError(
            f"this request was submitted before, as {request.name}", hint="make a new one"
        ) from None
    except OSError as error:
        raise StateError(
            f"the folder of the job cannot be made: {paths.folder}: {error.strerror}",
            hint="-cfg job_dir=… names another place, that all nodes see",
        ) from error
    notes: list[str] = []
    try:
        job_id = _sbatch(request, paths, notes)
    except BaseException:
        shutil.rmtree(paths.folder, ignore_errors=True)
        Records().never(request.token)  # some jobs are kept by Slurm although it has refused them
        raise
    record = SlurmRecord(
        job_id=job_id,
        token=request.token,
        name=app.name,
        job_name=str(sbatch_options(cfg).get("job-name") or request.name),
        session=session,
        folder=request.folder,
        submitted_at=time.time(),
        app=app_to_dict(app, strict=False),
        cfg={key: value for key, value in cfg.items() if value is not None},
    )
    try:
        write(paths.id, str(job_id))
        Records().add(record)
    except BaseException:
        client.call(["scancel", str(job_id)])
        raise
    return job_id, notes


def _check_cluster() -> None:
    if (named := os.environ.get("SBATCH_CLUSTERS")) and not os.environ.get("SLURM_CLUSTERS"):
        raise UsageError(
            f"SBATCH_CLUSTERS={named} leads sbatch to a cluster that squeue and scancel are not led to",
            hint=f"SLURM_CLUSTERS={named} leads all of them there",
        )


def _sbatch(request: SlurmRequest, paths: SlurmPaths, notes: list[str]) -> int:
    env = client.submit_env(options_in(request.script))
    script, _ = without_roles(request.script)
    try:
        said = client.call(request.cmd, text=script, env=env)
    except client.NoAnswerError:
        raise
    except client.SlurmError as error:
        if "emory" not in error.said or not _MEMORY.search(_header(script)) or not _claims_no_memory(script):
            raise _refusal(error) from error
        write(paths.script, _without_memory(request.script))
        notes.append("the nodes have told Slurm of no memory, so none is asked for")
        try:
            said = client.call(request.cmd, text=_without_memory(script), env=env)
        except client.SlurmError as again:
            raise _refusal(again) from again
    found = re.search(r"^(\d+)(?:;.*)?$", said.strip(), re.MULTILINE)
    if found is None:
        raise StateError(f"sbatch gave no id of a job: {said.strip()[:200]!r}")
    return int(found[1])


def _without_memory(script: str) -> str:
    header = _header(script)
    return _MEMORY.sub("", header) + script[len(header) :]


def _claims_no_memory(script: str) -> bool:
    partition = re.search(r"^#SBATCH --partition=(\S+)$", _header(script), re.MULTILINE)
    more = [f"--partition={partition[1]}"] if partition else []
    try:
        told = client.call(["sinfo", "--noheader", "--format=%m", *more])
    except StateError:
        return False
    sizes = [int(number) for number in re.findall(r"\d+", told)]
    return bool(sizes) and max(sizes) <= NO_MEMORY


_HINTS = {
    "partition": "all partitions: sinfo -s",
    "account": "your accounts: sacctmgr show associations user=$USER",
    "qos": "-cfg qos=…   all of them: sacctmgr show qos",
    "memory": "what nodes have: sinfo -o '%n %m'",
    "node configuration": "what nodes have: sinfo -o '%n %c %m %G %f'",
    "node count": "what there is: sinfo -s",
    "gres": "what nodes have: sinfo -o '%n %G'",
    "time limit": "-cfg time=…   the limits: sinfo -o '%P %l'",
    "feature": "what nodes have: sinfo -o '%n %f'",
}


def _refusal(error: client.SlurmError) -> StateError:
    said = client.whole_error(error.said) or error.message
    hint = next((hint for words, hint in _HINTS.items() if words in error.said.lower()), None)
    return StateError(f"Slurm refuses the job: {said}", hint=hint)


def options_in(script: str) -> list[str]:
    """Returns the options that a script has."""
    return re.findall(r"^#SBATCH --([a-z][a-z0-9-]*)", _header(script), re.MULTILINE)


def _header(script: str) -> str:
    """Returns the lines that sbatch reads: in those behind, an argument may look like one of them."""
    return script.partition("\n\n")[0] + "\n"


def check_known(script: str, contained: bool) -> None:
    """Looks whether sbatch and srun on this machine take all options of a script.

    Args:
        script: what sbatch is given.
        contained: whether its replicas run in containers.

    Raises:
        UsageError: one of them does not take one.
    """
    known = client.options_of("sbatch")
    if known is None:
        return  # there is none, or it is broken: sbatch itself will tell
    for name in options_in(script):
        if name not in known and name not in UNTOLD:
            raise UsageError(
                f"this sbatch takes no --{name}", hint=did_you_mean(name, known, "all: sbatch --help")
            )
    if contained and "container-image" not in (client.options_of("srun") or ()):
        raise UsageError(
            "this cluster has no plugin for containers: its srun takes no --container-image",
            hint="without containers: -cfg containers=false",
        )


UNTOLD = words(
    "ntasks ntasks-per-node requeue no-requeue hint mem-bind network resv-ports acctg-freq "
    "kill-on-invalid-dep open-mode batch gid uid wait-all-nodes container prefer tres-per-task extra"
)
"""Options that some releases take and leave out of their help."""
