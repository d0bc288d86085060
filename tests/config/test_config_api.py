"""The documented functions of `torchx.runner.config`."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from torchx.config import ConfigError
from torchx.runner.config import apply, dump, find_configs, get_config, get_configs, load, load_sections
from torchx.specs.handles import UnknownSchedulerException
from torchx.specs.run_options import CfgVal


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, text: str) -> None:
    (folder / ".torchxconfig").write_text(text, encoding="utf-8")


def test_apply_adds_what_is_not_given_in_its_type(folder: Path) -> None:
    write(folder, "[local_cwd]\nlog_dir = /tmp/a%%b\nprepend_cwd = Yes\ngrace_period = 3\n")
    cfg: dict[str, CfgVal] = {"log_dir": "/given"}
    apply("local_cwd", cfg)
    assert cfg == {"log_dir": "/given", "prepend_cwd": True, "grace_period": 3.0}


def test_the_word_none_is_no_value(folder: Path) -> None:
    write(folder, "[local_cwd]\nlog_dir = None\n")
    cfg: dict[str, CfgVal] = {}
    apply("local_cwd", cfg)
    assert cfg == {"log_dir": None}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("log_dri = x", "unknown run option `log_dri` for local_cwd"),
        ("prepend_cwd = perhaps", '`prepend_cwd` takes bool, got "perhaps"'),
        ("grace_period = long", '`grace_period` takes float, got "long"'),
        ("log_dir = #FIXME:(str) where", "`log_dir` is not filled in"),
    ],
)
def test_options_that_cannot_be_right(folder: Path, line: str, message: str) -> None:
    write(folder, f"[local_cwd]\n{line}\n")
    with pytest.raises(ConfigError) as error:
        apply("local_cwd", {})
    assert error.value.message == f".torchxconfig line 2 [local_cwd]: {message}"


def test_load_reads_one_open_file() -> None:
    cfg: dict[str, CfgVal] = {}
    load("local_cwd", io.StringIO("[local_cwd]\nprepend_cwd = 1\n[cli:run]\nscheduler = x\n"), cfg)
    assert cfg == {"prepend_cwd": True}


def test_what_dump_writes_is_read_back_as_the_defaults(folder: Path) -> None:
    text = io.StringIO()
    dump(text, ["local_cwd"])
    write(folder, text.getvalue())
    cfg: dict[str, CfgVal] = {}
    apply("local_cwd", cfg)
    assert cfg["log_dir"] is None
    assert cfg["prepend_cwd"] is False
    assert text.getvalue().startswith("[local_cwd]\n# ")


def test_dump_of_what_is_required_only() -> None:
    text = io.StringIO()
    dump(text, ["local_cwd"], required_only=True)
    assert text.getvalue() == "[local_cwd]\n"


def test_dump_for_an_unknown_scheduler() -> None:
    with pytest.raises(UnknownSchedulerException):
        dump(io.StringIO(), ["lokal"])


def test_sections_by_name(folder: Path, tmp_path: Path) -> None:
    write(folder, "[component:dist.ddp]\nj = 1x2\nimage = x\n[component:a]\n[tracker:t]\nconfig = c\n")
    assert load_sections("component") == {"dist.ddp": {"j": "1x2", "image": "x"}, "a": {}}
    assert get_configs("component", "dist.ddp") == {"j": "1x2", "image": "x"}
    assert get_configs("component", "none") == {}
    assert get_config("tracker", "t", "config") == "c"
    assert get_config("tracker", "t", "other") is None
    assert find_configs([str(folder)]) == [str(folder / ".torchxconfig")]
    assert get_config("tracker", "t", "config", dirs=[str(folder / "nothing")]) is None
