"""Applications as plain data, the common vocabulary of all parts of this project.

Names are loaded from their modules on first use, so that importing this package stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchx.specs import app_metadata as app_metadata
    from torchx.specs import cases as cases
    from torchx.specs.api import *  # noqa: F403  # its names are names of this package, too
    from torchx.specs.app_metadata import NA as NA
    from torchx.specs.app_metadata import TORCHX_CONTEXT_NAME as TORCHX_CONTEXT_NAME
    from torchx.specs.app_metadata import after as after
    from torchx.specs.app_metadata import note_of as note_of
    from torchx.specs.app_metadata import service as service
    from torchx.specs.app_metadata import set_tags as set_tags
    from torchx.specs.app_metadata import tags_of as tags_of
    from torchx.specs.capabilities import CapabilityKey as CapabilityKey
    from torchx.specs.handles import LogTarget as LogTarget
    from torchx.specs.handles import parse_log_target as parse_log_target
    from torchx.specs.resource_lookup import get_named_resources as get_named_resources
    from torchx.specs.resource_lookup import named_resources as named_resources
    from torchx.specs.resource_lookup import resource as resource
    from torchx.specs.resources import GiB as GiB
    from torchx.specs.structured_opts import StructuredOpts as StructuredOpts

    materialize_appdef: Callable[..., AppDef]  # noqa: F405  # a door to a higher floor

_NAMES = {
    "app": "ALL AppDef AppDryRunInfo MISSING RetryPolicy Role UNKNOWN resolve_overrides",
    "app_metadata": "NA TORCHX_CONTEXT_NAME after note_of service set_tags tags_of",
    "builders": "materialize_appdef",
    "capabilities": "CapabilityKey",
    "handles": (
        "AppHandle LogTarget MalformedAppHandleException ParsedAppHandle UnknownAppException "
        "UnknownSchedulerException make_app_handle parse_app_handle parse_log_target"
    ),
    "home": "TORCHX_HOME",
    "macro": "macros",
    "mounts": "BindMount DeviceMount MountType TmpfsMount VolumeMount parse_mounts",
    "resource_lookup": "get_named_resources named_resources resource",
    "resources": "GiB NULL_RESOURCE Resource",
    "run_options": "CfgVal InvalidRunConfigException get_type_name runopt runopts",
    "status": (
        "AppState AppStatus AppStatusError AttemptStatus FirstFailure NONE ReplicaState "
        "ReplicaStatus RoleStatus is_started is_terminal"
    ),
    "structured_opts": "StructuredOpts",
    "workspace": "Workspace",
}
"""Names by module. No module is called as a name is: importing it would put it in the place of the name."""

_MODULES = (
    "api",
    "app_metadata",
    "builders",
    "cases",
    "file_linter",
    "finder",
    "named_resources_aws",
    "named_resources_generic",
    "overlays",
    "serialize",
    "structured_opts",
)
"""Modules for which `import torchx.specs` is enough."""

_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # type checkers know the names from the imports above
    __all__ = sorted([*_MODULE_OF, "app_metadata", "cases"])


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _MODULE_OF:
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        globals()[name] = value  # later lookups are direct
        return value
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_MODULES})
