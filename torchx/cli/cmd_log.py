"""The former place of functions for logs of several replicas."""

from torchx.compat.cli import find_role_replicas as find_role_replicas
from torchx.compat.cli import prefix_line as _prefix_line  # noqa: F401
from torchx.compat.cli import validate as validate
