"""Small components for any scheduler: echo, a shell command, Python, a program, a file copy."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated

import torchx.specs as specs
from torchx.components.structured_arg import program_name
from torchx.version import PYTHON_IMAGE, TORCHX_IMAGE


def echo(msg: str = "hello world", image: str = PYTHON_IMAGE, num_replicas: int = 1) -> specs.AppDef:
    """Prints a message.

    Args:
        msg: what to print
        image: image to run in; not used by local_cwd
        num_replicas: how many times, each in a replica of its own
    """
    return _app("echo", image, "echo", [msg], num_replicas=num_replicas)


def touch(file: str, image: str = PYTHON_IMAGE) -> specs.AppDef:
    """Creates an empty file, or sets the time of one that exists to now.

    Args:
        file: path of the file
        image: image to run in; not used by local_cwd
    """
    return _app("touch", image, "touch", [file])


def sh(
    *args: str,
    image: str = PYTHON_IMAGE,
    num_replicas: int = 1,
    cpu: int = 1,
    gpu: int = 0,
    memMB: int = 1024,
    h: str | None = None,
    env: dict[str, str] | None = None,
    max_retries: int = 0,
    mounts: list[str] | None = None,
    entrypoint: str | None = None,
) -> specs.AppDef:
    """Runs a shell command.

    A single argument is a command line, so pipes, semicolons and variables work in it:
    torchx run utils.sh 'ls | wc -l'. Several arguments are one command, each quoted for the shell.
    Two dollar signs are replaced by one: write $$$$ for the process id of the shell.

    Args:
        args: a command line, or a command and its arguments
        image: image to run in; not used by local_cwd
        num_replicas: number of replicas
        cpu: CPUs of each replica
        gpu: GPUs of each replica
        memMB: memory of each replica, in MB
        h: named resource of each replica, such as cpu.small; replaces cpu, gpu and memMB
        env: environment variables, as A=1,B=2
        max_retries: number of restarts after failures
        mounts: mounts, as SRC:DST[:ro] or type=bind,src=SRC,dst=DST
        entrypoint: program that receives the arguments unchanged, instead of the shell
    """
    if len(args) == 1:
        line = args[0]
    else:
        line = shlex.join(args)
    if not (entrypoint or line.strip()):
        raise ValueError("nothing to run; add a command, as in utils.sh 'nvidia-smi | head'")
    return _app(
        "sh",
        image,
        entrypoint or "sh",
        list(args) if entrypoint else ["-c", line],
        num_replicas=num_replicas,
        resource=specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h),
        env={"LOGLEVEL": "WARNING", **(env or {})},
        max_retries=max_retries,
        mounts=mounts,
    )


def python(
    *args: str,
    m: str | None = None,
    c: str | None = None,
    script: str | None = None,
    image: str = TORCHX_IMAGE,
    name: str | None = None,
    cpu: int = 1,
    gpu: int = 0,
    memMB: int = 1024,
    h: str | None = None,
    num_replicas: int = 1,
    mounts: list[str] | None = None,
    max_retries: int = 0,
) -> specs.AppDef:
    """Runs a Python module, a line of Python, or a Python script: one of -m, -c and --script.

    Args:
        args: passed to the program, in sys.argv
        m: module to run
        c: text of a program
        script: path of a script
        image: image to run in; not used by local_cwd
        name: name of the application (default: that of the program)
        cpu: CPUs of each replica
        gpu: GPUs of each replica
        memMB: memory of each replica, in MB
        h: named resource of each replica, such as cpu.small; replaces cpu, gpu and memMB
        num_replicas: number of replicas
        mounts: mounts, as SRC:DST[:ro] or type=bind,src=SRC,dst=DST
        max_retries: number of restarts after failures
    """
    if m is c is script is None and args and args[0].endswith(".py"):
        raise ValueError(
            f"nothing to run; to run {args[0]}: --script {args[0]}, with its arguments after `--`"
        )
    if sum(what is not None for what in (m, c, script)) != 1:
        raise ValueError("nothing to run; add one of -m MODULE, -c TEXT and --script PATH")
    if c is not None:
        default, program = "python", ["-c", c]
    else:
        default, program = program_name(script, m), ["-m", m] if m is not None else [script or ""]
    return _app(
        name or default,
        image,
        "python",
        [*program, *args],
        role_name="python",
        num_replicas=num_replicas,
        resource=specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h),
        env={"HYDRA_MAIN_MODULE": m} if m else {},
        mounts=mounts,
        max_retries=max_retries,
    )


def binary(
    *args: str,
    entrypoint: str,
    name: str = "torchx_utils_binary",
    num_replicas: int = 1,
    cpu: int = 1,
    gpu: int = 0,
    memMB: int = 1024,
    h: str | None = None,
) -> specs.AppDef:
    """Runs a program of this machine, with no image.

    Args:
        args: passed to the program
        entrypoint: the program: a path, or a name that is found on PATH
        name: name of the application
        num_replicas: number of replicas
        cpu: CPUs of each replica
        gpu: GPUs of each replica
        memMB: memory of each replica, in MB
        h: named resource of each replica, such as cpu.small; replaces cpu, gpu and memMB
    """
    return _app(
        name,
        "<NONE>",
        entrypoint,
        list(args),
        role_name="binary",
        num_replicas=num_replicas,
        resource=specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h),
    )


COPY = """\
import shutil, sys
import fsspec
with fsspec.open(sys.argv[1], "rb") as source, fsspec.open(sys.argv[2], "wb") as target:
    shutil.copyfileobj(source, target)
