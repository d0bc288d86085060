"""Images from a registry: pulled with progress, followed when a tag moves, done without when it is gone."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from containers import fresh

from torchx.errors import StateError
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.images.pull import provide

pytestmark = pytest.mark.docker

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
USER = base64.b64encode(b"me:secret").decode()


class Registry:
    """A registry of one image, on this machine."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifest = b""
        self.mark = fresh("")
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.answer(self)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        self.image = f"{self.host}/team/tool:1"
        threading.Thread(target=self.server.serve_forever).start()

    def put(self, text: str) -> None:
        """Makes the tag stand for an image with this text in a file, as no other registry has one."""
        text += self.mark
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            entry = tarfile.TarInfo("text")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
        rootfs = {"type": "layers", "diff_ids": [self._add(layer.getvalue())]}
        config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs}).encode()
        layers = [self._described(layer.getvalue(), "application/vnd.docker.image.rootfs.diff.tar.gzip")]
        described = self._described(config, "application/vnd.docker.container.image.v1+json")
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": layers}
        self.manifest = json.dumps(manifest).encode()

    def _add(self, data: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.blobs[digest] = data
        return digest

    def _described(self, data: bytes, kind: str) -> dict[str, object]:
        return {"mediaType": kind, "size": len(data), "digest": self._add(data)}

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body, kind, status = b"{}", "application/json", 200
        if request.headers.get("Authorization") != f"Basic {USER}":
            status = 401
        elif "/manifests/" in request.path:
            body, kind = self.manifest, MANIFEST
        elif "/blobs/" in request.path:
            body, kind = self.blobs[request.path.rpartition("/")[2]], "application/octet-stream"
        request.send_response(status)
        if status == 401:
            request.send_header("WWW-Authenticate", 'Basic realm="test"')
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body)))
        request.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(body).hexdigest()}")
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Registry]:
    registry = Registry()
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"auths": {registry.host: {"auth": USER}}}))
    yield registry
    registry.close()
    for _ in range(3):
        try:
            Engine().call("DELETE", f"/images/{registry.image}", {"force": 1})
        except EngineError:
            break


def id_of(image: str) -> str:
    return str(Engine().call("GET", f"/images/{image}/json")["Id"])


def test_an_image_is_pulled_and_its_tag_followed(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchx.scheduling.progress.PATIENCE", 60.0)
    registry.put("first")
    lines: list[str] = []
    assert provide(Engine(), registry.image, lines.append) is None
    assert lines == [], "a quick pull is not reported"
    first = id_of(registry.image)
    registry.put("second")
    assert provide(Engine(), registry.image, lines.append) is None
    assert id_of(registry.image) != first
    Engine().call("DELETE", f"/images/{first}")


def test_what_is_there_is_used_when_registry_is_not(registry: Registry) -> None:
    registry.put("only")
    provide(Engine(), registry.image, lambda line: None)
    registry.manifest = b"no manifest"
    said = provide(Engine(), registry.image, lambda line: None)
    assert said is not None
    assert said.startswith(f"{registry.image} could not be pulled, using the local copy (")


def test_wrong_credentials_are_reported(registry: Registry, tmp_path: Path) -> None:
    registry.put("secret")
    wrong = base64.b64encode(b"me:wrong").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {registry.host: {"auth": wrong}}}))
    with pytest.raises(StateError, match="is not on the engine and cannot be pulled: "):
        provide(Engine(), registry.image, lambda line: None)


def test_a_private_image_without_login_names_the_login(registry: Registry, tmp_path: Path) -> None:
    registry.put("secret")
    (tmp_path / "config.json").unlink()
    with pytest.raises(StateError, match=f"log in: docker login {registry.host};"):
        provide(Engine(), registry.image, lambda line: None)
