"""Words after a component's name: which flag they belong to, what they become, and where they go wrong."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from torchx.discovery import ArgumentError, Arguments, component_of, parse_arguments, split_component
from torchx.specs import AppDef


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def trainer(
    *script_args: str,
    lr: float = 0.001,
    resume: bool = False,
    keep: bool = True,
    num_steps: int | None = None,
    optimizer: Literal["adam", "sgd"] = "adam",
    env: dict[str, str] | None = None,
    j: str = "1x2",
    h: str | None = None,
    config_name: Annotated[str, "-cn"] = "base",
    config_dir: Annotated[str, "-cd"] = ".",
) -> AppDef:
    return AppDef("t")


def flags_only(data: Path, n: int, level: Level = Level.LOW, on: bool | None = None) -> AppDef:
    return AppDef("f")


def parse(fn: Callable[..., AppDef], *words: str, **more: Any) -> Arguments:
    return parse_arguments(component_of(fn), words, **more)


def value(fn: Callable[..., AppDef], name: str, *words: str, **more: Any) -> Any:
    return parse(fn, *words, **more).values[name]


def refusal(fn: Callable[..., AppDef], *words: str, **more: Any) -> ArgumentError:
    with pytest.raises(ArgumentError) as caught:
        parse(fn, *words, **more)
    return caught.value


@pytest.mark.parametrize(
    ("words", "name", "expected"),
    [
        (["--lr", "0.1"], "lr", 0.1),
        (["--lr=0.1"], "lr", 0.1),
        (["--lr", "-1e-3"], "lr", -0.001),
        (["--num_steps", "3"], "num_steps", 3),
        (["--num-steps", "3"], "num_steps", 3),
        (["--num-steps=-3"], "num_steps", -3),
        (["-j", "2x2"], "j", "2x2"),
        (["-j2x2"], "j", "2x2"),
        (["-j=2x2"], "j", "2x2"),
        (["-h", "gpu.small"], "h", "gpu.small"),
        (["--h", "gpu.small"], "h", "gpu.small"),
        (["-cn", "big"], "config_name", "big"),
        (["-cn=big"], "config_name", "big"),
        (["--config-name", "a b --c"], "config_name", "a b --c"),
        (["--config-name=--x"], "config_name", "--x"),
        (["--config-name", "-"], "config_name", "-"),
        (["--config-name="], "config_name", ""),
        (["--env", "FOO=a,b;BAR=x=y"], "env", {"FOO": "a,b", "BAR": "x=y"}),
        (["--env", "ID=${app_id},URL=http://h:1/?a=b"], "env", {"ID": "${app_id}", "URL": "http://h:1/?a=b"}),
        (["--env", ""], "env", None),
        (["--env", '{"A": "x,B=1"}'], "env", {"A": "x,B=1"}),
        (["--resume"], "resume", True),
        (["--resume", "no"], "resume", False),
        (["--resume=ON"], "resume", True),
        (["--keep"], "keep", True),
        (["--no-keep"], "keep", False),
        (["--no_keep"], "keep", False),
        (["--keep", "0"], "keep", False),
    ],
)
def test_a_flag_and_its_value(words: list[str], name: str, expected: object) -> None:
    assert value(trainer, name, *words) == expected


@pytest.mark.parametrize(
    ("words", "rest"),
    [
        ([], []),
        (["train.py"], ["train.py"]),
        (["train.py", "--lr", "3"], ["train.py", "--lr", "3"]),
        (["--", "--lr", "3"], ["--lr", "3"]),
        (["--", "--", "x"], ["--", "x"]),
        (["x", "--", "y"], ["x", "--", "y"]),
        (["--resume", "train.py"], ["train.py"]),
        (["--resume", "--", "true"], ["true"]),
        (["--resume", "true", "yes"], ["yes"]),
        (["-5", "x"], ["-5", "x"]),
        (["", "--help"], ["", "--help"]),
    ],
)
def test_from_first_other_word_on_all_is_for_script(words: list[str], rest: list[str]) -> None:
    given = parse(trainer, *words)
    assert (given.varargs, given.values["lr"], given.wants_help) == (rest, 0.001, False)


@pytest.mark.parametrize("words", [["--help"], ["--lr", "1", "--help", "x"], ["--he"]])
def test_help_is_requested_before_the_first_other_argument(words: list[str]) -> None:
    assert parse(trainer, *words).wants_help


def test_dash_h_is_help_where_no_argument_takes_it() -> None:
    assert parse(flags_only, "-h").wants_help
    assert not parse(trainer, "-h", "x").wants_help


@pytest.mark.parametrize(
    ("words", "note", "name", "expected"),
    [
        (["--opt", "sgd"], "`--opt` was read as `--optimizer`", "optimizer", "sgd"),
        (["--num=3"], "`--num` was read as `--num_steps`", "num_steps", 3),
        (["--no-res"], "`--no-res` was read as `--no-resume`", "resume", False),
        (["--n", "3"], "`--n` was read as `--num_steps`", "num_steps", 3),
        (["--config-n", "x"], "`--config-n` was read as `--config_name`", "config_name", "x"),
    ],
)
def test_an_abbreviation_is_read_and_reported(
    words: list[str], note: str, name: str, expected: object
) -> None:
    given = parse(trainer, *words)
    assert (given.values[name], given.notes) == (expected, [note])


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["--lrr", "1"], "unknown flag `--lrr` for trainer", "did you mean `--lr`?"),
        (["--resum", "--lr"], "--lr takes a float, got nothing", None),
        (["-lr", "1"], "unknown flag `-lr` for trainer", "did you mean `--lr`?"),
        (["--epochs", "1"], "unknown flag `--epochs` for trainer", "put `--` before it"),
        (["--config", "x"], "`--config` is ambiguous: --config_name, --config_dir", "write it in full"),
        (["-c", "x"], "`-c` is ambiguous: -cn, -cd", "write it in full"),
        (["--lr"], "--lr takes a float, got nothing", None),
        (["--lr", "--resume"], "--lr takes a float, got nothing", None),
        (["--config_name", "-what"], "`-what` looks like a flag", "--config_name=-what"),
        (["--lr", "1", "--lr", "2"], "--lr is given twice", None),
        (["-j", "1", "--j=2"], "--j is given twice", None),
        (["--resume", "--no-resume"], "--resume is given twice", None),
        (["--no-resume=1"], '--no-resume takes no value, got "1"', None),
        (["--resume=maybe"], "--resume takes true or false (1/0, yes/no, on/off)", None),
        (["--num_steps", "None"], '--num_steps takes an int, got "None"', None),
        (["--num_steps", "none"], '--num_steps takes an int, got "none"', None),
        (["--num_steps", ""], '--num_steps takes an int, got ""', None),
        (["--num_steps", "1.5"], '--num_steps takes an int, got "1.5"', None),
        (["--optimizer", "adma"], '--optimizer takes adam or sgd, got "adma"', "did you mean `adam`?"),
        (["--env", "novalue"], '--env takes pairs such as key=value,key2=value2, got "novalue"', None),
    ],
)
def test_a_wrong_word_is_refused(words: list[str], message: str, hint: str | None) -> None:
    error = refusal(trainer, *words)
    assert message in error.message
    assert (hint or "") in (error.hint or "")


def test_an_error_shows_where_the_argument_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    line = next(
        n for n, text in enumerate(Path(__file__).read_text().split("\n"), 1) if "lr: float = 0" in text
    )
    assert refusal(trainer, "--lr", "fast").message == (
        f'--lr takes a float, got "fast"  (test_component_arguments.py:{line}, lr: float = 0.001)'
    )


def test_without_varargs_other_words_have_no_place() -> None:
    error = refusal(flags_only, "--data", "d", "--n", "1", "hello")
    assert error.message == 'flags_only takes flags only, got "hello"'
    assert "--data" in (error.hint or "")
    assert "takes true or false" in refusal(flags_only, "--on", "maybe").message
    assert parse(flags_only, "--data", "d", "--n", "1", "--").varargs == []


def test_all_missing_arguments_are_reported_together() -> None:
    assert refusal(flags_only).message == "flags_only needs --data and --n"
    assert refusal(flags_only, "--data", "d").message == "flags_only needs --n"


def test_the_last_of_two_wins_where_a_program_calls() -> None:
    assert value(trainer, "lr", "--lr", "1", "--lr", "2", last_wins=True) == 2


@dataclass(frozen=True)
class Setting:
    value: str
    origin: str


def test_words_win_over_json_over_configuration_over_default() -> None:
    section: Mapping[str, object] = {"lr": "3", "num_steps": "3", "j": "3"}
    config: Mapping[str, object] = {"lr": 2, "num-steps": 2}
    values = parse(trainer, "--lr", "1", config=config, section=section).values
    assert (values["lr"], values["num_steps"], values["j"], values["resume"]) == (1, 2, "3", False)


def test_the_error_of_a_bad_value_has_its_origin() -> None:
    section = {"lr": Setting("fast", ".torchxconfig line 4 [component:trainer]")}
    message = refusal(trainer, section=section).message
    assert message.startswith(
        'lr (from .torchxconfig line 4 [component:trainer]) takes a float, got "fast"  ('
    )
    assert refusal(trainer, config={"num_steps": "x"}).message.startswith(
        'num_steps (from the JSON of --stdin) takes an int, got "x"'
    )
    assert refusal(trainer, config={"lr": [1]}).message.startswith(
        "lr (from the JSON of --stdin) takes a float, got [1]"
    )


def tuned(setting: Setting) -> AppDef:
    return AppDef("t")


def test_fields_are_also_flags_of_their_own() -> None:
    hint = "or a flag for each field: --setting.value VALUE"
    assert refusal(tuned, "--setting", "value=1").hint == hint


def test_unknown_argument_names_are_rejected_or_ignored() -> None:
    section = {"lrr": Setting("1", ".torchxconfig line 4")}
    error = refusal(trainer, section=section)
    assert error.message == "unknown argument `lrr` for trainer (from .torchxconfig line 4)"
    assert (error.hint or "").startswith("did you mean `lr`?")
    assert parse(trainer, section=section, strict=False).values["lr"] == 0.001


@pytest.mark.parametrize(
    ("config", "name", "expected"),
    [
        ({"lr": 5}, "lr", 5.0),
        ({"lr": "5"}, "lr", 5.0),
        ({"resume": True}, "resume", True),
        ({"resume": "on"}, "resume", True),
        ({"env": {"A": "1"}}, "env", {"A": "1"}),
        ({"env": None}, "env", None),
        ({"num_steps": None}, "num_steps", None),
    ],
)
def test_json_data(config: Mapping[str, object], name: str, expected: object) -> None:
    assert value(trainer, name, config=config) == expected


@pytest.mark.parametrize(
    "config", [{"lr": True}, {"lr": None}, {"num_steps": 1.5}, {"resume": 1}, {"j": 5}, {"env": 3}]
)
def test_json_data_of_another_type_is_refused(config: Mapping[str, object]) -> None:
    assert "takes" in refusal(trainer, config=config).message


def test_varargs_come_from_json_where_no_words_do() -> None:
    assert parse(trainer, config={"script_args": ["a", "--b"]}).varargs == ["a", "--b"]
    assert parse(trainer, "c", config={"script_args": ["a"]}).varargs == ["c"]
    assert parse(trainer, section={"script_args": "a --b"}).varargs == ["a", "--b"]


@pytest.mark.parametrize(
    ("words", "default", "expected"),
    [
        (["utils.echo", "--msg", "x"], None, ("utils.echo", ["--msg", "x"])),
        (["--", "utils.echo", "--msg", "x"], None, ("utils.echo", ["--msg", "x"])),
        (["--", "-j", "1x2", "--", "--epochs", "3"], "d", ("d", ["-j", "1x2", "--", "--epochs", "3"])),
        (["--", "--", "x"], "d", ("d", ["--", "x"])),
        ([], "d", ("d", [])),
        (["--lr", "1"], None, (None, ["--lr", "1"])),
    ],
)
def test_the_component_may_come_from_the_configuration(
    words: list[str], default: str | None, expected: tuple[str | None, list[str]]
) -> None:
    assert split_component(words, default) == expected


def test_from_the_configured_component_to_the_script() -> None:
    _, words = split_component(["--", "-j", "1x2", "--", "--epochs", "3"], "dist.ddp")
    given = parse(trainer, *words)
    assert (given.values["j"], given.varargs) == ("1x2", ["--epochs", "3"])