"""


def copy(src: str, dst: str, image: str = TORCHX_IMAGE, mounts: list[str] | None = None) -> specs.AppDef:
    """Copies a file; both ends are paths or URLs that fsspec knows (s3://, gs://, https://).

    Args:
        src: the file to copy
        dst: the file to write
        image: image with Python and fsspec; not used by local_cwd
        mounts: mounts, as SRC:DST[:ro] or type=bind,src=SRC,dst=DST
    """
    return _app("torchx-utils-copy", image, "python", ["-c", COPY, src, dst], mounts=mounts)


BOOTH = """\
import json, sys
import fsspec
x1, x2 = float(sys.argv[1]), float(sys.argv[2])
result = {"booth_eval": (x1 + 2 * x2 - 7) ** 2 + (2 * x1 + x2 - 5) ** 2}
with fsspec.open(sys.argv[3] + "/" + sys.argv[4], "w") as file:
    json.dump(result, file, indent=2)
print(json.dumps(result))
"""


def booth(
    x1: float,
    x2: float,
    trial_idx: int = 0,
    tracker_base: str = "/tmp/torchx-util-booth",  # noqa: S108 - the documented default
    image: str = TORCHX_IMAGE,
) -> specs.AppDef:
    """Evaluates Booth's function, (x1 + 2 x2 - 7)^2 + (2 x1 + x2 - 5)^2: a target to try optimisers on.

    The result is written to the file TRACKER_BASE/TRIAL_IDX, as JSON.

    Args:
        x1: first argument
        x2: second argument
        trial_idx: number of the trial, which names the file of the result
        tracker_base: folder of the results, a path or a URL that fsspec knows
        image: image with Python and fsspec; not used by local_cwd
    """
    words = [str(x1), str(x2), tracker_base.rstrip("/"), str(trial_idx)]
    return _app("torchx-utils-booth", image, "python", ["-c", BOOTH, *words])


def hydra(
    *overrides: str,
    config_name: Annotated[str, "-cn"],
    config_dir: Annotated[str, "-cd"] = ".torchx",
) -> specs.AppDef:
    """Runs an application that is described in files of Hydra (needs hydra-core).

    The configuration has a key app whose _target_ is torchx.specs.AppDef. Macros are written as resolvers:
    ${torchx.app_id:}, ${torchx.replica_id:}, ${torchx.img_root:} and ${torchx.rank0_env:}.

    Args:
        overrides: changes to the configuration, as role.num_replicas=2
        config_name: name of the configuration, without .yaml
        config_dir: folder of the configurations
    """
    try:
        from hydra import compose, initialize_config_dir
        from hydra.utils import instantiate
        from omegaconf import OmegaConf
    except ImportError as error:
        raise ValueError("utils.hydra needs Hydra: pip install hydra-core") from error
    folder = Path(config_dir).resolve()
    if not folder.is_dir():
        raise ValueError(f"no folder {config_dir}; set the folder of the configurations with -cd")
    for macro in ("img_root", "app_id", "replica_id", "rank0_env"):
        escaped = f"\\{getattr(specs.macros, macro)}"  # Hydra resolves twice, and then removes the backslash
        OmegaConf.register_new_resolver(f"torchx.{macro}", partial(str, escaped), replace=True)
    with initialize_config_dir(str(folder), version_base=None):
        config = compose(config_name, overrides=list(overrides))
    if "app" not in config:
        raise ValueError(f"{config_name} in {config_dir} has no key `app`")
    app = instantiate(config.app, _convert_="all")
    if not isinstance(app, specs.AppDef):
        raise ValueError(
            f"`app` of {config_name} makes a {type(app).__name__}, not an AppDef: see its _target_"
        )
    return app


def _app(
    name: str,
    image: str,
    entrypoint: str,
    args: list[str],
    *,
    role_name: str | None = None,
    num_replicas: int = 1,
    resource: specs.Resource | None = None,
    env: dict[str, str] | None = None,
    max_retries: int = 0,
    mounts: list[str] | None = None,
) -> specs.AppDef:
    """Returns an application of one role."""
    role = specs.Role(
        name=role_name or name,
        image=image,
        entrypoint=entrypoint,
        args=args,
        env=env or {},
        num_replicas=num_replicas,
        max_retries=max_retries,
        resource=resource or specs.Resource(cpu=1, gpu=0, memMB=1024),
        mounts=specs.parse_mounts(mounts) if mounts else [],
    )
    return specs.AppDef(name=name, roles=[role])
