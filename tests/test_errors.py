"""Errors keep their facts on the way to another process."""

from __future__ import annotations

import pickle

from torchx.errors import TorchxError
from torchx.specs.run_options import InvalidRunConfigException


def test_errors_can_be_pickled() -> None:
    error: TorchxError = InvalidRunConfigException(
        "log_dir is no number", "log_dir", {"log_dir": "x"}, hint="look"
    )
    twin = pickle.loads(pickle.dumps(error))
    assert isinstance(twin, InvalidRunConfigException)
    assert (str(twin), twin.cfg_key, twin.cfg) == (str(error), "log_dir", {"log_dir": "x"})
