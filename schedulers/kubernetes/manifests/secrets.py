"""Secret variables of roles: a Secret that the pods refer to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torchx.masking import SecretValue

if TYPE_CHECKING:
    from torchx.schedulers.kubernetes.api.objects import Object
    from torchx.specs.app import AppDef


def secret_name(app_id: str) -> str:
    """Returns the name of the Secret of an application."""
    return f"{app_id}-env"


def secret_variable(app_id: str, number: int, name: str) -> Object:
    """Returns a variable of a container whose value is in the Secret.

    Args:
        app_id: the application's id, without the namespace.
        number: the number of the role.
        name: the variable.
    """
    reference = {"name": secret_name(app_id), "key": _key(number, name)}
    return {"name": name, "valueFrom": {"secretKeyRef": reference}}


def secret_manifests(app: AppDef, metadata: Object) -> list[Object]:
    """Returns the Secret of an application, or nothing if its roles have no secret variables.

    Args:
        app: the application.
        metadata: the metadata of the Secret.
    """
    values = _values(app)
    if not values:
        return []
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": "Opaque",
            "immutable": True,
            "stringData": values,
        }
    ]


def _values(app: AppDef) -> Mapping[str, SecretValue]:
    return {
        _key(number, name): value
        for number, role in enumerate(app.roles)
        for name, value in role.env.items()
        if isinstance(value, SecretValue)
    }


def _key(number: int, name: str) -> str:
    return f"{number}.{name}"
