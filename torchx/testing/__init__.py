"""The conformance suite for schedulers, for their authors (its names need pytest)."""

from importlib.util import find_spec

if find_spec("pytest") is not None:
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

    from torchx.testing.abilities import AbilityConformance as AbilityConformance
    from torchx.testing.conformance import SchedulerConformance as SchedulerConformance
    from torchx.testing.fields import FieldConformance as FieldConformance
    from torchx.testing.fields import meanings_of_page as meanings_of_page
    from torchx.testing.harness import Ability as Ability
    from torchx.testing.harness import Harness as Harness
    from torchx.testing.harness import Meaning as Meaning
    from torchx.testing.limits import LimitConformance as LimitConformance
    from torchx.testing.logs import LogConformance as LogConformance
    from torchx.testing.native_sweeps import ManyConformance as ManyConformance
    from torchx.testing.retries import RetryConformance as RetryConformance
    from torchx.testing.retry_cases import RetryCases as RetryCases
    from torchx.testing.services import ServiceConformance as ServiceConformance
    from torchx.testing.sweeps import SweepConformance as SweepConformance
