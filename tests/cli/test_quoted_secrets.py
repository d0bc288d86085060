"""A program that prints its secrets: no view that quotes its output shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from program import torchx
from support import wait_until

from torchx.notebook import app
from torchx_cli.mcp import tools

SECRETS = ("one-Zq8vT3xw", "two-Zq8vT3xw", "three-Zq8vT3xw")
"""Values of a declared secret, of a variable with a secret name, and of an argument in a command line."""

PROGRAM = """\
echo "$PASSED $API_KEY $2"
echo "ImportError: $PASSED $API_KEY $2"
echo "{\\"message\\": {\\"message\\": \\"ImportError: $PASSED $API_KEY $2\\"}}" > $TORCHELASTIC_ERROR_FILE
exit 1
"""

VIEWS = """\
status
status -o json
status --ranks
why
why -o json
describe
describe -o json
events
events -o json
report -o -
report --json
wait
wait -o json
wait --for log:Import
top
"""


@pytest.fixture
def handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A failed application that has printed its secrets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PASSED", SECRETS[0])
    Path("job.sh").write_text(PROGRAM)
    Path("hook.sh").write_text('#!/bin/sh\necho "$1" > message\n')
    target = f"cmd:sh {tmp_path}/hook.sh {{message}}"
    flags = ["--secret", "PASSED", "--env", f"API_KEY={SECRETS[1]}", "--notify", target]
    words = ["utils.sh", "--max_retries", "1", "sh", "job.sh", "--password", SECRETS[2]]
    done = torchx("run", *flags, *words)
    assert done.returncode == 1
    monkeypatch.delenv("PASSED")
    yield done.stdout.strip()


def shown_in(text: str) -> list[str]:
    return [value for value in SECRETS if value in text]


def test_views_that_quote_the_output_mask_it(handle: str, tmp_path: Path) -> None:
    assert shown_in(torchx("log", handle).stdout) == list(SECRETS), "the log itself is unchanged"
    for view in VIEWS.splitlines():
        command, *flags = view.split()
        done = torchx(command, handle, *flags)
        assert shown_in(done.stdout + done.stderr) == [], view
    message = tmp_path / "message"
    text = str(wait_until(lambda: message.exists() and message.read_text(), "the notification was sent"))
    assert "ImportError" in text
    assert shown_in(text) == []


def test_notebooks_mask_the_output(handle: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = app(handle)
    page = shown._repr_html_()
    assert "ImportError: ********" in page
    shown.log()
    assert shown_in(page + capsys.readouterr().out + "".join(shown.lines())) == []


def test_the_server_for_agents_masks_the_log(handle: str) -> None:
    command = tools.command_line("log", tools.TOOLS["log"], {"target": handle})
    done = torchx(*command)
    assert "ImportError: ********" in done.stdout
    assert shown_in(done.stdout) == []
