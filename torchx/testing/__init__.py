"""The conformance suite for schedulers, for their authors (needs pytest)."""

import pytest

# before the imports below, so that their assertions report the compared values
pytest.register_assert_rewrite(
    *(
        f"torchx.testing.{name}"
        for name in (
            *("abilities", "conformance", "fields", "harness", "limits", "many"),
            *("logs", "retries", "retry_cases", "services", "sweeps"),
        )
    )
)

from torchx.testing.abilities import AbilityConformance as AbilityConformance  # noqa: E402
from torchx.testing.conformance import SchedulerConformance as SchedulerConformance  # noqa: E402
from torchx.testing.fields import FieldConformance as FieldConformance  # noqa: E402
from torchx.testing.fields import meanings_of_page as meanings_of_page  # noqa: E402
from torchx.testing.harness import Ability as Ability  # noqa: E402
from torchx.testing.harness import Harness as Harness  # noqa: E402
from torchx.testing.harness import Meaning as Meaning  # noqa: E402
from torchx.testing.limits import LimitConformance as LimitConformance  # noqa: E402
from torchx.testing.logs import LogConformance as LogConformance  # noqa: E402
from torchx.testing.many import ManyConformance as ManyConformance  # noqa: E402
from torchx.testing.retries import RetryConformance as RetryConformance  # noqa: E402
from torchx.testing.retry_cases import RetryCases as RetryCases  # noqa: E402
from torchx.testing.services import ServiceConformance as ServiceConformance  # noqa: E402
from torchx.testing.sweeps import SweepConformance as SweepConformance  # noqa: E402
