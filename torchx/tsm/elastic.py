"""A role whose replicas start its program with PyTorch's ``torchrun``, several processes each."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from typing import Any

from torchx import specs
from torchx.errors import UsageError
from torchx.json_limits import Object
from torchx.specs import MISSING, macros
from torchx.suggestions import nearest
from torchx.tsm.application import Role

RDZV_PORT = 29500
"""The rendezvous port, unless the scheduler assigns another one."""

_OPTIONS = (
    "nnodes nproc_per_node rdzv_backend rdzv_endpoint rdzv_id rdzv_conf standalone max_restarts "
    "monitor_interval start_method event_log_handler role module no_python run_path log_dir redirects tee "
    "local_ranks_filter duplicate_stdout_filters duplicate_stderr_filters node_rank master_addr master_port "
    "local_addr logs_specs numa_binding signals_to_handle shutdown_timeout virtual_local_rank"
)
"""Options of torchrun, for suggestions only; other versions have more."""

_OTHER_NAMES = {"nprocs_per_node": "nproc_per_node", "m": "module", "r": "redirects", "t": "tee"}

_QUIET = 'OMP_NUM_THREADS="$${OMP_NUM_THREADS:-1}" '
"""Torchrun's own default for several processes, without its warning on every node."""

_NODES = r"(\d+)(?::(\d+))?"


class ElasticRole(Role):
    """A role whose program runs under torchrun: each replica is a node of several processes.

    ::

        ElasticRole("trainer", nproc_per_node=8, nnodes="2:4", max_restarts=3)
            .runs("train.py", "--epochs", "50").on(container).replicas(2)

    Its fields contain the given values; a dry-run shows the torchrun command. The rendezvous is at replica 0
    of the application's first role, which this role must be on all engines but this machine.

    Args:
        name: name of the role, unique within the application.
        launch_kwargs: options of torchrun by name, with ``_`` for ``-``: ``True`` for a switch, ``None`` or
            ``False`` to omit it. The default of ``nnodes`` is the number of replicas. Names of fields of a
            role set those fields.

    Attributes:
        launch_kwargs: the options of torchrun.
        port_name: the name of its rendezvous port; two such roles on one machine need two.
    """

    def __init__(self, name: str, **launch_kwargs: Any) -> None:
        known = {field.name for field in fields(specs.Role)} | {"container"}
        of_role = {key: launch_kwargs.pop(key) for key in list(launch_kwargs) if key in known}
        super().__init__(name, **of_role)
        self.launch_kwargs: Object = {}
        for value in self.overrides.values():
            if _is_own(value):  # created by dataclasses.replace: takes the options of its original
                self.launch_kwargs = dict(value.__self__.launch_kwargs)
        self.launch_kwargs |= {_OTHER_NAMES.get(key, key): value for key, value in launch_kwargs.items()}
        options = _OPTIONS.split()
        for key in self.launch_kwargs:
            close = nearest(key, options)
            if key not in options and close is not None:
                raise UsageError(f"torchrun has no option `{key}`", hint=f"did you mean `{close}`?")
        self.port_name = "c10d"
        self._bind()

    __getattribute__ = (
        object.__getattribute__
    )  # the fields keep the given values, from which others are computed

    def __deepcopy__(self, memo: dict[int, Any]) -> ElasticRole:
        twin = super().__deepcopy__(memo)
        assert isinstance(twin, ElasticRole)
        if any(_is_own(value) for value in twin.overrides.values()):
            twin._bind()  # binds the copy's own methods; a resolved copy stays resolved
        return twin

    @property
    def meets(self) -> bool:
        """Whether its rendezvous is at replica 0 of the application."""
        endpoint = self.launch_kwargs.get("rdzv_endpoint") or self.launch_kwargs.get("standalone")
        return not endpoint and self._nodes()[1] > 1

    def _bind(self) -> None:
        """Makes a dry-run use the values computed here instead of the fields."""
        own = {
            "entrypoint": self._program,
            "args": self._arguments,
            "port_map": self._ports,
            "metadata": self._notes,
            "env": self._environment,
            "min_replicas": self._least,
        }
        self.overrides = own | {key: value for key, value in self.overrides.items() if not _is_own(value)}

    def _program(self) -> str:
        return "bash"  # the rendezvous address is in a variable

    def _arguments(self) -> list[str]:
        if self.entrypoint == MISSING or not self.entrypoint:
            raise UsageError(f"role `{self.name}` has no entrypoint", hint='set it with .runs("train.py")')
        several = str(self.launch_kwargs.get("nproc_per_node", 1)) != "1"
        command = [self.entrypoint, *(str(arg) for arg in self.args)]
        options = " ".join(self._options())
        return ["-c", f"{_QUIET if several else ''}torchrun {options} {shlex.join(command)}"]

    def _options(self) -> list[str]:
        """Returns the options quoted for a shell; given options override those set here."""
        given = self.launch_kwargs
        options: list[str] = []
        found: Object = {"nnodes": self.num_replicas, "nproc_per_node": 1, "tee": 3, "role": ""}
        if not given.get("standalone"):
            found |= {"rdzv_backend": "c10d", "rdzv_id": f"{macros.app_id}-{self.name}"}
            if not given.get("rdzv_endpoint"):
                options += ["--rdzv_endpoint", self._rendezvous()]
        for key, value in {**found, **given}.items():
            if value is True:
                options.append(f"--{key}")
            elif value is not None and value is not False:
                options += [f"--{key}", shlex.quote(str(value))]
        return options

    def _rendezvous(self) -> str:
        """Returns the rendezvous address for a shell; in macros ``$$`` is a dollar sign."""
        if self._nodes()[1] == 1:
            return "localhost:0"  # torchrun picks a free port itself
        variable = re.sub(r"\W", "_", f"TORCHX_PORT_{self.port_name}").upper()
        return f"$${{{macros.rank0_env}:=localhost}}:$${{{variable}:={RDZV_PORT}}}"

    def _ports(self) -> dict[str, int]:
        if self.meets:
            return {self.port_name: RDZV_PORT, **self.port_map}
        return self.port_map

    def _notes(self) -> Object:
        return {"requires": {"torchrun": "pip install torch"}, **self.metadata}

    def _environment(self) -> dict[str, str]:
        return {"LOGLEVEL": "WARNING", **self.env}

    def _least(self) -> int | None:
        lowest, _ = self._nodes()
        return self.min_replicas or (lowest if lowest < self.num_replicas else None)

    def _nodes(self) -> tuple[int, int]:
        """Returns the minimum and maximum number of nodes.

        Raises:
            UsageError: it is invalid, or the number of replicas is out of range.
        """
        given = str(self.launch_kwargs.get("nnodes", self.num_replicas))
        match = re.fullmatch(_NODES, given)
        if match:
            lowest, highest = (int(match[1]), int(match[2] or match[1]))
        else:
            lowest, highest = (0, 0)
        if not 1 <= lowest <= highest:
            raise UsageError(f'role `{self.name}`: nnodes is N or MIN:MAX, such as 4 or 2:4; got "{given}"')
        if not lowest <= self.num_replicas <= highest:
            raise UsageError(
                f'role `{self.name}` has {self.num_replicas} replicas, which nnodes="{given}" does not allow',
                hint=f".replicas({highest}), or another nnodes",
            )
        return lowest, highest


def _is_own(value: object) -> bool:
    """Returns True if a lazy value belongs to an elastic role, maybe another one."""
    return isinstance(getattr(value, "__self__", None), ElasticRole)
