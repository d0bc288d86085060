"""One try of a notification: which responses and errors are repeated, and which are final."""

from __future__ import annotations

import os
import socket
import ssl
import sys
import threading
from pathlib import Path

import pytest
from hooks import hooks_at
from tunnels import make_certificate

from torchx.notifications import delivery
from torchx.notifications.delivery import deliver

PAYLOAD = {
    "text": "a-1 FAILED", "name": "a", "state": "FAILED", "handle": "local_cwd://torchx/a-1", "app": "a-1",
    "message": "it's {name}; $HOME", "exit_code": 3, "event": "end",
}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (204, ("delivered", "")),
        (302, ("failed", "response 302: redirects are not followed")),
        (404, ("failed", "response 404")),
        (429, ("retry", "response 429")),
        (503, ("retry", "response 503")),
        (504, ("unknown", "response 504 from a proxy")),
    ],
)
def test_the_response_decides(code: int, expected: tuple[str, str]) -> None:
    with hooks_at(code) as hooks:
        assert deliver(hooks.url, PAYLOAD) == expected
        assert hooks.requests == [("/T00/secret-part?key=canary", PAYLOAD)]
        assert hooks.headers[0]["Content-Type"] == "application/json"


def test_a_refused_connection_and_an_unknown_host_are_repeated() -> None:
    with hooks_at(listening=False) as hooks:
        assert deliver(hooks.url, PAYLOAD) == ("retry", "connection refused")
    unknown = deliver("http://no-such-host.invalid/x", PAYLOAD)
    assert unknown == ("retry", "the name of the host is not known")


def test_connection_that_breaks_after_request_is_not_repeated() -> None:
    def serve() -> None:
        client, _ = server.accept()
        client.recv(1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        result = deliver(f"http://127.0.0.1:{server.getsockname()[1]}/", PAYLOAD)
        thread.join()
    assert result.step == "unknown"
    assert result.message.endswith("after it was sent")


def test_server_that_does_not_answer_has_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "ANSWER_WITHIN", 0.2)
    with hooks_at() as hooks:
        hooks.release.clear()
        result = deliver(hooks.url, PAYLOAD)
    # a slow machine may not even connect in this time
    assert result in (("unknown", "no answer within 0 s"), ("retry", "no connection within 0 s"))


def test_an_answer_may_take_longer_than_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "CONNECT_WITHIN", 0.5)
    with hooks_at() as hooks:
        hooks.release.clear()
        threading.Timer(1.5, hooks.release.set).start()
        assert deliver(hooks.url, PAYLOAD) == ("delivered", "")


def test_request_whose_time_is_over_is_not_sent_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time ends while the connection is being made."""
    monkeypatch.setattr(delivery, "ANSWER_WITHIN", 0.05)
    connected, abandoned, finished = threading.Event(), threading.Event(), threading.Event()
    send = delivery._send

    def connect(self: delivery._Connection) -> None:
        connected.set()
        abandoned.wait(60)
        super(delivery._Connection, self).connect()

    def slow(*args: object) -> delivery.Result:
        result = send(*args)  # type: ignore[arg-type]
        finished.set()
        return result

    monkeypatch.setattr(delivery._Connection, "connect", connect, raising=False)
    monkeypatch.setattr(delivery, "_send", slow)
    with hooks_at() as hooks:
        result = deliver(hooks.url, PAYLOAD)
        assert result == ("retry", "no connection within 0 s")
        abandoned.set()
        assert finished.wait(60)
        assert not hooks.requests
    assert connected.is_set()


def test_certificates_are_verified(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = make_certificate(tmp_path_factory.mktemp("tls") / "certificates")
    with hooks_at(certificates=certificates) as hooks:
        result = deliver(hooks.url, PAYLOAD)
        assert result.step == "retry"
        assert result.message.startswith("the certificate is not valid: ")
        assert not hooks.requests
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))
        assert deliver(hooks.url, PAYLOAD) == ("delivered", "")


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with hooks_at() as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert deliver("http://hooks.invalid/x", PAYLOAD) == ("delivered", "")
        assert [path for path, _ in proxy.requests] == ["http://hooks.invalid/x"]


def test_command_gets_values_as_arguments_and_variables(tmp_path: Path) -> None:
    out = tmp_path / "out"
    state = "os.environ['TORCHX_NOTIFY_STATE']"
    code = f"import os, sys; open(sys.argv[1], 'w').write(repr([sys.argv[2:], {state}]))"
    target = (
        f"cmd:{sys.executable} -c \"{code}\" {out} '{{name}}: {{message}}' '{{exit_code}}' {{other}} $HOME"
    )
    assert deliver(target, PAYLOAD) == ("delivered", "")
    expected = ["a: it's {name}; $HOME", "3", "{other}", "$HOME"]
    assert out.read_text() == repr([expected, "FAILED"])


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 3", ("failed", "exit 3")),
        ("exit 75", ("retry", "exit 75")),
        ("kill -9 $$", ("failed", "signal 9")),
    ],
)
def test_the_exit_code_of_a_command_decides(script: str, expected: tuple[str, str]) -> None:
    assert deliver(f"cmd:sh -c '{script}'", PAYLOAD) == expected


def test_missing_command_has_failed_and_hanging_one_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert deliver(f"cmd:{tmp_path}/none", PAYLOAD) == (
        "failed",
        "cannot be started: No such file or directory",
    )
    monkeypatch.setattr(delivery, "COMMAND_WITHIN", 0.2)
    pid = tmp_path / "pid"
    assert deliver(f"cmd:sh -c 'echo $$ > {pid}; sleep 600 & wait'", PAYLOAD).step == "failed"
    if pid.exists() and pid.read_text().strip():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


def test_the_context_of_tls_verifies_host_names() -> None:
    connections = delivery._connections("HTTPS://example.com", threading.Lock())
    context = connections.keywords["context"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
