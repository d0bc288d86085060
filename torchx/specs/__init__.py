"""What an application is: plain data that every other part of the project speaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchx.specs import app_metadata as app_metadata
from torchx.specs import cases as cases
from torchx.specs.app import ALL, MISSING, UNKNOWN, AppDef, RetryPolicy, Role, resolve_overrides
from torchx.specs.app_metadata import NA, TORCHX_CONTEXT_NAME
from torchx.specs.capabilities import CapabilityKey
from torchx.specs.dryrun import AppDryRunInfo
from torchx.specs.handles import (
    AppHandle,
    LogTarget,
    MalformedAppHandleException,
    ParsedAppHandle,
    UnknownAppException,
    UnknownSchedulerException,
    make_app_handle,
    parse_app_handle,
    parse_log_target,
)
from torchx.specs.home import TORCHX_HOME
from torchx.specs.macros import macros
from torchx.specs.mounts import BindMount, DeviceMount, MountType, VolumeMount, parse_mounts
from torchx.specs.named_resources import get_named_resources, named_resources, resource
from torchx.specs.resource import NULL_RESOURCE, GiB, Resource
from torchx.specs.runopts import CfgVal, InvalidRunConfigException, get_type_name, runopt, runopts
from torchx.specs.status import (
    NONE,
    AppState,
    AppStatus,
    AppStatusError,
    AttemptStatus,
    FirstFailure,
    ReplicaState,
    ReplicaStatus,
    RoleStatus,
    is_started,
    is_terminal,
)
from torchx.specs.workspace import Workspace

if TYPE_CHECKING:
    materialize_appdef: Callable[..., AppDef]

# submodules that `import torchx.specs as specs` is enough for; loaded when they are asked for
_MODULES = (
    "api",
    "builders",
    "file_linter",
    "finder",
    "named_resources_aws",
    "named_resources_generic",
    "overlays",
    "serialize",
    "structured_opts",
)
# documented names whose modules are not needed to describe an application
_LATE = {"materialize_appdef": "builders", "StructuredOpts": "structured_opts"}

__all__ = [
    "ALL",
    "MISSING",
    "NA",
    "NONE",
    "NULL_RESOURCE",
    "TORCHX_CONTEXT_NAME",
    "TORCHX_HOME",
    "UNKNOWN",
    "AppDef",
    "AppDryRunInfo",
    "AppHandle",
    "AppState",
    "AppStatus",
    "AppStatusError",
    "AttemptStatus",
    "BindMount",
    "CapabilityKey",
    "CfgVal",
    "DeviceMount",
    "FirstFailure",
    "GiB",
    "InvalidRunConfigException",
    "LogTarget",
    "MalformedAppHandleException",
    "MountType",
    "ParsedAppHandle",
    "ReplicaState",
    "ReplicaStatus",
    "Resource",
    "RetryPolicy",
    "Role",
    "RoleStatus",
    "UnknownAppException",
    "UnknownSchedulerException",
    "VolumeMount",
    "Workspace",
    "app_metadata",
    "cases",
    "get_named_resources",
    "get_type_name",
    "is_started",
    "is_terminal",
    "macros",
    "make_app_handle",
    "materialize_appdef",
    "named_resources",
    "parse_app_handle",
    "parse_log_target",
    "parse_mounts",
    "resolve_overrides",
    "resource",
    "runopt",
    "runopts",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _LATE:
        value = getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
