"""What the tests of containers get: jobs that are removed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from containers import Jobs, jobs_of_a_test


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    """Submits applications, and removes them at the end of the test."""
    with jobs_of_a_test() as jobs:
        yield jobs
