"""Tests of duties that all engines have: options, checks, rows of a listing, owners."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from torchx.errors import OwnershipError, StateError, UsageError
from torchx.jobs.ended import EndedJob
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord
from torchx.jobs.view import AttemptView, JobView, ReplicaView
from torchx.schedulers import create_scheduler
from torchx.schedulers.shared import owner
from torchx.schedulers.shared.listing import newest_first, row_of
from torchx.schedulers.shared.options import SHARED, check_choices
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse, Scheduler
from torchx.scheduling.checks import require_replicas
from torchx.scheduling.measurement import Sample
from torchx.scheduling.responses import local_time
from torchx.specs.app import AppDef, AppDryRunInfo, Role
from torchx.specs.status import AppState, FirstFailure

ENGINES = ("local_cwd", "local_dir", "local_docker", "slurm", "kubernetes")


@pytest.fixture(params=ENGINES)
def scheduler(request: pytest.FixtureRequest) -> Scheduler[Any]:
    return create_scheduler(request.param, "torchx")


def app(**changes: Any) -> AppDef:
    return AppDef("a", [Role("r", **{"image": "i", "entrypoint": "true", **changes})])


def test_a_shared_option_has_one_definition(scheduler: Scheduler[Any]) -> None:
    used = [name for name, _ in scheduler.run_opts() if name in SHARED]
    assert {"fail_fast", "workspace_limit_mb"} <= set(used)
    for name in used:
        option, shared = scheduler.run_opts().get(name), SHARED[name]
        assert option is not None
        assert (option.opt_type, option.help) == (shared.opt_type, shared.help)
        if (scheduler.backend, name) != ("kubernetes", "grace_period"):
            assert option.default == shared.default


@pytest.mark.parametrize(
    "cfg",
    [
        {"grace_period": 1e12},
        {"retry_backoff": 2147483647.0},
        {"time_limit": "20000d"},
        {"time_limit": "1h", "notice": "20000d"},
        {"stall": "20000d"},
        {"preflight": ["collective:20000d"]},
    ],
)
def test_each_duration_has_a_maximum(scheduler: Scheduler[Any], cfg: dict[str, Any]) -> None:
    if not cfg.keys() <= {name for name, _ in scheduler.run_opts()}:
        return
    if scheduler.backend == "kubernetes" and cfg == {"retry_backoff": 2147483647.0}:
        return  # the largest number in the objects of a cluster
    with pytest.raises(UsageError, match=f"`{[*cfg][-1]}`.* expected"):
        scheduler.submit_dryrun(app(), cfg)


@pytest.mark.parametrize("option", ["grace_period", "retry_backoff", "workspace_limit_mb"])
def test_a_negative_number_is_rejected(scheduler: Scheduler[Any], option: str) -> None:
    if option not in scheduler.run_opts():
        return
    for value in (-1, float("inf"), float("nan")):
        if option == "workspace_limit_mb" and value != -1:
            continue  # it is a whole number
        with pytest.raises(
            UsageError, match=f"run option `{option}` of {scheduler.backend} is .*, expected"
        ) as error:
            scheduler.submit_dryrun(app(), {option: value})
        assert "0" in error.value.message


def test_a_value_that_is_not_a_choice_is_rejected() -> None:
    with pytest.raises(
        UsageError, match="run option `kind` of x is `jbo`, expected auto, job or all"
    ) as error:
        check_choices("x", {"kind": "jbo"}, {"kind": ("auto", "job", "all")})
    assert error.value.hint == "did you mean `job`?"


def test_an_application_without_roles_is_rejected(scheduler: Scheduler[Any]) -> None:
    with pytest.raises(UsageError, match="application `a` has no roles, so there is nothing to run"):
        scheduler.submit_dryrun(AppDef("a"), {})


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"num_replicas": 10**9}, "has 1,000,000,000 replicas; the maximum is 100,000"),
        ({"max_retries": 10**9}, "has 1,000,000,000 retries of a role; the maximum is 100,000"),
    ],
)
def test_more_than_a_record_may_have_is_rejected(
    scheduler: Scheduler[Any], counts: dict[str, int], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        scheduler.submit_dryrun(app(image="i", **counts), {})


@pytest.mark.parametrize("name", ["local_docker", "kubernetes", "slurm"])
def test_a_role_without_an_image_is_rejected(name: str) -> None:
    cfg: dict[str, Any] = {"containers": True} if name == "slurm" else {}
    with pytest.raises(UsageError, match="role `r` has no image, and"):
        create_scheduler(name, "torchx").submit_dryrun(app(image=""), cfg)


def test_a_request_without_its_application_is_rejected(scheduler: Scheduler[Any]) -> None:
    made = scheduler.submit_dryrun(app(image="/" if scheduler.backend == "local_dir" else "i"), {})
    alone: AppDryRunInfo[Any] = AppDryRunInfo(made.request, str)
    with pytest.raises(UsageError, match="only with the application it was made from") as error:
        scheduler.schedule(alone)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("role", "replicas", "message"),
    [
        ("wroker", [], "a has no role `wroker`\n  did you mean `worker`?   its roles: worker, one, unknown"),
        ("worker", [0, 7], "a has no replica worker/7; its replicas are 0 to 2"),
        ("one", [1], "a has no replica one/1; its only replica is 0"),
    ],
)
def test_a_replica_that_does_not_exist(role: str, replicas: list[int], message: str) -> None:
    known = {"worker": [0, 1, 2], "one": [0], "unknown": []}
    with pytest.raises(StateError) as error:
        require_replicas("a", known, role, replicas)
    assert str(error.value) == message
    require_replicas("a", known, "worker", [0, 2])
    require_replicas("a", known, "unknown", [5])


# --- rows of a listing ---------------------------------------------------------------------------

FAILURE = FirstFailure("r", 1, 1, signal="SIGKILL", msg="out of memory")


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (DescribeAppResponse("a", AppState.SUCCEEDED), None, (0, "")),
        (DescribeAppResponse("a", AppState.RUNNING, msg="waits"), 3, (None, "waits")),
        (DescribeAppResponse("a", AppState.CANCELLED, msg="cancelled"), 143, (None, "cancelled")),
        (DescribeAppResponse("a", AppState.FAILED, first_failure=FAILURE), None, (137, "out of memory")),
        (DescribeAppResponse("a", AppState.FAILED, msg="late", first_failure=FAILURE), 4, (4, "late")),
        (DescribeAppResponse("a", AppState.FAILED), None, (None, "")),
    ],
)  # fmt: skip
def test_a_row_has_the_result_and_the_reason(
    status: DescribeAppResponse, code: int | None, expected: tuple[int | None, str]
) -> None:
    row = row_of(status, exit_code=code)
    assert (row.exit_code, row.msg) == expected
    assert (row.app_id, row.state) == (status.app_id, status.state)


def test_row_of_local_job_has_reason_of_failure() -> None:
    role = RoleRecord("r", [ReplicaRecord(["x"], {})], {})
    record = JobRecord("a-1", "local_cwd", "torchx", "a", 1.0, "/logs", [role], {}, {})
    view = JobView(record, [ReplicaView("r", 0, 0)], "FAILED", first_failure=(0, 1))
    view.replicas[0].attempts = [AttemptView(1, exit_code=127, msg="no program `x`")]
    assert (EndedJob.of(view).exit_code, EndedJob.of(view).msg) == (127, "no program `x`")
    view.replicas[0].attempts = [AttemptView(1, signal="SIGKILL", peak_kib=2048)]
    assert EndedJob.of(view).msg.endswith("e.g. out of memory; peak memory 2 MiB")
    view.replicas[0].attempts[0].usage = Sample(2.0, 1.0, memory=3 << 20)
    assert EndedJob.of(view).msg.endswith("; peak memory 3 MiB"), "of all of its processes"
    view.msg = "its supervisor was killed"
    assert EndedJob.of(view).msg == "its supervisor was killed"


def test_the_newest_row_comes_first() -> None:
    rows = [
        ListAppResponse("none", AppState.UNKNOWN),
        ListAppResponse("old", AppState.SUCCEEDED, submitted_at=local_time(1.0)),
        ListAppResponse("new", AppState.SUCCEEDED, submitted_at=local_time(2.0)),
    ]
    assert [row.app_id for row in newest_first(rows)] == ["new", "old", "none"]
    assert local_time(1.0) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
    assert local_time(None) is None


# --- owners --------------------------------------------------------------------------------------


def test_only_the_owner_may_change_an_application(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "mallory")
    me = owner.user_name()
    assert me != "mallory", "variables do not change the user"
    assert not owner.is_foreign("")
    owner.require_own("a", me, "cancelled", None)
    with pytest.raises(
        OwnershipError, match=f"a was not cancelled: .* the user mallory, and you are {me}"
    ) as error:
        owner.require_own("a", "mallory", "cancelled", "to do it anyway: kill it")
    assert (error.value.exit_code, error.value.hint) == (77, "to do it anyway: kill it")
