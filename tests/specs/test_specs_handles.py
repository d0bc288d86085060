"""Handles, what names logs, and the errors about both."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx.errors import StateError, UsageError
from torchx.specs.handles import (
    LogTarget,
    MalformedAppHandleException,
    ParsedAppHandle,
    UnknownAppException,
    UnknownSchedulerException,
    make_app_handle,
    parse_app_handle,
    parse_log_target,
)


@pytest.mark.parametrize(
    ("handle", "parts"),
    [
        ("slurm://torchx/12", ("slurm", "torchx", "12")),
        ("slurm:///12", ("slurm", "", "12")),
        ("kubernetes://torchx/default:job-x", ("kubernetes", "torchx", "default:job-x")),
    ],
)
def test_a_handle_has_three_parts(handle: str, parts: tuple[str, str, str]) -> None:
    assert parse_app_handle(handle) == ParsedAppHandle(*parts)
    assert make_app_handle(*parts) == handle


@pytest.mark.parametrize("text", ["", "a://b", "://x/y", "a//b/c", "a://s/", "train-x7k2m9cd"])
def test_any_other_text_is_no_handle(text: str) -> None:
    with pytest.raises(MalformedAppHandleException, match="SCHEDULER://SESSION/APP_ID") as caught:
        parse_app_handle(text)
    assert caught.value.app_handle == text


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("s://x/app", LogTarget("s://x/app")),
        ("s:///app/role", LogTarget("s:///app", "role")),
        ("s://x/ns:app/role/0", LogTarget("s://x/ns:app", "role", (0,))),
        ("s://x/app/role/4,0,2-3,2,", LogTarget("s://x/app", "role", (4, 0, 2, 3))),
        ("app-x7k", LogTarget("app-x7k")),
        ("@last/role/1", LogTarget("@last", "role", (1,))),
    ],
)
def test_logs_are_named_by_application_role_and_replicas(text: str, target: LogTarget) -> None:
    assert parse_log_target(text) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "s://x",
        "app/",
        "app/role/",
        "app/role/x",
        "app/role/1/2",
        "app/role/3-1",
        "app/role/,",
        "a/r/-1",
        "app/role/0-99999999",
        "app/role/\u0663",
    ],
)
def test_what_names_no_logs_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"names no logs|is not a replica id"):
        parse_log_target(text)


_word = st.text("ab:-_1", min_size=1).filter(lambda t: "://" not in t)


@settings(max_examples=60)
@given(st.text("ab_1", min_size=1), st.text("ab1", max_size=3), _word, st.none() | _word, st.data())
def test_parts_put_together_are_found_again(
    scheduler: str, session: str, app_id: str, role: str | None, data: st.DataObject
) -> None:
    handle = make_app_handle(scheduler, session, app_id)
    assert parse_app_handle(handle) == (scheduler, session, app_id)
    ids = data.draw(st.lists(st.integers(0, 20), unique=True)) if role else []
    text = "/".join([handle] + ([role] if role else []) + ([",".join(map(str, ids))] if ids else []))
    assert parse_log_target(text) == LogTarget(handle, role, tuple(ids))


def test_unknown_names_are_reported_with_the_nearest() -> None:
    scheduler = UnknownSchedulerException("slrum", ["slurm", "local_cwd"])
    assert isinstance(scheduler, UsageError)
    assert str(scheduler).startswith("unknown scheduler `slrum`\n  did you mean `slurm`?")
    app = UnknownAppException("s://x/train-1", ["s://x/train-2"])
    assert isinstance(app, StateError)
    assert "did you mean `s://x/train-2`?" in str(app)
    assert "torchx list" in str(UnknownAppException("s://x/zz"))
