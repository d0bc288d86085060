"""Fluent definitions of containers, roles and applications.

They build on ``torchx.specs``: a :class:`Role` is a role, an :class:`Application` is an ``AppDef``, and they
are accepted wherever those are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from torchx import specs
from torchx.errors import UsageError
from torchx.specs import ALL, MISSING, NULL_RESOURCE, AppDef, Resource, RetryPolicy

R = TypeVar("R", bound="Role")


class SchedulerBackend(str):
    """The name of a scheduler, for resources that a container requires on one scheduler only."""

    ALL = ALL


@dataclass
class Container:
    """The container of the replicas of a role.

    Roles may share one; later changes apply to all of them.

    Attributes:
        image: the source of the file system: a folder or archive for local jobs, otherwise the name of a
            container image.
        resources: the resources of each replica, on all schedulers without their own.
        port_map: port numbers by name.

    >>> box = Container(image="pytorch/torch:1").require(Resource(cpu=1, gpu=1, memMB=500)).ports(web=8080)
    >>> box.resources.memMB, box.port_map
    (500, {'web': 8080})
    """

    image: str = MISSING
    resources: Resource = field(default_factory=lambda: copy.deepcopy(NULL_RESOURCE))
    port_map: dict[str, int] = field(default_factory=dict)
    _bound: dict[str, Resource] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.resources = copy.deepcopy(_checked_resource(self.resources))
        self.port_map = dict(self.port_map)

    def require(self, resources: Resource, scheduler: str = ALL) -> Container:
        """Sets the resources of each replica.

        Args:
            resources: the resources.
            scheduler: the scheduler they apply to (default: all). Sessions honour it; a runner uses only
                those for all schedulers.

        Raises:
            UsageError: it is not a ``Resource``.
        """
        _checked_resource(resources)
        if scheduler == ALL:
            vars(self.resources).update(copy.deepcopy(vars(resources)))  # visible to the roles on it
        else:
            self._bound[scheduler] = copy.deepcopy(resources)
        return self

    def ports(self, **ports: int) -> Container:
        """Adds ports by name."""
        self.port_map.update(ports)
        return self

    def resource_for(self, names: Iterable[str]) -> Resource | None:
        """Returns the resources required for one scheduler only, or None.

        Args:
            names: the names of the scheduler.
        """
        return next((self._bound[name] for name in names if name in self._bound), None)


def _checked_resource(resources: Resource) -> Resource:
    if not isinstance(resources, Resource):
        raise UsageError(
            f"a container requires a Resource, got {resources!r}",
            hint='Resource(cpu=1, gpu=0, memMB=512), or torchx.specs.resource(h="gpu.small")',
        )
    return resources


class Role(specs.Role):
    """A role with fluent methods.

    It is a ``torchx.specs.Role``; its image, resource and ports come from its container.

    >>> reader = Role("reader").runs("reader.py", "--fast", DEBUG="1").on(Container("python")).replicas(3)
    >>> reader.args, reader.env, reader.image, reader.num_replicas
    (['--fast'], {'DEBUG': '1'}, 'python', 3)

    Args:
        name: name of the role, unique within the application.
        entrypoint: the program. A session starts ``.py`` files with ``python``, unless the file is
            executable on this machine.
        args: its arguments.
        env: environment variables.
        container: its container.
        num_replicas: the number of replicas.
        max_retries: the maximum number of restarts after failures.
        retry_policy: the scope of a restart.
        more: the other fields of ``torchx.specs.Role``, by name.
    """

    def __init__(
        self,
        name: str,
        entrypoint: str = MISSING,
        args: list[str] | None = None,
        env: dict[str, str] | None = None,
        container: Container | None = None,
        num_replicas: int = 1,
        max_retries: int = 0,
        retry_policy: RetryPolicy = RetryPolicy.APPLICATION,
        **more: Any,
    ) -> None:
        super().__init__(
            name=name,
            image=more.pop("image", ""),
            entrypoint=entrypoint,
            args=[] if args is None else args,
            env={} if env is None else env,
            num_replicas=num_replicas,
            max_retries=max_retries,
            retry_policy=retry_policy,
            **more,
        )
        if container is None:
            self.container = Container(self.image or MISSING, self.resource, self.port_map)
            self.resource, self.port_map = self.container.resources, self.container.port_map
        else:
            self.on(container)

    def runs(self: R, entrypoint: str, *args: str, **env: str) -> R:
        """Sets the program of each replica.

        Args:
            entrypoint: the program, from the folder of the image.
            args: its arguments; they replace earlier ones.
            env: environment variables, added to the existing ones.
        """
        self.entrypoint = entrypoint
        self.args = list(args)
        self.env.update(env)
        return self

    def run(self: R, entrypoint: str, *args: str, **env: str) -> R:
        """The same as :meth:`runs`."""
        return self.runs(entrypoint, *args, **env)

    def on(self: R, container: Container) -> R:
        """Sets the container of each replica."""
        if not isinstance(container, Container):
            raise UsageError(
                f"role `{self.name}` runs on a Container, got {container!r}",
                hint=f"write Container(image={container!r})",
            )
        self.container = container
        if container.image == MISSING:
            self.image = ""
        else:
            self.image = container.image
        self.resource, self.port_map = container.resources, container.port_map
        return self

    def replicas(self: R, num_replicas: int) -> R:
        """Sets the number of replicas.

        Raises:
            UsageError: it is not a number of at least 1.
        """
        if isinstance(num_replicas, bool) or not isinstance(num_replicas, int) or num_replicas < 1:
            raise UsageError(f"role `{self.name}` takes 1 or more replicas, got {num_replicas!r}")
        self.num_replicas = num_replicas
        return self

    @classmethod
    def of_spec(cls, role: specs.Role) -> Role:
        """Converts a role of ``torchx.specs``; returns a role of this class unchanged."""
        if isinstance(role, Role):
            return role
        return Role(**{each.name: getattr(role, each.name) for each in fields(specs.Role)})


class Application(AppDef):
    """An application of roles: ``Application("train").of(trainer, reader)``.

    It is an ``AppDef``, as components return it.

    Attributes:
        is_attached: whether it was read back from its scheduler, possibly incompletely.
    """

    is_attached = False

    def of(self, *roles: specs.Role) -> Application:
        """Adds roles.

        Raises:
            UsageError: one of them is not a role.
        """
        for role in roles:
            if not isinstance(role, specs.Role):
                raise UsageError(f"application `{self.name}` is made of roles, got {role!r}")
        self.roles = [*self.roles, *roles]
        return self

    @classmethod
    def read_back(cls, app: AppDef) -> Application:
        """Returns an application read back from a scheduler."""
        found = cls(app.name, [Role.of_spec(role) for role in app.roles], dict(app.metadata))
        found.is_attached = True
        return found
