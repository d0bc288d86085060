"""What is asked of Slurm for an application: the lines of #SBATCH, and the options of srun."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from torchx.errors import UsageError
from torchx.schedulers.slurm.options import WHOLE_JOB, is_option, sbatch_options
from torchx.schedulers.slurm.quoting import directive, word
from torchx.specs.app import AppDef, Role
from torchx.specs.mounts import BindMount
from torchx.specs.run_options import CfgVal
from torchx.suggestions import did_you_mean

METADATA = "slurm"
"""Metadata of a role: options of sbatch for that role alone, by name."""


def directives(app: AppDef, cfg: Mapping[str, CfgVal], name: str, mark: str) -> Iterator[str]:
    """Yields the lines of #SBATCH: what is asked for each role, after what holds for the whole job.

    Args:
        app: the application.
        cfg: run options.
        name: the name of the job.
        mark: what stands at the end of its comment.
    """
    asked = sbatch_options(cfg)
    comment = f"{asked.pop('comment', '')} {mark}".strip()
    whole: dict[str, CfgVal] = {"job-name": name, "comment": comment, "output": "/dev/null"}
    whole.update((key, value) for key, value in asked.items() if key in WHOLE_JOB)
    for key, value in whole.items():
        yield directive(key, value)
    yield "#SBATCH --requeue" if requeues(app, cfg) else "#SBATCH --no-requeue"
    for number, role in enumerate(app.roles):
        if number:
            yield "#SBATCH hetjob"
        for key, value in role_options(role, cfg).items():
            yield directive(key, value)


def requeues(app: AppDef, cfg: Mapping[str, CfgVal]) -> bool:
    """Tells whether Slurm may start the job again: as told, else when it has retries."""
    told = cfg.get("requeue")
    return bool(told) if told is not None else any(role.max_retries > 0 for role in app.roles)


def role_options(role: Role, cfg: Mapping[str, CfgVal]) -> dict[str, CfgVal]:
    """Returns the options of sbatch for one role.

    >>> from torchx.specs.resources import Resource
    >>> role_options(Role("r", "", num_replicas=2, resource=Resource(cpu=4, gpu=0, memMB=4096)), {})
    {'ntasks': 2, 'cpus-per-task': 4, 'mem-per-cpu': '1024M'}
    """
    asked = {
        key: value
        for key, value in {**sbatch_options(cfg), **_own(role)}.items()
        if key not in WHOLE_JOB and not key.startswith(_CONTAINER)
    }
    found: dict[str, CfgVal] = {"ntasks": role.num_replicas}
    by = str(cfg.get("gpu_option") or "gpus-per-task")
    resource = role.resource
    if resource.gpu > 0 and not any(key.startswith(("gpus", "gres")) for key in asked):
        if by == "gpus-per-task":
            found[by] = resource.gpu
        else:
            found |= {"nodes": role.num_replicas, "ntasks-per-node": 1}
            found[by] = f"gpu:{resource.gpu}" if by == "gres" else resource.gpu
    if resource.cpu > 0:
        found["cpus-per-task"] = resource.cpu
    if resource.memMB > 0 and not any(key.startswith("mem") for key in asked):
        if asked.get("exclusive") is True:  # each CPU of a whole node would count, asked for or not
            found["mem"] = 0
        else:
            found["mem-per-cpu"] = f"{math.ceil(resource.memMB / max(resource.cpu, 1))}M"
    found.update(asked)
    return found


def _own(role: Role) -> dict[str, CfgVal]:
    given = role.metadata.get(METADATA)
    if not isinstance(given, Mapping):
        return {}
    found: dict[str, CfgVal] = {}
    for name, value in given.items():
        key = str(name).replace("_", "-")
        if key in WHOLE_JOB or not is_option(key):
            raise UsageError(
                f"role `{role.name}` has in its metadata `{name}`, which is no option of sbatch for a role",
                hint=did_you_mean(key, ("constraint", "partition", "gres", "exclusive", "nodelist", "qos")),
            )
        if value is not None and value is not False:
            found[key] = value if isinstance(value, (int, float)) else str(value)
    return found


_CONTAINER = ("container-", "no-container-")


def container_options(cfg: Mapping[str, CfgVal]) -> dict[str, CfgVal]:
    """Returns the options of the container plugin, which go to srun."""
    return {key: value for key, value in sbatch_options(cfg).items() if key.startswith(_CONTAINER)}


def srun_options(role: Role, cfg: Mapping[str, CfgVal], group: int | None) -> str:
    """Returns the options of the step that runs a role, as words of a shell."""
    options: dict[str, CfgVal] = {} if group is None else {"het-group": group}
    options["ntasks"] = role.num_replicas
    if role.resource.cpu > 0 or "cpus-per-task" in sbatch_options(cfg):
        # srun takes it from sbatch no more since 22.05
        options["cpus-per-task"] = role_options(role, cfg)["cpus-per-task"]
    options |= {"kill-on-bad-exit": int(bool(cfg.get("fail_fast", True))), "wait": 0, "export": "ALL"}
    containers = container_options(cfg)
    if cfg.get("containers") and role.image:
        containers = {"container-image": image_word(role.image), **containers}
    if containers:
        binds = [m for m in role.mounts if isinstance(m, BindMount)]
        mounts = [f"{m.src_path}:{m.dst_path}{':ro' if m.read_only else ''}" for m in binds]
        more = containers.get("container-mounts")
        containers["container-mounts"] = ",".join(
            ["${folder}:${folder}", *mounts, *([str(more)] if more else [])]
        )
    words = [f"--{key}={word(str(value))}" for key, value in options.items()]
    for key, value in containers.items():
        if value is True:
            words.append(f"--{key}")
        elif key == "container-mounts":
            rest = str(value).removeprefix("${folder}:${folder}")
            words.append(f'--{key}="$folder:$folder"{word(rest) if rest else ""}')
        else:
            words.append(f"--{key}={word(str(value))}")
    return " ".join(words)


def image_word(image: str) -> str:
    """Returns an image as the plugin wants it: the host of a registry is set off by ``#``.

    >>> image_word("ghcr.io/a/b:1"), image_word("pytorch/pytorch:2.9"), image_word("/images/a.sqsh")
    ('ghcr.io#a/b:1', 'pytorch/pytorch:2.9', '/images/a.sqsh')
    """
    registry = re.match(r"(?:[\w-]+(?:\.[\w.-]+|:\d+)[\w.:-]*|localhost)/", image)
    return image.replace("/", "#", 1) if registry else image


def in_containers(cfg: Mapping[str, CfgVal]) -> bool:
    """Tells whether replicas run in containers."""
    return bool(cfg.get("containers")) or "container-image" in container_options(cfg)
