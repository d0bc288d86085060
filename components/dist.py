"""Distributed PyTorch: one role whose replicas start their processes with ``torchrun``.

The replicas meet at replica 0. The macro ``rank0_env`` is the name of the environment variable with its host,
so a shell in the replica reads it. If all replicas share one machine, each job needs another port: such a
scheduler assigns a free number to every port of ``Role.port_map``, in ``TORCHX_PORT_<NAME>``.
"""

from __future__ import annotations

import re
import shlex

import torchx.specs as specs
from torchx.compat.quoting import args_join as _args_join  # noqa: F401 - for components of other packages
from torchx.compat.quoting import noquote as _noquote  # noqa: F401
from torchx.components.structured_arg import StructuredJArgument, StructuredNameArgument, program_name
from torchx.specs import macros
from torchx.version import TORCHX_IMAGE

RDZV_PORT = 29500

REQUIRES = {"torchrun": "pip install torch"}
"""A scheduler on this machine checks for these programs first, and names the package to install."""

QUIET = 'OMP_NUM_THREADS="$${OMP_NUM_THREADS:-1}" '
"""Torchrun's own default for several processes, without its warning on every node."""

DEBUG_ENV = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "NCCL_DESYNC_DEBUG": "1",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
}

_TORCH_DEBUG_FLAGS, get_role_name = DEBUG_ENV, program_name
"""Former names, which components of other packages use."""


def torchrun(
    *script_args: str,
    script: str | None = None,
    m: str | None = None,
    image: str = TORCHX_IMAGE,
    name: str = "/",
    h: str | None = None,
    cpu: int = 2,
    gpu: int = 0,
    memMB: int = 1024,
    j: str = "1x2",
    env: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
    max_retries: int = 0,
    rdzv_port: int = RDZV_PORT,
    rdzv_backend: str = "c10d",
    rdzv_conf: str | None = None,
    mounts: list[str] | None = None,
    debug: bool = False,
    tee: int = 3,
    numa_binding: str | None = None,
) -> specs.AppDef:
    """Runs a PyTorch script or module on several processes, on one machine or on many.

    Each replica is a node: it starts its processes with torchrun and joins the others at replica 0.

    Args:
        script_args: passed to the script or module
        script: Python script to run, a path in the image or below the working directory
        m: Python module to run, in place of a script
        image: image with PyTorch and the program; not used by local_cwd
        name: EXPERIMENT/RUN, EXPERIMENT/, /RUN or RUN; by default, the run is named after the program
        h: named resource of each node, such as gpu.small; replaces cpu, gpu and memMB
        cpu: CPUs of each node
        gpu: GPUs of each node
        memMB: memory of each node, in MB
        j: NODESxPROCESSES, or MIN:NODESxPROCESSES if elastic; a number alone counts processes on one node
        env: environment variables, as A=1,B=2
        metadata: metadata of the application, as A=1,B=2
        max_retries: number of restarts after failures
        rdzv_port: port of replica 0 where several nodes meet; 29500 is any free one if all share a machine
        rdzv_backend: how the nodes find each other: c10d, static, etcd-v2
        rdzv_conf: more settings of the rendezvous, as join_timeout=600,timeout=600
        mounts: mounts, as SRC:DST[:ro] or type=bind,src=SRC,dst=DST
        debug: switch on the checks of PyTorch that help to find a hang or a crash; slows the job down
        tee: output of the processes to show and to keep: 0 none, 1 stdout, 2 stderr, 3 both
        numa_binding: CPUs near the GPU of each process, by PyTorch 2.9: node, socket, exclusive, core-complex
    """
    if not (script or m) and script_args[:1] and script_args[0].endswith(".py"):
        raise ValueError(f"nothing to run; add --script {script_args[0]}")
    run = StructuredNameArgument.parse_from(name, m=m, script=script)
    min_nodes, nodes, processes, nnodes = parse_nnodes(j)
    meet = ["--rdzv_backend", rdzv_backend, *(["--rdzv_conf", rdzv_conf] if rdzv_conf else [])]
    rest = ["--rdzv_id", macros.app_id, "--nnodes", nnodes, "--nproc_per_node", str(processes)]
    rest += ["--tee", str(tee), "--role", ""]
    rest += ["--numa-binding", numa_binding] if numa_binding else []
    if rdzv_backend == "static":
        rest += ["--node_rank", macros.replica_id]
    rest += ["-m", m] if m else [script or ""]
    command = f"torchrun {shlex.join(meet)} --rdzv_endpoint {_endpoint(nodes, rdzv_port)} "
    command += shlex.join([*rest, *script_args])
    role = specs.Role(
        name=program_name(script, m),
        image=image,
        min_replicas=min_nodes,
        entrypoint="bash",
        num_replicas=nodes,
        resource=specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h),
        args=["-c", QUIET + command if processes > 1 else command],
        env=_env(run, env or {}, debug),
        port_map={"c10d": rdzv_port},
        max_retries=max_retries,
        mounts=specs.parse_mounts(mounts) if mounts else [],
        metadata={"requires": REQUIRES},
    )
    return specs.AppDef(name=run.run_name, roles=[role], metadata=metadata or {})


