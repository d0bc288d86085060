"""For authors of schedulers: the conformance suite that every scheduler here passes (needs pytest)."""

import pytest

# before the import below: its assertions then tell what they compared
pytest.register_assert_rewrite("torchx.testing.conformance", "torchx.testing.abilities")

from torchx.testing.abilities import AbilityConformance as AbilityConformance  # noqa: E402
from torchx.testing.conformance import SchedulerConformance as SchedulerConformance  # noqa: E402
