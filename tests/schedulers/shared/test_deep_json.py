"""JSON from outside that is nested deeper than Python can follow: an error, or no data."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from torchx.errors import StateError
from torchx.schedulers import get_scheduler_factories
from torchx.schedulers.docker.engine.address import find_address
from torchx.schedulers.docker.engine.http import reason
from torchx.specs import InvalidRunConfigException
from torchx_cli.mcp.calls import _item

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("name", sorted(get_scheduler_factories()))
def test_run_options(name: str) -> None:
    opts = get_scheduler_factories()[name]("torchx").run_opts()
    for text in (DEEP, f'{{"partition": {DEEP}}}'):
        with pytest.raises(InvalidRunConfigException, match="nested more than 100 levels deep"):
            opts.cfg_from_json_repr(text)


def test_answers_of_docker_engines() -> None:
    assert reason(DEEP.encode()).startswith("[[")
    assert isinstance(_item(DEEP), str)


def test_configuration_of_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    (tmp_path / "config.json").write_text(DEEP)
    find_address()
    monkeypatch.setenv("DOCKER_CONTEXT", "deep")
    folder = tmp_path / "contexts" / "meta" / hashlib.sha256(b"deep").hexdigest()
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(DEEP)
    with pytest.raises(StateError, match="context `deep` is missing or damaged"):
        find_address()
