"""YAML and JSON from outside: plain data within limits, and one sentence otherwise."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchx import yaml_limits
from torchx.errors import UsageError
from torchx.json_limits import DEEPEST, load_json
from torchx.specs.overlays import OverlayError, load_overlay_file
from torchx.specs.run_options import InvalidRunConfigException, runopts
from torchx.specs.status_text import ErrorFile
from torchx.specs.workspace import Workspace
from torchx.yaml_limits import LARGEST, YamlError, load_yaml
from torchx_cli.run_request import read_stdin

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
MERGES = "a0: &a0 {k0: 1, k1: 2}\n" + "".join(
    f"a{n}: &a{n} {{'<<': [{', '.join([f'*a{n - 1}'] * 10)}]}}\n".replace("'<<'", "<<") for n in range(1, 12)
)
BAD_YAML = {
    "aliases": (LAUGHS, "more than 100,000 values"),
    "merges": (MERGES, "more than 100,000 values"),
    "sequences": ("[" * 500 + "]" * 500, "nested more than 100 levels"),
    "mappings": ("{a: " * 500 + "}" * 500, "nested more than 100 levels"),
    "lines": ("\n".join("  " * n + "a:" for n in range(200)), "nested more than 100 levels"),
    "itself": ("a: &a [*a]", "contains itself"),
    "size": ("a" * (LARGEST + 1), "more than 1,048,576 characters"),
    "an object": ("!!python/object/apply:os.getcwd []", "could not determine a constructor"),
    "a tuple": ("!!python/tuple [1]", "could not determine a constructor"),
    "no date": ("2023-99-99", "not valid YAML"),
    "no number": ("1" * 5000, "not valid YAML"),
    "no mapping": ("<<: 1", "mapping"),
    "a key": ("{[1]: 2, {a: b}: c}", "unhashable key"),
    "two documents": ("a\n---\nb", "document"),
    "unclosed": ("a: [", "line [12]: "),
    "a control character": ("a: \x07", "(special|control) characters"),
    "an anchor that is not there": ("*a", "undefined alias"),
}
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(params=["fast", "plain"])
def _loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both loaders: the fast one is not everywhere."""
    import yaml

    yaml_limits._loader.cache_clear()
    if request.param == "plain":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    yield
    yaml_limits._loader.cache_clear()


@pytest.mark.usefixtures("_loader")
@pytest.mark.parametrize("name", BAD_YAML)
def test_invalid_or_too_large_yaml_is_one_sentence(name: str) -> None:
    text, why = BAD_YAML[name]
    begun = time.process_time()
    with pytest.raises(YamlError, match=why) as refused:
        load_yaml(text, source="a test")
    assert refused.value.message.startswith("a test: ")
    assert "\n" not in refused.value.message
    assert time.process_time() - begun < 5


def test_plain_yaml_is_read() -> None:
    text = "a: &a [1, 2.5, true, null, 2020-01-01]\nb: *a\nc: {<<: {d: 1}}\n"
    data: Any = load_yaml(text, source="a test")
    assert data["a"] == data["b"]
    assert data["c"] == {"d": 1}
    assert load_yaml("", source="a test") is None
    assert load_yaml("!!python/tuple [1]", source="a test", tuples=True) == (1,)


def test_yaml_is_loaded_only_when_it_is_read() -> None:
    modules = "torchx.yaml_limits, torchx.specs.workspace, torchx_cli.run_request"
    code = f"import sys, {modules}; print('yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_no_other_module_loads_yaml_by_itself() -> None:
    from project.sources import ROOT, all_files

    named = ("yaml.safe_load", "yaml.load(", "yaml.full_load", "yaml.unsafe_load")
    found = [
        str(path.relative_to(ROOT))
        for path in all_files()
        if "tests" not in path.relative_to(ROOT).parts
        and any(n in path.read_text(encoding="utf-8") for n in named)
    ]
    assert found == ["torchx/yaml_limits.py"]


def test_workspace_and_overlay_are_read_within_limits(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="100,000 values") as refused:
        Workspace.from_str("{" + LAUGHS.replace("\n", ", ") + "}")
    assert len(refused.value.message) < 400
    (tmp_path / "laughs.yaml").write_text(LAUGHS)
    with pytest.raises(OverlayError, match="cannot be read: more than 100,000 values"):
        load_overlay_file(str(tmp_path / "laughs.yaml"))
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(5 * LARGEST)
    with pytest.raises(OverlayError, match="more than"):
        load_overlay_file(str(tmp_path / "large.yaml"))


@pytest.mark.parametrize(
    "text",
    [DEEP, '{"a":' * 5000 + "1" + "}" * 5000, "[" * 102 + "]" * 102],
    ids=["arrays", "objects", "a few too many"],
)
def test_json_that_is_nested_too_deeply_is_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=f"nested more than {DEEPEST} levels"):
        load_json(text)
    with pytest.raises(UsageError, match="--stdin takes a JSON object: nested more than"):
        read_stdin(io.StringIO(text))
    with pytest.raises(InvalidRunConfigException, match="nested more than"):
        runopts().cfg_from_json_repr(text)
    assert ErrorFile.read(text) is None


def test_json_within_the_limits_is_read() -> None:
    text = "[" * DEEPEST + "]" * DEEPEST
    assert json.dumps(load_json(text)) == text
    with pytest.raises(UsageError, match="more than 16,777,216 characters"):
        read_stdin(io.StringIO("1" * (20 << 20)))


@pytest.mark.parametrize("value", [DEEP, '{"a":' * 5000 + "1" + "}" * 5000], ids=["arrays", "objects"])
def test_arguments_of_components_are_one_sentence(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    from torchx_cli.main import main

    for argv in (
        ["run", "-s", "local_cwd", "--dryrun", "dist.ddp", "--script", "a.py", "--env", value],
        ["run", "-s", "local_cwd", "--dryrun", "dist.ddp", "--script", "a.py", "--mounts", value],
        ["run", "-s", "local_cwd", "--dryrun", "--workspace", value, "utils.echo"],
    ):
        assert main(argv) in (1, 2), argv[:6]
        output = capsys.readouterr().err
        assert "bug in torchx" not in output
