"""Applications and roles: a role is a number of identical replicas of one program."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from torchx.errors import UsageError
from torchx.json_limits import Object
from torchx.lazy import lazy_imports
from torchx.masking import SecretValue
from torchx.specs.mounts import Mount
from torchx.specs.resources import NULL_RESOURCE, Resource
from torchx.specs.workspace import Workspace
from torchx.suggestions import did_you_mean

with lazy_imports:
    import asyncio
    from concurrent import futures

if TYPE_CHECKING:
    from torchx.specs.notify import Notify
    from torchx.specs.run_options import RunOptions

T = TypeVar("T")

ALL = "all"
"""Stands for every role where role names are listed."""

MISSING = "<MISSING>"
"""The entrypoint of a role that was given none."""

UNKNOWN = "<UNKNOWN>"
"""The value of a field that could not be read back from an engine."""


class RetryPolicy(str, Enum):
    """The scope of a retry after the failure of a replica.

    A failure is an exit code other than zero, the end of its machine, preemption or eviction.
    Every scheduler supports ``APPLICATION``; docs/schedulers.md lists the support for the others.
    """

    REPLICA = "REPLICA"
    """Only the failed replica; its peers keep running and must cope with its absence."""

    APPLICATION = "APPLICATION"
    """All replicas of all roles."""

    ROLE = "ROLE"
    """All replicas of the failed replica's role."""


def _null_resource() -> Resource:
    return copy.deepcopy(NULL_RESOURCE)  # a role may change its own, never the constant


@dataclass
class Role:
    """A number of identical replicas within an application.

    Attributes:
        name: name of the role, unique within the application.
        image: the source of the replica's file system; the scheduler defines its meaning (a container
            image, a folder).
        min_replicas: the minimum number of replicas, for schedulers that can start with fewer; None for
            ``num_replicas``.
        entrypoint: the program.
        args: its arguments.
        env: environment variables, added to those of the scheduler.
        num_replicas: the number of replicas.
        max_retries: the maximum number of restarts after failures.
        retry_policy: the scope of a restart.
        resource: the resources of each replica.
        port_map: port numbers by name.
        metadata: notes to schedulers, by scheduler name.
        mounts: the mounts of each replica's container.
        workspace: local folders to overlay on the image; the runner's ``workspace`` argument overrides
            that of the first role.
        overrides: lazily computed values for fields of this role: functions or awaitables, by field
            name. The first read of the field, or the dry-run, computes its value and stores it.

    >>> trainer = Role("trainer", "pytorch", entrypoint="python", args=["-m", "train"], num_replicas=2)
    >>> trainer.retry_policy.value
    'APPLICATION'
    """

    name: str
    image: str
    min_replicas: int | None = None
    entrypoint: str = MISSING
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    num_replicas: int = 1
    max_retries: int = 0
    retry_policy: RetryPolicy = RetryPolicy.APPLICATION
    resource: Resource = field(default_factory=_null_resource)
    port_map: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    mounts: list[Mount] = field(default_factory=list)
    workspace: Workspace | None = None
    overrides: dict[str, Any] = field(default_factory=dict)

    def pre_proc(self, scheduler: str, dryrun_info: AppDryRunInfo[Any]) -> AppDryRunInfo[Any]:
        """Lets a subclass change a request before it is shown or sent.

        Called once for each role, in their order, at the end of a dry-run.

        Args:
            scheduler: name of the scheduler.
            dryrun_info: the request so far.

        Returns:
            The request to use (default: unchanged).
        """
        return dryrun_info

    def __getattribute__(self, name: str) -> Any:
        lazy = object.__getattribute__(self, "__dict__").get("overrides")
        if lazy and name in lazy and name != "overrides":
            self.overrides = {other: value for other, value in lazy.items() if other != name}
            try:
                setattr(self, name, _computed(lazy[name]))
            except BaseException:  # the next read must not return the value that it replaces
                self.overrides = {name: lazy[name], **self.overrides}
                raise
        return object.__getattribute__(self, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Role:
        twin = copy.copy(self)
        memo[id(self)] = twin
        for name, value in vars(self).items():
            # lazy values are code, not data: an awaitable can't be copied
            setattr(twin, name, dict(value) if name == "overrides" else copy.deepcopy(value, memo))
        return twin


class UnknownRoleError(UsageError, KeyError):
    """An application has no role of a name (a UsageError, also a KeyError)."""

    code = "unknown_role"


@dataclass
class AppDef:
    """An application: its roles run together and end together.

    Attributes:
        name: name of the application; schedulers make its id from it.
        roles: its roles; the first replica of the first role is rank 0.
        metadata: notes to schedulers.

    >>> app = AppDef("train", roles=[Role("trainer", image="pytorch")])
    >>> [role.name for role in app.roles]
    ['trainer']
    """

    name: str
    roles: list[Role] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)

    __iter__ = None  # `roles` is the list; without this line, Python would call `__getitem__` with numbers

    def __contains__(self, name: object) -> bool:
        return any(role.name == name for role in self.roles)

    def get_role(self, name: str) -> Role:
        """Returns a role by its name, as ``app[name]`` does.

        Raises:
            UnknownRoleError: the application has no role of this name.
        """
        for role in self.roles:
            if role.name == name:
                return role
        known = [role.name for role in self.roles]
        raise UnknownRoleError(
            f"application `{self.name}` has no role `{name}`",
            hint=did_you_mean(name, known, f"roles: {', '.join(known)}"),
            facts={"given": name},
        )

    __getitem__ = get_role


