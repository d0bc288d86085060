"""Features of other packages: flags of `torchx run`, policies, rows of `status`, checks of `doctor`.

A package publishes a class derived from :class:`Feature` as an entry point of the group ``torchx.features``.
The name of the entry point is the name of the feature.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx import json_limits
from torchx.command_line import FlagRow as Flag
from torchx.json_limits import Data
from torchx.json_shape import typed_at
from torchx.settings import FEATURE

if TYPE_CHECKING:
    from torchx.scheduling.findings import Finding

__all__ = ["Feature", "Flag", "Values", "values_of"]

GROUP = "torchx.features"
"""The group of their entry points."""

Values = Mapping[str, Any]
"""The flags of a feature that are given: the name of each with its string, list of strings, or True."""


class Feature:
    """A feature of another package. Each method has a default that does nothing.

    Attributes:
        flags: its flags of ``torchx run``.
        row_type: a TypedDict, the type of the result of :meth:`row`.
    """

    flags: Sequence[Flag] = ()
    row_type: type | None = None

    def policies(self, values: Values) -> Sequence[str]:
        """Returns the policies of an application that is submitted with this feature, as ``MODULE:CLASS``.

        Args:
            values: its flags. They are stored with the application, where other users of an engine cannot
                read them; :func:`values_of` returns them to a policy.

        Raises:
            UsageError: a value is invalid.
        """
        return ()

    def row(self, values: Values) -> Mapping[str, Any]:
        """Returns the data that `torchx status` shows; empty for nothing."""
        return {}

    def checks(self) -> Iterable[Finding]:
        """Returns the results of checks of this machine, for `torchx doctor`."""
        return ()


def values_of(metadata: Data, name: str) -> dict[str, Any]:
    """Returns the flags of a feature with which an application was submitted; empty without the feature.

    Args:
        metadata: the metadata of the application.
        name: the name of the feature.
    """
    try:
        return typed_at(json_limits.load_json(str(metadata.get(f"{FEATURE}{name}"))), dict)
    except ValueError:
        return {}
