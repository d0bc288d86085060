"""The targets of notifications are checked at the submission, and shown without secrets."""

from __future__ import annotations

import pytest

from torchx.errors import UsageError
from torchx.notifications.plan import Notify

SECRET = "canary-5d41"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (f"ftp://host/{SECRET}", "notifications are sent to an http or https URL"),
        (f"https:///{SECRET}", "notifications are sent to"),
        (f"https://host:99999/{SECRET}", "https://host:99999 is not a valid URL"),
        (f"https://host/{SECRET} x", "has no spaces"),
        (f"https://host/{SECRET}\u00e9", "non-ASCII"),
        (f"https://me:{SECRET}@host/", "cannot have a user"),
        (f"https://[host/{SECRET}", "is not a valid URL"),
        (SECRET, "notifications are sent to"),
        ("", "notifications are sent to"),
        ("cmd:", "the command of a notification is empty"),
        ("cmd:  ", "the command of a notification is empty"),
        (f"cmd:sh -c '{SECRET}", "cannot be split"),
        (f"cmd:no-such-program-x {SECRET}", "the program `no-such-program-x` was not found"),
        (f"cmd:echo {SECRET} > x", "runs without a shell, which `>` needs"),
        (f"cmd:echo {SECRET} | cat", "which `|` needs"),
        (f"cmd:echo {SECRET} 2>&1", "which `2>&1` needs"),
        ("https://host/" + SECRET * 1000, "is longer than"),
    ],
)
def test_invalid_targets_are_errors_without_secrets(target: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Notify([target])
    text = f"{caught.value.message} {caught.value.hint}"
    assert message in text
    assert SECRET not in text


def test_kinds_are_checked() -> None:
    with pytest.raises(UsageError) as caught:
        Notify(["cmd:true"], ["ends"])
    assert caught.value.hint == "did you mean `end`?   kinds: end, failure, stall, straggler"
    with pytest.raises(UsageError):
        Notify(["cmd:true"], [])
    with pytest.raises(UsageError):
        Notify([])


def test_a_plan_is_shown_without_secrets() -> None:
    plan = Notify([f"https://host:1/{SECRET}?{SECRET}#{SECRET}", f"cmd:sh -c {SECRET}"], ["failure"])
    assert repr(plan) == "Notify(https://host:1, cmd:sh; on failure)"
    assert repr({"plan": plan}).count(SECRET) == 0


def test_arguments_with_characters_of_a_shell_are_kept() -> None:
    Notify(["cmd:sh -c 'echo {name} > file; true'", "cmd:echo x?a=1&b=2 '<b>' 'a | b'"])


def test_a_url_has_no_placeholders() -> None:
    with pytest.raises(UsageError, match="https://host:1: a URL has no spaces, placeholders,"):
        Notify(["https://host:1/hook?app={name}"])


@pytest.mark.parametrize(
    ("name", "hint"), [("nmae", "did you mean `name`?"), ("id", "placeholders: name, state")]
)
def test_unknown_placeholders_are_rejected(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"cmd:echo has the unknown placeholder `{{{name}}}`") as error:
        Notify(["cmd:echo {state} {" + name + "}"])
    assert (error.value.hint or "").startswith(hint)
    Notify(["cmd:sh -c 'echo ${HOME} {exit_code} {}'"])
