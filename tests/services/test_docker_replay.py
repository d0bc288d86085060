"""Services in containers, without an engine: what follows from the containers alone."""

from __future__ import annotations

from typing import Any

import pytest

from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.marks import (
    READY,
    STOPPED,
    UNNEEDED,
    ready_at,
    split_marks,
    split_name,
    unready,
)
from torchx.schedulers.docker.replay import Progress, first_starts, replay
from torchx.schedulers.docker.rules.job import job_from, job_of
from torchx.schedulers.docker.status import describe
from torchx.scheduling.base import DescribeAppResponse
from torchx.services import NO_LONGER_NEEDED
from torchx.specs import AppDef, AppState, Role, after, service
from torchx.specs.app import RetryPolicy
from torchx.specs.serialize import app_to_dict
from torchx.supervisor.policy import Start

SERVER, TRAINER = 0, 1


def job(retries: int = 0, policy: str = "APPLICATION", critical: bool = True, **cfg: Any) -> dict[str, Any]:
    settings = {"image": "img", "max_retries": retries, "retry_policy": RetryPolicy(policy)}
    server = service(Role("server", **settings), "tcp:80", within="5m", critical=critical)
    app = AppDef("job", [server, after(Role("trainer", **settings), ["server"])])
    options = {"fail_fast": True, "retry_backoff": 2.0, "grace_period": 5.0, **cfg}
    return {"app": app_to_dict(app), "cfg": options, "submitted_at": 1000.0}


def container(role: str, data: dict[str, Any], **facts: Any) -> Container:
    facts = {"status": "running", "created": 1000.0, "started": 1001.0, "exit_code": None, **facts}
    if facts["exit_code"] is not None:
        facts = {"finished": 1010.0, **facts, "status": "exited"}
    name, mark = f"app-{role}-0", facts.pop("mark", "")
    return Container(f"{name}.{facts.get('attempt', 1)}", name, mark, "app", role, 0, job=data, **facts)


def server(data: dict[str, Any], **facts: Any) -> Container:
    return container("server", data, **facts)


def trainer(data: dict[str, Any], **facts: Any) -> Container:
    return container("trainer", data, **facts)


def held(data: dict[str, Any], **facts: Any) -> Container:
    return trainer(data, status="created", started=None, **facts)


def story(*containers: Container) -> Progress:
    return replay(job_of(containers), containers)


def shown(*containers: Container) -> DescribeAppResponse:
    return describe(containers, 1002.0)


def test_role_starts_when_service_before_it_is_ready() -> None:
    data = job()
    assert first_starts(job_from("app", data)) == {SERVER}
    assert story(server(data), held(data)).starts == []
    assert shown(server(data), held(data)).state is AppState.RUNNING
    assert story(server(data, ready=True), held(data)).starts == [Start((TRAINER,))]
    both = story(server(data, ready=True), trainer(data))
    assert (both.starts, both.stops, both.end) == ([], {}, None)
    # the supervisor that started it knew that the service was ready
    assert story(server(data), trainer(data)).stops == {}


def test_a_start_that_the_engine_refused_is_requested_again() -> None:
    data = job()
    refused = held(data, error="no such device")
    assert story(server(data, ready=True), refused).starts == [Start((TRAINER,))]
    given_up = story(server(data, ready=True), held(data, error="no such device", mark="failed"))
    assert given_up.gang.first_failure == TRAINER


def test_services_are_ended_when_the_others_have_succeeded() -> None:
    data = job()
    done = trainer(data, exit_code=0)
    assert story(server(data, ready=True), done).stops == {SERVER: NO_LONGER_NEEDED}
    over = [server(data, exit_code=143, finished=1011.0, mark=UNNEEDED), done]
    assert shown(*over).state is AppState.SUCCEEDED
    assert shown(*over).roles_statuses[0].replicas[0].attempts[0].msg == NO_LONGER_NEEDED


@pytest.mark.parametrize("code", [0, 3])
def test_service_that_ends_while_it_is_needed_has_failed(code: int) -> None:
    data = job()
    ended = server(data, exit_code=code)
    early = story(ended, held(data))
    assert (early.starts, early.needed, early.end) == ([], {SERVER}, None)
    # its container may be started, so it is marked before the end
    assert list(early.stops) == [TRAINER]
    answer = shown(ended, held(data, mark=STOPPED))
    assert (answer.state, answer.first_failure and answer.first_failure.exit_code) == (AppState.FAILED, code)
    assert answer.first_failure is not None
    assert answer.first_failure.msg == "a service ended by itself while it was needed"
    assert answer.roles_statuses[1].replicas[0].attempts == []
    late = story(ended, trainer(data))
    assert late.stops == {TRAINER: "server/0 failed"}
    assert shown(ended, trainer(data, exit_code=143, finished=1011.0, mark=STOPPED)).state is AppState.FAILED


