"""Policies of other packages: recorded by module and folder at the submission, loaded by the supervisor."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from torchx.errors import RunOptionError, StateError
from torchx.json_limits import Data
from torchx.lazy import lazy_imports
from torchx.settings import POLICIES
from torchx.supervisor.policies import Application, Policy, Replica

with lazy_imports:
    import site
    import traceback


class Reference(NamedTuple):
    """A policy on record.

    Attributes:
        module: its module.
        name: its class.
        folder: the folder from which the module is imported.
    """

    module: str
    name: str
    folder: str


def references_of(cfg: Data) -> list[Reference]:
    """Imports the policies that run options name, and returns their places.

    Raises:
        UsageError: one cannot be imported, or is not a policy.
    """
    references = []
    for value in cfg.get(POLICIES) or ():
        module, _, name = value.partition(":")
        try:
            policy = getattr(importlib.import_module(module), name)
        except Exception as error:
            raise RunOptionError(POLICIES, f"is `{value}`, which cannot be imported: {error}") from error
        if not (isinstance(policy, type) and issubclass(policy, Policy)):
            raise RunOptionError(POLICIES, f"is `{value}`, expected MODULE:CLASS with a class of policies")
        top = sys.modules[module.partition(".")[0]]
        place = next(iter(getattr(top, "__path__", [top.__file__])))
        references.append(Reference(module, name, str(Path(place).resolve().parent)))
    return references


def create(references: Sequence[Sequence[str]], application: Application) -> list[Policy[Replica]]:
    """Loads recorded policies; site packages are loaded only if there are any.

    Raises:
        StateError: one cannot be loaded or created.
    """
    if references:
        site.main()
    policies: list[Policy[Replica]] = []
    for module, name, folder in references:
        sys.path.append(folder)
        try:
            policies.append(_guarded(getattr(importlib.import_module(module), name)(application)))
        except Exception as error:
            raise StateError(f"the policy {module}:{name} of {folder} cannot be loaded: {error}") from error
    return policies


def _guarded(policy: Policy[Replica]) -> Policy[Replica]:
    """Changes a policy so that its first error ends the policy alone, and not the application."""
    default: Policy[Replica] = Policy()
    names = [name for name, value in vars(Policy).items() if callable(value) and not name.startswith("_")]
    methods = {name: getattr(policy, name) for name in names}

    def call(name: str, *args: object) -> object:
        try:
            return methods[name](*args)
        except Exception:
            traceback.print_exc()  # into the supervisor's log
            methods.update({each: getattr(default, each) for each in names})
            return methods[name](*args)

    for name in names:
        setattr(policy, name, partial(call, name))
    return policy
