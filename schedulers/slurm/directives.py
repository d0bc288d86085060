"""The options in the script of a Slurm job: #SBATCH lines and options of srun."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from torchx.errors import UsageError
from torchx.schedulers.shared.batch.quoting import quote
from torchx.schedulers.shared.batch.script import Dialect
from torchx.schedulers.shared.batch.services import ends_together
from torchx.schedulers.slurm.limits import limits_of, options_of
from torchx.schedulers.slurm.options import WHOLE_JOB, is_option, sbatch_options
from torchx.specs.app import AppDef, Role
from torchx.specs.mounts import BindMount
from torchx.specs.run_options import CfgVal, RunOptions
from torchx.suggestions import did_you_mean


def directive(name: str, value: object) -> str:
    """Returns an #SBATCH line.

    >>> directive("exclusive", True), directive("comment", 'a "b" # c')
    ('#SBATCH --exclusive', '#SBATCH --comment="a \\\\"b\\\\" # c"')
    """
    if value is True:
        return f"#SBATCH --{name}"
    text = str(value)
    if not text or not _PLAIN.issuperset(text):
        inner = text.replace("\\", "\\\\").replace('"', '\\"')
        text = f'"{inner}"'
    return f"#SBATCH --{name}={text}"


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,=@%+[]&|*~")


METADATA = "slurm"
"""Key in a role's metadata for sbatch options of that role."""


def directives(app: AppDef, cfg: RunOptions, name: str, mark: str) -> Iterator[str]:
    """Yields the #SBATCH lines: options of the whole job, then those of each role.

    Args:
        app: the application.
        cfg: run options.
        name: the name of the job.
        mark: appended to the comment.
    """
    options = sbatch_options(cfg)
    comment = f"{options.pop('comment', '')} {mark}".strip()
    whole: dict[str, CfgVal] = {"job-name": name, "comment": comment, "output": "/dev/null"}
    whole.update((key, value) for key, value in options.items() if key in WHOLE_JOB)
    whole.update((key, value) for key, value in options_of(limits_of(cfg)) if key in WHOLE_JOB)
    for key, value in whole.items():
        yield directive(key, value)
    if "requeue" not in options:
        yield _requeue(app, cfg)
    for number, role in enumerate(app.roles):
        if number:
            yield "#SBATCH hetjob"
        for key, value in role_options(role, cfg).items():
            yield directive(key, value)


def _requeue(app: AppDef, cfg: RunOptions) -> str:
    """Returns the #SBATCH line on whether Slurm may requeue the job (default: if a role has retries)."""
    requeue = cfg.get("requeue")
    if isinstance(requeue, str):
        return directive("requeue", requeue)
    if requeue is None:
        limits = limits_of(cfg)
        requeue = limits.requeues > 0 or limits.by_engine or any(role.max_retries > 0 for role in app.roles)
    if requeue:
        return "#SBATCH --requeue"
    return "#SBATCH --no-requeue"


def role_options(role: Role, cfg: RunOptions) -> dict[str, CfgVal]:
    """Returns the sbatch options of one role.

    >>> from torchx.specs.resources import Resource
    >>> role_options(Role("r", "", num_replicas=2, resource=Resource(cpu=4, gpu=0, memMB=4096)), {})
    {'ntasks': 2, 'cpus-per-task': 4, 'mem-per-cpu': '1024M'}
    """
    requested = _requested(role, cfg)
    options: dict[str, CfgVal] = {"ntasks": role.num_replicas}
    if role.resource.gpu > 0 and not any(map(_has_gpus, requested.items())):
        options |= _gpu_options(role, cfg)
    if role.resource.cpu > 0 and not _gives_cpus(requested):
        options["cpus-per-task"] = role.resource.cpu
    if role.resource.memMB > 0 and not _MEMORY & requested.keys():
        options |= _memory_options(role, requested)
    if "gres" in options and "gres" in requested:
        requested["gres"] = f"{options['gres']},{requested['gres']}"
    options.update(requested)
    if "overcommit" in options:
        options.pop("cpus-per-task", None)  # Slurm 26.05 never starts a job with both: the step has it
    per_node = options.get("ntasks-per-node")
    if per_node is not None and first_number(per_node) > role.num_replicas:
        options["ntasks-per-node"] = role.num_replicas  # Slurm 26.05 never starts a job with more
    for key, value in options_of(limits_of(cfg)):
        if key not in WHOLE_JOB:
            options.setdefault(key, value)
    return options


