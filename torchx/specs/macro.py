"""Macros: placeholders in a role that a scheduler replaces at submission."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from torchx.json_limits import Object
from torchx.lazy import lazy_imports
from torchx.masking import SecretValue
from torchx.specs.app import Role

with lazy_imports:
    import string

if TYPE_CHECKING:
    import re
    from string import Template


@cache
def _template() -> type[Template]:
    """Returns the syntax of macros: names, and ``hosts.`` with the name of a role."""

    class MacroTemplate(string.Template):
        """Names as in ``string.Template``, and in braces also those with the name of a role."""

        braceidpattern = r"(?a:[_a-z][_a-z0-9]*|hosts\.[^{}]+)"

    return MacroTemplate


def macro_pattern() -> re.Pattern[str]:
    """Returns the pattern of macros in a text, with the groups of ``string.Template``."""
    return _template().pattern


class macros:
    """Placeholders for values that are known only at submission.

    They are replaced in a role's arguments, environment values and metadata only. Unknown placeholders
    stay unchanged; ``$$`` is a literal ``$``.

    >>> role = Role("r", "img", args=["--id", macros.app_id], env={"HOST": "$$HOSTNAME"})
    >>> values = macros.Values(img_root="/", app_id="job-1", replica_id="0", rank0_env="RANK0")
    >>> done = values.apply(role)
    >>> done.args, done.env
    (['--id', 'job-1'], {'HOST': '$HOSTNAME'})
    """

    img_root = "${img_root}"
    """The root folder of the image."""

    app_id = "${app_id}"
    """The application's id."""

    replica_id = "${replica_id}"
    """The replica's id within its role; a restarted replica keeps it."""

    rank0_env = "${rank0_env}"
    """The NAME of the environment variable that holds the host of replica 0 of the first role."""

    base_img_root = "${base_img_root}"
    """Accepted in older files; replaced by an empty text."""

    @staticmethod
    def hosts(role: str) -> str:
        """Returns the macro for the hosts of the replicas of a role, separated by commas.

        >>> macros.hosts("server")
        '${hosts.server}'
        """
        return f"${{hosts.{role}}}"

    @dataclass
    class Values:
        """The values of the macros in one replica.

        Attributes:
            img_root: the root folder of the image.
            app_id: the application's id.
            replica_id: the replica's id within its role.
            rank0_env: name of the environment variable with the host of rank 0.
            base_img_root: not used.
            role_hosts: the hosts of each role, separated by commas.
        """

        img_root: str
        app_id: str
        replica_id: str
        rank0_env: str
        base_img_root: str = "DEPRECATED"
        role_hosts: Mapping[str, str] = field(default_factory=dict)

        def apply(self, role: Role) -> Role:
            """Returns a deep copy of a role with the macros replaced."""
            replaced = copy.copy(role)
            replaced.args = self._replaced(role.args)
            replaced.env = self._replaced(role.env)
            replaced.metadata = self._replaced(copy.deepcopy(role.metadata))
            copied = {id(value): value for value in (replaced.args, replaced.env, replaced.metadata)}
            return copy.deepcopy(replaced, copied)

        def substitute(self, arg: str) -> str:
            """Returns a text with the macros replaced.

            >>> macros.Values("/", "job-1", "0", "RANK0").substitute("$$${rank0_env} ${app_id} ${x}")
            '$RANK0 job-1 ${x}'
            >>> macros.Values("/", "", "0", "", role_hosts={"a-b": "x,y"}).substitute("${hosts.a-b}")
            'x,y'
            """
            if "$" not in arg:
                return arg
            hosts = {f"hosts.{role}": hosts for role, hosts in self.role_hosts.items()}
            return _template()(arg).safe_substitute(self.to_dict() | hosts)

        def to_dict(self) -> Object:
            """Returns the value of each macro by its name."""
            return {
                "img_root": self.img_root,
                "app_id": self.app_id,
                "replica_id": self.replica_id,
                "rank0_env": self.rank0_env,
            }

        def _replaced(self, value: Any) -> Any:
            """Replaces macros in lists, tuples and the values of mappings; keeps keys."""
            if isinstance(value, SecretValue):
                return value  # literal
            if isinstance(value, str):
                return self.substitute(value)
            if isinstance(value, dict):
                return {key: self._replaced(v) for key, v in value.items()}
            if type(value) in (list, tuple):
                return type(value)(self._replaced(v) for v in value)
            return value
