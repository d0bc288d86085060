"""The run options of a scheduler as a class, which TorchX calls ``Opts``."""

from __future__ import annotations

from copy import copy
from dataclasses import field, make_dataclass
from functools import partial
from typing import Any

from torchx.specs.run_options import runopts
from torchx.specs.structured_opts import StructuredOpts


def structured(opts: runopts) -> Any:
    """Returns a class with a field for each run option; none is required."""
    fields: list[Any] = []
    for name, opt in opts:
        default = field(default_factory=partial(copy, opt.default), metadata={"cfg_key": name})
        fields.append((name.replace("-", "_"), opt.opt_type | None, default))
    return make_dataclass("Options", fields, bases=(StructuredOpts,))
