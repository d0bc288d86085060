"""The conformance suite is long on engines whose replicas cost much, except for a test of each duty.

All of it runs on local processes and on the fake cluster.
"""

from __future__ import annotations

import pytest

COSTLY = ("test_local_dir.py", "test_local_docker.py", "test_ssh.py")
"""Engines that take half a second of the processor for a replica, or share their code with a cheap one."""

OF_EACH_DUTY = (
    "test_a_cancelled_application_is_not_retried",
    "test_a_failure_has_its_exit_code",
    "test_a_log_is_followed_to_the_end",
    "test_a_program_runs_in_a_replica",
    "test_a_retry_can_succeed",
    "test_run_ends_at_its_limit_and_next_begins",
    "test_a_signal_is_reported",
    "test_a_workspace_arrives",
    "test_an_application_runs_and_succeeds",
    "test_an_unknown_option_is_rejected",
    "test_arguments_and_environment_arrive_unchanged",
    "test_cancel_ends_it",
    "test_declarations_name_known_fields",
    "test_delete_leaves_nothing",
    "test_each_run_has_its_result",
    "test_it_is_listed_once_until_its_deletion",
    "test_it_outlives_the_process_that_submitted_it",
    "test_its_options_have_a_help_text",
    "test_kill_gives_no_time",
    "test_one_failure_ends_all",
    "test_ready_replicas_are_counted",
    "test_the_first_failure_is_reported",
    "test_log_has_every_line_of_replica_in_order",
    "test_the_page_agrees_with_the_declarations",
)
"""The tests that are not long on any engine, without their parameters."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the other tests as long, before options select tests by their marks."""
    for item in items:
        name = getattr(item, "originalname", item.name)
        if item.path.name in COSTLY and item.path.parent.name == "conformance" and name not in OF_EACH_DUTY:
            item.add_marker(pytest.mark.long)