def test_an_uncritical_service_may_end() -> None:
    data = job(critical=False)
    assert story(server(data, exit_code=3), held(data)).starts == [Start((TRAINER,))]
    assert (
        shown(server(data, exit_code=3), trainer(data, exit_code=0, finished=1020.0)).state
        is AppState.SUCCEEDED
    )


def test_the_answer_of_a_probe_is_in_the_name() -> None:
    data = job()
    name, mark = split_name(f"app-server-0.{unready('HTTP 503: é, busy')}")
    assert name == "app-server-0"
    first = shown(server(data, exit_code=0, mark=mark), held(data, mark=STOPPED)).first_failure
    assert first is not None
    assert first.msg == "not ready within 5m: probe tcp:80: HTTP 503: é, busy"
    assert first.signal == "SIGTERM"
    assert split_name(f"app-server-0.{READY}") == ("app-server-0", READY)


def test_restart_of_all_starts_trainer_again_after_server() -> None:
    data = job(retries=1)
    failed = trainer(data, exit_code=3)
    assert story(server(data, ready=True), failed).stops == {SERVER: "trainer/0 failed; application restarts"}
    ended = [server(data, exit_code=143, finished=1011.0, mark=STOPPED), failed]
    waiting = story(*ended)
    assert waiting.starts == [Start((SERVER,), 2.0)]
    assert waiting.begin_again(next_run=False) == [TRAINER]
    # the label of the retry counts the trainer too, whose container is made later
    retry = {"used": {"application": 1}, "attempts": [2, 2]}
    second = server(data, attempt=2, retry=retry)
    assert story(*ended, second).starts == []
    assert story(*ended, server(data, attempt=2, retry=retry, ready=True)).starts == [Start((TRAINER,))]
    last = trainer(data, attempt=2, retry=retry, exit_code=3)
    assert shown(*ended, second, last).state is AppState.RUNNING
    assert story(*ended, second, last).stops == {SERVER: "trainer/0 failed"}


def test_retry_of_waiting_trainer_is_counted_as_its_own() -> None:
    data = job(retries=1, policy="ROLE")
    ended = [server(data, exit_code=3), trainer(data, exit_code=3, finished=1011.0)]
    both = story(*ended)
    assert both.starts == [Start((SERVER,), 2.0)]
    again = both.begin_again(next_run=False)
    assert again == [TRAINER]
    assert both.retries_with([SERVER, *again]) == {"role server": 1, "role trainer": 1}
    retry = {"used": {"role server": 1, "role trainer": 1}, "attempts": [2, 2]}
    ready = server(data, attempt=2, retry=retry, ready=True)
    assert story(*ended, ready).starts == [Start((TRAINER,))]
    last = story(*ended, ready, trainer(data, attempt=2, retry=retry, exit_code=3))
    assert last.gang.first_failure == TRAINER


def test_the_next_run_replaces_containers_that_never_started() -> None:
    """They have the time limit of their run in their environment."""
    data = job(time_limit="1h", requeue_on="time-limit:1")
    expired = [server(data, exit_code=143, mark="expired", ends_at=1009), held(data, ends_at=1009)]
    next_run = story(*expired)
    assert next_run.starts == [Start((SERVER,))]
    assert next_run.begin_again(next_run=True) == [TRAINER]
    assert next_run.begin_again(next_run=False) == []


@pytest.mark.parametrize(
    "metadata", [{"torchx/after": 3}, {"torchx/after": [1, "trainer"]}, {"torchx/service": 7}]
)
def test_forged_metadata_are_harmless(metadata: dict[str, Any]) -> None:
    data = job()
    data["app"]["roles"][1]["metadata"] = metadata
    assert isinstance(shown(server(data), trainer(data)).state, AppState)
    assert isinstance(shown(server(data, exit_code=0), trainer(data, exit_code=0)).state, AppState)


def test_the_full_name_has_the_mark() -> None:
    data = job()
    names = [one.full_name for one in (server(data), server(data, ready=True), server(data, mark=STOPPED))]
    assert names == ["app-server-0", "app-server-0.ready", "app-server-0.stopped"]
    ended = server(data, ready=True, ready_at=1795740005.679, mark=UNNEEDED, exit_code=0)
    assert ended.full_name == "app-server-0.ready_1795740005679.unneeded"
    assert split_marks(ended.full_name) == ("app-server-0", "ready_1795740005679", UNNEEDED)
    assert ready_at("ready_1795740005679") == ended.ready_at
    role_name = "a-ready.ready_1-0"  # not a mark
    assert split_marks(role_name) == (role_name, "", "")
