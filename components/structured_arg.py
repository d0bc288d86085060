"""Structured arguments of components: ``--name exp/run`` and ``-j 2x4``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

import torchx.specs as specs

DEFAULT_EXPERIMENT = "default-experiment"


@dataclass(frozen=True)
class StructuredNameArgument:
    """The name of a run within an experiment, written ``EXPERIMENT/RUN``.

    >>> str(StructuredNameArgument.parse_from("digits/first", script="train.py"))
    'digits/first'
    >>> str(StructuredNameArgument.parse_from("digits/", script="jobs/train.py"))
    'digits/train'
    >>> str(StructuredNameArgument.parse_from("/", m="jobs.train"))
    'default-experiment/train'

    Attributes:
        experiment_name: groups runs that are to be compared.
        run_name: names this run; it becomes the name of the application.
    """

    experiment_name: str
    run_name: str

    def __str__(self) -> str:
        return f"{self.experiment_name}/{self.run_name}"

    @staticmethod
    def parse_from(
        name: str,
        m: str | None = None,
        script: str | None = None,
        default_experiment_name: str = DEFAULT_EXPERIMENT,
    ) -> StructuredNameArgument:
        """Parses ``EXPERIMENT/RUN``, ``EXPERIMENT/``, ``/RUN``, ``RUN`` or ``/``.

        Args:
            name: the text; the first slash is the separator.
            m: the module that is run; its last part names the run where the text does not.
            script: the script that is run; its file name without the ending does the same.
            default_experiment_name: the experiment if the text names none.

        Raises:
            ValueError: not exactly one of ``m`` and ``script`` is given.
        """
        default_run = program_name(script, m)
        experiment, slash, run = name.partition("/")
        if not slash:
            experiment, run = "", name
        return StructuredNameArgument(experiment or default_experiment_name, run or default_run)


@dataclass(frozen=True)
class StructuredJArgument:
    """The number of nodes and of processes on each, as ``NxM``.

    >>> StructuredJArgument.parse_from(h="gpu.medium", j="3")
    StructuredJArgument(nnodes=3, nproc_per_node=2)

    Attributes:
        nnodes: number of nodes: replicas of the role.
        nproc_per_node: number of processes that each node starts.
    """

    nnodes: int
    nproc_per_node: int

    def __str__(self) -> str:
        return f"{self.nnodes}x{self.nproc_per_node}"

    @staticmethod
    def parse_from(h: str | None, j: str) -> StructuredJArgument:
        """Parses ``NxM``, or ``N`` for one process per GPU of the host.

        Args:
            h: name of the host's resource, see ``torchx.specs.named_resources``.
            j: the text.

        Raises:
            ValueError: the text has another form, or the number of GPUs is unknown.
        """
        match = re.fullmatch(r"(\d+)(?:x(\d+))?", j)
        if not match:
            raise ValueError(f'-j takes NODESxPROCESSES, such as 2x4, or NODES on hosts with GPUs; got "{j}"')
        nodes, processes = int(match[1]), match[2]
        if processes is not None:
            return _at_least_one(nodes, int(processes), j)
        gpus = specs.resource(h=h).gpu if h else 0
        if gpus < 1:
            host = "-h names no host"
            if h:
                host = f"`{h}` has no GPU"
            raise ValueError(f"-j {j} takes one process per GPU, but {host}; write -j {j}xM")
        return _at_least_one(nodes, gpus, j)


def _at_least_one(nodes: int, processes: int, text: str) -> StructuredJArgument:
    if nodes < 1 or processes < 1:
        raise ValueError(f'-j needs at least one node and one process, got "{text}"')
    return StructuredJArgument(nodes, processes)


def program_name(script: str | None, m: str | None) -> str:
    """Returns the name of a script or a module as it names a role or a run.

    >>> program_name("jobs/train.py", None), program_name(None, "jobs.train")
    ('train', 'train')

    Raises:
        ValueError: not exactly one of the two is given.
    """
    if script and m:
        raise ValueError("give --script or -m, not both")
    if script:
        return PurePath(script).stem
    if m:
        return m.rpartition(".")[2]
    raise ValueError("nothing to run; add --script train.py, or -m package.module")