def ddp(
    *script_args: str,
    script: str | None = None,
    m: str | None = None,
    image: str = TORCHX_IMAGE,
    name: str = "/",
    h: str | None = None,
    cpu: int = 2,
    gpu: int = 0,
    memMB: int = 1024,
    j: str = "1x2",
    env: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
    max_retries: int = 0,
    rdzv_port: int = RDZV_PORT,
    rdzv_backend: str = "c10d",
    rdzv_conf: str | None = None,
    mounts: list[str] | None = None,
    debug: bool = False,
    tee: int = 3,
    numa_binding: str | None = None,
) -> specs.AppDef:
    """Runs a PyTorch script or module on several processes: the older name of dist.torchrun.

    Args:
        script_args: passed to the script or module
        script: Python script to run, a path in the image or below the working directory
        m: Python module to run, in place of a script
        image: image with PyTorch and the program; not used by local_cwd
        name: EXPERIMENT/RUN, EXPERIMENT/, /RUN or RUN; by default, the run is named after the program
        h: named resource of each node, such as gpu.small; replaces cpu, gpu and memMB
        cpu: CPUs of each node
        gpu: GPUs of each node
        memMB: memory of each node, in MB
        j: NODESxPROCESSES, or MIN:NODESxPROCESSES if elastic; a number alone counts processes on one node
        env: environment variables, as A=1,B=2
        metadata: metadata of the application, as A=1,B=2
        max_retries: number of restarts after failures
        rdzv_port: port of replica 0 where several nodes meet; 29500 is any free one if all share a machine
        rdzv_backend: how the nodes find each other: c10d, static, etcd-v2
        rdzv_conf: more settings of the rendezvous, as join_timeout=600,timeout=600
        mounts: mounts, as SRC:DST[:ro] or type=bind,src=SRC,dst=DST
        debug: switch on the checks of PyTorch that help to find a hang or a crash; slows the job down
        tee: output of the processes to show and to keep: 0 none, 1 stdout, 2 stderr, 3 both
        numa_binding: CPUs near the GPU of each process, by PyTorch 2.9: node, socket, exclusive, core-complex
    """
    options = dict(locals())
    return torchrun(*options.pop("script_args"), **options)


def spmd(
    *args: str,
    script: str | None = None,
    m: str | None = None,
    image: str = TORCHX_IMAGE,
    name: str = "/",
    h: str = "gpu.small",
    j: str = "1x1",
    env: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
    max_retries: int = 0,
    mounts: list[str] | None = None,
    debug: bool = False,
) -> specs.AppDef:
    """Runs a PyTorch script or module on named hosts: dist.torchrun with fewer choices.

    Args:
        args: passed to the script or module
        script: Python script to run, a path in the image or below the working directory
        m: Python module to run, in place of a script
        image: image with PyTorch and the program; not used by local_cwd
        name: EXPERIMENT/RUN, EXPERIMENT/, /RUN or RUN; by default, the run is named after the program
        h: named resource of each node
        j: NODESxPROCESSES; a number alone means that many nodes with a process for each GPU
        env: environment variables, as A=1,B=2
        metadata: metadata of the application, as A=1,B=2
        max_retries: number of restarts after failures
        mounts: mounts, as SRC:DST[:ro] or type=bind,src=SRC,dst=DST
        debug: switch on the checks of PyTorch that help to find a hang or a crash; slows the job down
    """
    options = dict(locals())
    options["j"] = str(StructuredJArgument.parse_from(h, j))
    return torchrun(*options.pop("args"), **options)


def parse_nnodes(j: str) -> tuple[int, int, int, str]:
    """Parses ``-j``: ``[MIN:]NODESxPROCESSES``, or ``PROCESSES`` on one node.

    >>> parse_nnodes("2x4"), parse_nnodes("1:2x4"), parse_nnodes("4")
    ((2, 2, 4, '2'), (1, 2, 4, '1:2'), (1, 1, 4, '1'))

    Returns:
        The least number of nodes, the number of nodes, the processes of each, and the nodes as torchrun takes
        them.

    Raises:
        ValueError: the text is not of this form.
    """
    match = re.fullmatch(r"(?:(?:(\d+):)?(\d+)x)?(\d+)", j)
    if not match:
        raise ValueError(f'-j takes [MIN:]NODESxPROCESSES, such as 2x4, 1:2x4 or 4; got "{j}"')
    nodes, processes = int(match[2] or 1), int(match[3])
    min_nodes = int(match[1] or nodes)
    if not (1 <= min_nodes <= nodes and processes >= 1):
        raise ValueError(f'-j takes [MIN:]NODESxPROCESSES, each at least 1 and MIN at most NODES; got "{j}"')
    return min_nodes, nodes, processes, f"{min_nodes}:{nodes}" if match[1] else str(nodes)


def _endpoint(nodes: int, port: int) -> str:
    """Returns the host and port of the rendezvous, as a shell expression.

    In macros ``$$`` is a dollar sign: the shell receives, for example, ``${TORCHX_RANK0_HOST:=localhost}``.
    """
    if nodes == 1:
        return "localhost:0"  # torchrun picks a free port itself
    if port == RDZV_PORT:
        number = f"$${{TORCHX_PORT_C10D:={port}}}"
    else:
        number = str(port)
    return f"$${{{macros.rank0_env}:=localhost}}:{number}"


def _env(run: StructuredNameArgument, env: dict[str, str], debug: bool) -> dict[str, str]:
    """Returns the environment of the replicas; the user's values take precedence."""
    return {
        **(DEBUG_ENV if debug else {}),
        "TORCHX_TRACKING_EXPERIMENT_NAME": run.experiment_name,
        "TORCHX_TRACKING_RUN_NAME": run.run_name,
        "LOGLEVEL": "WARNING",
        **env,
    }