def resolve_overrides(role: Role) -> Role:
    """Computes the lazy values of a role once: calls callables and awaits awaitables in ``role.overrides``.

    Returns:
        A deep copy, with the values in its fields and no overrides left, as in the given role afterwards.

    Raises:
        UsageError: an override does not name a field of a role.

    >>> resolve_overrides(Role("r", "img", overrides={"image": lambda: "img:" + "v2"})).image
    'img:v2'
    """
    known = [f.name for f in fields(role) if f.name != "overrides"]
    for name in role.overrides:
        if name not in known:
            raise UsageError(
                f"role `{role.name}` overrides `{name}`, which is not a field of a role",
                hint=did_you_mean(name, known, f"fields: {', '.join(known)}"),
            )
    for name in list(role.overrides):
        getattr(role, name)
    resolved = copy.deepcopy(role)
    for name, lazy in role.overrides.items():  # left by a subclass whose fields keep the given values
        setattr(resolved, name, _computed(lazy))
    resolved.overrides = {}
    return resolved


def _computed(lazy: Any) -> Any:
    value = lazy() if callable(lazy) else lazy
    if isinstance(value, Awaitable):
        return _await(value)
    return value


def plain(data: Any) -> Any:
    """Returns data, changed in place, whose texts are of the type ``str``.

    A subclass may format itself as another text, as a member of an Enum does.

    >>> class Quoted(str):
    ...     def __str__(self):
    ...         return repr(self)
    >>> str(plain([Quoted("a")])[0])
    'a'
    """
    if isinstance(data, str):
        if isinstance(data, SecretValue):
            return data
        return str.__str__(data)
    if type(data) in (list, tuple):
        return type(data)(map(plain, data))
    if type(data) is dict:
        return {plain(key): plain(value) for key, value in data.items()}
    if is_dataclass(data) and not isinstance(data, type):
        for each in fields(data):
            value = getattr(data, each.name)
            if not isinstance(value, Enum):  # the type of a field
                object.__setattr__(data, each.name, plain(value))
    return data


def _await(awaitable: Awaitable[Any]) -> Any:
    """Runs an awaitable in a separate thread, since the caller's may have an event loop."""

    async def result() -> Any:
        return await awaitable

    with futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, result()).result()


def lay_over(workspace: str | Workspace, roles: Sequence[Role]) -> None:
    """Sets a workspace for the first role, and for roles of the same image without their own."""
    given = Workspace.from_str(workspace)
    for role in roles:
        if role is roles[0] or (role.image == roles[0].image and not role.workspace):
            role.workspace = Workspace(dict(given.projects))


@runtime_checkable
class Manifests(Protocol):
    """A request (a dataclass) of several documents, which the engine's own tool accepts as YAML."""

    manifests: list[Object]


def _discard(line: str) -> None:
    """Discards a line of progress."""


def _older_name(name: str) -> property:
    """Returns a property that reads and sets an attribute of another name."""
    return property(attrgetter(name), lambda info, value: setattr(info, name, value))


class AppDryRunInfo(Generic[T]):
    """A request as a scheduler would send it; its ``repr`` is readable.

    Args:
        request: the scheduler's own request object.
        fmt: formats the request.
        brief: formats it without the content of its files (default: as ``fmt``).

    Attributes:
        request: the scheduler's own request object; ``Role.pre_proc`` may change it.
        notes: warnings about parts of the application that the scheduler does not honour, one line each.
        app: the application at the time of the request; None before the scheduler has set it.
        cfg: the run options with defaults filled in.
        scheduler: the name of the scheduler; None before the scheduler has set it.
        on_progress: called from any thread with a line about the progress of a submission; callers that
            display progress set it. A :class:`torchx.scheduling.progress.Follows` receives measured progress
            too.
        notify: the notifications to send; None for none.
        existed: set by the submission: nothing was submitted, as an application of this name existed.

    :meth:`torchx.schedulers.api.Scheduler.submit_dryrun` assigns ``app``, ``cfg`` and ``scheduler``.
    ``_app``, ``_cfg``, ``_scheduler`` and ``tell`` are older names of these attributes.

    >>> AppDryRunInfo(["sbatch", "--parsable"], " ".join)
    sbatch --parsable
    """

    def __init__(self, request: T, fmt: Callable[[T], str], brief: Callable[[T], str] | None = None) -> None:
        self.request = request
        self.notes: list[str] = []
        self.app: AppDef | None = None
        self.cfg: RunOptions = {}
        self.scheduler: str | None = None
        self.on_progress: Callable[[str], None] = _discard
        self.notify: Notify | None = None
        self.existed = False
        self._fmt = fmt
        self._brief = brief or fmt

    _app = _older_name("app")
    _cfg = _older_name("cfg")
    _scheduler = _older_name("scheduler")
    tell = _older_name("on_progress")

    def __repr__(self) -> str:
        return self._fmt(self.request)


AnyDryRunInfo = AppDryRunInfo[Any]
"""A request, whatever its type is."""
