"""The text of a `.torchxconfig`: what is read, with its lines, and what is refused."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.config.ini import ConfigError, ConfigFile, parse_config, read_config

HERE = Path.cwd() / ".torchxconfig"


def values(file: ConfigFile) -> dict[str, dict[str, str]]:
    return {
        name: {key: setting.value for key, setting in keys.items()} for name, keys in file.sections.items()
    }


def test_values_know_their_lines() -> None:
    file = parse_config("# mine\n\n[local_cwd]\nlog_dir = /tmp/x\n[cli:run]\ncomponent: dist.ddp\n", HERE)
    assert values(file) == {"local_cwd": {"log_dir": "/tmp/x"}, "cli:run": {"component": "dist.ddp"}}
    assert str(file.sections["local_cwd"]["log_dir"].origin) == ".torchxconfig line 4 [local_cwd]"
    assert file.sections["cli:run"]["component"].origin.line == 6
    assert file.lines == {"local_cwd": 3, "cli:run": 5}


def test_keys_are_case_sensitive_and_values_keep_hashes() -> None:
    file = parse_config("[a]\nKey = 1\nkey = x ; y # z\nempty =\n", HERE)
    assert values(file) == {"a": {"Key": "1", "key": "x ; y # z", "empty": ""}}


def test_indented_lines_go_on_with_the_value() -> None:
    file = parse_config("[a]\nkey = one\n  # not this\n  two\n\n  three\n\nnext = x\n", HERE)
    assert values(file) == {"a": {"key": "one\ntwo\n\nthree", "next": "x"}}


def test_percent_signs() -> None:
    file = parse_config("[DEFAULT]\nroot = /data\n[a]\ndir = %(root)s/%(who)s\nwho = me\np = 5%, 7%%\n", HERE)
    assert values(file) == {"a": {"dir": "/data/me", "who": "me", "p": "5%, 7%"}}


def test_what_stands_in_default_is_shared() -> None:
    text = "[DEFAULT]\nroot = /data\ndir = %(root)s/%(who)s\nplain = 1\n[a]\nwho = me\nplain = 2\n[b]\n"
    file = parse_config(text, HERE)
    assert values(file) == {"a": {"who": "me", "plain": "2"}, "b": {}}
    assert {key: s.value for key, s in file.shared["a"].items()} == {"root": "/data", "dir": "/data/me"}
    assert set(file.shared["b"]) == {"root", "plain"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "key = 1\n",
            ".torchxconfig line 1: `key = 1` is before the first [section]; "
            "flags of torchx run belong to [cli:run]",
        ),
        ("[a]\nword\n", ".torchxconfig line 2: expected `key = value`, got `word`"),
        ("[a]\n= 1\n", ".torchxconfig line 2: the key is missing before `= 1`"),
        ("[a\n", ".torchxconfig line 1: expected a section `[name]`, got `[a`"),
        ("[]\n", ".torchxconfig line 1: expected a section `[name]`, got `[]`"),
        ("[a]\nk=1\n[b]\n[a]\n", ".torchxconfig line 4: section [a] already exists, in line 1"),
        ("[a]\nk=1\n\nk = 2\n", ".torchxconfig line 4: `k` is already set in line 2"),
        ("[a]\nk = %(x)s\n", ".torchxconfig line 2: `%(x)s` does not exist"),
        ("[a]\nk = %(l)s\nl = %(k)s\n", ".torchxconfig line 3: `%(k)s` refers to itself"),
    ],
)
def test_what_is_not_understood_is_error_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_config(text, HERE)
    assert error.value.message == message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "config"
    binary.write_bytes(b"[a]\nk = \xff\n")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text \(byte 8\)"):
        read_config(binary)
    with pytest.raises(ConfigError, match="No such file"):
        read_config(tmp_path / "missing")
    with pytest.raises(ConfigError, match="it is a folder"):
        read_config(tmp_path)


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("\ufeff[a]\nk = 1\n", encoding="utf-8")
    assert values(read_config(path)) == {"a": {"k": "1"}}


WORD = st.text(
    st.characters(codec="ascii", categories=["L", "N"], include_characters="_-."), min_size=1, max_size=8
)
VALUE = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], include_characters=" ="), max_size=12
)


@given(st.dictionaries(WORD, st.dictionaries(WORD, VALUE, max_size=3), max_size=3))
def test_what_the_standard_library_reads_is_read_alike(data: dict[str, dict[str, str]]) -> None:
    """Files of the peer are read by configparser: whatever that takes must mean the same here."""
    data.pop("DEFAULT", None)
    text = "".join(
        f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())
        for name, keys in data.items()
    ).replace("%", "%%")
    standard = configparser.ConfigParser()
    standard.optionxform = str  # type: ignore[assignment,method-assign]  # the documented way to keep case
    standard.read_string(text)
    assert values(parse_config(text, HERE)) == {name: dict(standard[name]) for name in standard.sections()}
