"""The runner: submits applications to schedulers and manages them."""

from __future__ import annotations

from torchx.runner.api import Runner as Runner
from torchx.runner.api import get_runner as get_runner