def _requested(role: Role, cfg: RunOptions) -> dict[str, CfgVal]:
    """Returns the options that the user gave for a role."""
    given = {**sbatch_options(cfg), **_metadata_options(role)}
    return {key: given[key] for key in given if key not in WHOLE_JOB and not _is_of_plugin(key)}


_MEMORY = {"mem", "mem-per-cpu", "mem-per-gpu"}
"""The options that request memory."""
_GPUS = {"gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "ntasks-per-gpu"}
"""The options that request GPUs."""
_GPU_NAMES = r"\b(gpu|mps|shard)\b"
_CPU_NAME = r"\bcpu[:=](\d+)"


def _has_gpus(option: tuple[str, CfgVal]) -> bool:
    """Returns True if an option with its value requests GPUs."""
    name, value = option
    return name in _GPUS or (name in ("gres", "tres-per-task") and bool(re.search(_GPU_NAMES, str(value))))


def _gives_cpus(requested: RunOptions) -> bool:
    """Returns True if options give CPUs to replicas that sbatch does not accept beside ``cpus-per-task``."""
    return "cpus-per-gpu" in requested or bool(re.search(_CPU_NAME, str(requested.get("tres-per-task"))))


def _gpu_options(role: Role, cfg: RunOptions) -> dict[str, CfgVal]:
    by, gpus = str(cfg.get("gpu_option") or "gpus-per-task"), role.resource.gpu
    if by == "gpus-per-task":
        return {by: gpus}
    value = {"gres": f"gpu:{gpus}"}.get(by, gpus)
    return {"nodes": role.num_replicas, "ntasks-per-node": 1, by: value}


def _memory_options(role: Role, requested: RunOptions) -> dict[str, CfgVal]:
    memory = role.resource.memMB
    if requested.get("exclusive") is True:  # mem-per-cpu would be multiplied by all CPUs of the node
        return {"mem": 0}
    if "overcommit" in requested:  # replicas share CPUs, but not memory
        nodes = first_number(requested.get("nodes"))
        tasks = math.ceil(role.num_replicas / nodes)
        return {"mem": f"{memory * min(tasks, first_number(requested.get('ntasks-per-node'), tasks))}M"}
    return {"mem-per-cpu": f"{math.ceil(memory / max(_cpus_of_replica(role, requested), 1))}M"}


def _cpus_of_replica(role: Role, requested: RunOptions) -> int:
    """Returns the number of CPUs of a replica."""
    if "cpus-per-gpu" in requested:
        return first_number(requested["cpus-per-gpu"]) * max(role.resource.gpu, 1)
    if match := re.search(_CPU_NAME, str(requested.get("tres-per-task"))):
        return int(match[1])
    return first_number(requested.get("cpus-per-task"), int(role.resource.cpu))


def first_number(value: CfgVal, otherwise: int = 1) -> int:
    """Returns the number at the start of an option's value, the least one of a range.

    >>> first_number("3-9"), first_number(2), first_number(None, 7)
    (3, 2, 7)
    """
    match = re.match(r"[1-9][0-9]{0,8}", str(value))
    if match:
        return int(match[0])
    return otherwise


def _metadata_options(role: Role) -> dict[str, CfgVal]:
    metadata = role.metadata.get(METADATA)
    if not isinstance(metadata, Mapping):
        return {}
    options: dict[str, CfgVal] = {}
    for name, value in metadata.items():
        key = str(name).replace("_", "-")
        if key in WHOLE_JOB or not is_option(key):
            raise UsageError(
                f"`{name}` in the metadata of role `{role.name}` is not an sbatch option for a role",
                hint=did_you_mean(key, ("constraint", "partition", "gres", "exclusive", "nodelist", "qos")),
            )
        if value is not None and value is not False:
            if isinstance(value, (int, float)):
                options[key] = value
            else:
                options[key] = str(value)
    return options


_OF_SLURM = ("container-id", "container-type")
"""Options for OCI containers, which are not those of the container plugin."""


def _is_of_plugin(name: str) -> bool:
    return name.startswith(("container-", "no-container-")) and name not in _OF_SLURM


def container_options(cfg: RunOptions) -> dict[str, CfgVal]:
    """Returns the options of the container plugin, which are passed to srun."""
    return {key: value for key, value in sbatch_options(cfg).items() if _is_of_plugin(key)}


def srun_options(number: int, app: AppDef, cfg: RunOptions) -> str:
    """Returns the srun options of a role's step, quoted for a shell.

    Args:
        number: the number of the role.
        app: its application.
        cfg: run options.
    """
    role = app.roles[number]
    options: dict[str, CfgVal] = {}
    if len(app.roles) > 1:
        options = {"het-group": number}
    options["ntasks"] = role.num_replicas
    requested = _requested(role, cfg)
    cpus = requested.get("cpus-per-task")
    if cpus is None and role.resource.cpu > 0 and not _gives_cpus(requested):
        cpus = role.resource.cpu
    if cpus is not None:
        options["cpus-per-task"] = cpus  # since 22.05, srun does not inherit it from sbatch
    options |= {"kill-on-bad-exit": int(ends_together(role, cfg)), "wait": 0, "export": "ALL"}
    arguments = [f"--{key}={quote(str(value))}" for key, value in options.items()]
    return " ".join([*arguments, *_plugin_arguments(role, cfg)])


def _plugin_arguments(role: Role, cfg: RunOptions) -> Iterator[str]:
    """Yields the srun options of the container plugin."""
    containers = container_options(cfg)
    if cfg.get("containers") in (True, "pyxis") and role.image:
        containers = {"container-image": plugin_image_name(role.image), **containers}
    if not containers:
        return
    mounts = ",".join(_binds(role))
    more = containers.pop("container-mounts", "")
    rest = "".join(f",{text}" for text in (mounts, more) if text)
    yield from (
        f"--{key}" if value is True else f"--{key}={quote(str(value))}" for key, value in containers.items()
    )
    yield f'--container-mounts="$folder:$folder"{quote(rest) if rest else ""}'


def _binds(role: Role) -> Iterator[str]:
    for mount in role.mounts:
        if isinstance(mount, BindMount):
            yield f"{mount.src_path}:{mount.dst_path}{':ro' if mount.read_only else ''}"


def apptainer_command(role: Role, cfg: RunOptions, root: str) -> str:
    """Returns the start of the command of a role that runs in its image with Apptainer; empty without.

    Args:
        role: the role.
        cfg: run options.
        root: its working directory, quoted for a shell, or an empty string.
    """
    if cfg.get("containers") != "apptainer":
        return ""
    gpus = ["--nv"] if role.resource.gpu > 0 else []
    binds = [f"--bind {text}" for text in (*([root] if root else []), *map(quote, _binds(role)))]
    if is_image_file(role.image):
        image = role.image
    else:
        image = f"docker://{role.image}"
    return " ".join(["apptainer exec", *gpus, '--bind "$folder"', *binds, quote(image)]) + " "


def is_image_file(image: str) -> bool:
    """Returns True if an image of Apptainer is a file, or has a scheme such as ``oras://``.

    >>> [is_image_file(image) for image in ("/images/a.sif", "a.sif", "oras://x/y", "pytorch/pytorch:2.9")]
    [True, True, True, False]
    """
    return image.startswith(("/", "./", "../")) or image.endswith(".sif") or "://" in image


def plugin_image_name(image: str) -> str:
    """Returns an image name for the container plugin, with ``#`` after the registry host.

    >>> [plugin_image_name(name) for name in ("ghcr.io/a/b:1", "pytorch/pytorch:2.9", "/images/a.sqsh")]
    ['ghcr.io#a/b:1', 'pytorch/pytorch:2.9', '/images/a.sqsh']
    """
    registry = re.match(r"(?:[\w-]+(?:\.[\w.-]+|:\d+)[\w.:-]*|localhost)/", image)
    if registry:
        return image.replace("/", "#", 1)
    return image


def in_containers(cfg: RunOptions) -> bool:
    """Returns True if replicas run in containers."""
    return bool(cfg.get("containers")) or "container-image" in container_options(cfg)


DIALECT = Dialect(
    "slurm",
    "torchx_replica=$SLURM_PROCID torchx_host=$SLURMD_NODENAME torchx_kills=",
    directives,
    limits_of,
    srun_options,
    apptainer_command,
)
"""The parts of a script that belong to Slurm."""
