"""The documented names are where they are documented, and importing them is light and silent."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

HEAVY = "yaml fsspec json importlib.metadata asyncio logging subprocess string difflib docstring_parser"

DOCUMENTED = {
    "torchx.specs": (
        "ALL AppDef AppDryRunInfo AppHandle AppState AppStatus BindMount CapabilityKey CfgVal "
        "DeviceMount InvalidRunConfigException MISSING MalformedAppHandleException NA NONE "
        "NULL_RESOURCE ParsedAppHandle ReplicaState ReplicaStatus Resource RetryPolicy Role "
        "RoleStatus TORCHX_CONTEXT_NAME TORCHX_HOME UNKNOWN UnknownAppException "
        "UnknownSchedulerException VolumeMount Workspace app_metadata cases get_named_resources "
        "get_type_name is_terminal macros make_app_handle named_resources parse_app_handle "
        "parse_mounts resource runopt runopts"
    ),
    "torchx.specs.api": (
        "ALL MISSING NONE UNKNOWN NULL_RESOURCE TORCHX_HOME Resource macros RetryPolicy MountType "
        "BindMount VolumeMount DeviceMount Workspace Role AppDef AppState ReplicaState is_terminal "
        "is_started ReplicaStatus RoleStatus AppStatus AppStatusError CfgVal runopt runopts "
        "AppDryRunInfo InvalidRunConfigException MalformedAppHandleException "
        "UnknownSchedulerException UnknownAppException AppHandle ParsedAppHandle parse_app_handle "
        "make_app_handle get_type_name to_dict"
    ),
    "torchx.specs.overlays": (
        "set_overlay get_overlay apply_overlay validate_overlay PUT JOIN DEL OverlaySpec"
    ),
    "torchx.specs.app_metadata": "CONTEXT VERSION SCHEDULER ROLES_PREFIX NA TORCHX_CONTEXT_NAME",
    "torchx.specs.capabilities": "CapabilityKey",
    "torchx.specs.cases": "snake_to_camel camel_to_snake",
    "torchx.specs.named_resources_generic": "NAMED_RESOURCES",
    "torchx.specs.named_resources_aws": "NAMED_RESOURCES aws_t3_medium aws_p4d_24xlarge",
    "torchx.specs.structured_opts": "StructuredOpts",
    "torchx.specs.serialize": "app_to_dict app_from_dict",
    "torchx.plugins": (
        "EIGHTH HALF PluginRegistry PluginType QUARTER RegistrationError SIXTEENTH WHOLE "
        "halve_mem_down_to powers_of_two_gpus register registry resource_tags"
    ),
}


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in DOCUMENTED.items() for name in names.split()]
)
def test_a_documented_name_is_there(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


def test_no_module_has_the_name_of_something_else() -> None:
    import pkgutil

    specs = importlib.import_module("torchx.specs")
    modules = {module.name for module in pkgutil.iter_modules(specs.__path__)}
    for module in modules:
        importlib.import_module(f"torchx.specs.{module}")
    assert modules & set(specs.__all__) == {"app_metadata", "cases"}
    assert all(getattr(specs, name) is not None for name in specs.__all__)
    assert set(specs.__all__) <= set(dir(specs))
    of_api = set(specs.api.__all__) - {"camel_to_snake", "snake_to_camel", "to_dict"}
    assert of_api < set(specs.__all__), "type checkers know the names of the package from there"
    assert all(getattr(specs, name) is getattr(specs.api, name) for name in of_api)
    assert callable(specs.resource)
    assert isinstance(specs.runopts, type)
    assert isinstance(specs.macros, type)
    assert "gpu.small" in specs.named_resources


def test_the_keys_of_the_metadata() -> None:
    from torchx.specs import NA, TORCHX_CONTEXT_NAME, app_metadata

    keys = (app_metadata.CONTEXT, app_metadata.VERSION, app_metadata.SCHEDULER, app_metadata.ROLES_PREFIX)
    assert keys == ("torchx/context", "torchx/version", "torchx/scheduler", "torchx/roles.")
    assert (NA, TORCHX_CONTEXT_NAME) == ("<<NA>>", "TORCHX_CONTEXT_NAME")


def _loaded_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module", ["torchx.specs", "torchx.specs.api", "torchx.plugins", "torchx.specs.serialize"]
)
def test_importing_is_light_and_silent(module: str) -> None:
    loaded = _loaded_after(f"import {module}")
    assert loaded.isdisjoint(HEAVY.split())
    own = {name for name in loaded if name.startswith("torchx.")}
    late = ("overlays", "structured_opts", "runopts_text", "status_text", "named_resources_aws", "builders")
    assert own.isdisjoint(f"torchx.specs.{name}" for name in late)
    floors_above = (
        "torchx.discovery",
        "torchx.scheduling.base",
        "torchx.runner",
        "torchx.config",
        "torchx_cli",
    )
    assert own.isdisjoint(floors_above)


def test_plain_workspace_and_plain_role_need_no_yaml() -> None:
    statement = (
        "import torchx.specs as s; s.Workspace.from_str('~/src'); s.resource(cpu=1); s.runopts().resolve({})"
    )
    assert _loaded_after(statement).isdisjoint(["yaml", "importlib.metadata", "json"])


def test_submodules_are_found_through_the_package() -> None:
    code = "import torchx.specs as specs; specs.overlays.PUT('a'); specs.named_resources_aws.aws_t3_medium()"
    _loaded_after(code)
    from torchx import specs

    with pytest.raises(AttributeError, match="no attribute `nope`"):
        specs.nope  # noqa: B018
