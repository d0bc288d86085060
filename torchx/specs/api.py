"""The documented module of the types of an application, which are defined in separate modules."""

from __future__ import annotations

from torchx.pairs import to_dict
from torchx.specs.app import (
    ALL,
    MISSING,
    UNKNOWN,
    AppDef,
    AppDryRunInfo,
    RetryPolicy,
    Role,
    resolve_overrides,
)
from torchx.specs.cases import camel_to_snake, snake_to_camel
from torchx.specs.handles import (
    AppHandle,
    MalformedAppHandleException,
    ParsedAppHandle,
    UnknownAppException,
    UnknownSchedulerException,
    make_app_handle,
    parse_app_handle,
)
from torchx.specs.home import TORCHX_HOME
from torchx.specs.macro import macros
from torchx.specs.mounts import BindMount, DeviceMount, MountType, TmpfsMount, VolumeMount, parse_mounts
from torchx.specs.resources import NULL_RESOURCE, Resource
from torchx.specs.run_options import CfgVal, InvalidRunConfigException, get_type_name, runopt, runopts
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

__all__ = [
    "ALL",
    "MISSING",
    "NONE",
    "NULL_RESOURCE",
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
    "CfgVal",
    "DeviceMount",
    "FirstFailure",
    "InvalidRunConfigException",
    "MalformedAppHandleException",
    "MountType",
    "ParsedAppHandle",
    "ReplicaState",
    "ReplicaStatus",
    "Resource",
    "RetryPolicy",
    "Role",
    "RoleStatus",
    "TmpfsMount",
    "UnknownAppException",
    "UnknownSchedulerException",
    "VolumeMount",
    "Workspace",
    "camel_to_snake",
    "get_type_name",
    "is_started",
    "is_terminal",
    "macros",
    "make_app_handle",
    "parse_app_handle",
    "parse_mounts",
    "resolve_overrides",
    "runopt",
    "runopts",
    "snake_to_camel",
    "to_dict",
]
