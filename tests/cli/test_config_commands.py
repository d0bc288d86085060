"""The commands about configuration, components and options: configure, config, runopts, builtins, lint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program import torchx

from torchx_cli.main import main


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def out(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(list(words)) == code
    return capsys.readouterr().out


def test_configure_writes_what_can_be_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["configure", "-s", "local_cwd", "-a"]) == 0
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "wrote .torchxconfig; effective values: torchx config show\n")
    assert "\nlog_dir = None\n" in Path(".torchxconfig").read_text(encoding="utf-8")
    assert main(["run", "--dryrun", "utils.echo"]) == 0


def test_configure_never_overwrites_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    Path(".torchxconfig").write_text("[cli:run]\n", encoding="utf-8")
    assert main(["configure"]) == 1
    assert capsys.readouterr().err.startswith("error: .torchxconfig already exists\n")
    assert Path(".torchxconfig").read_text(encoding="utf-8") == "[cli:run]\n"
    assert main(["configure", "--force", "-s", "local_cwd"]) == 0
    assert "\n[local_cwd]\n" in Path(".torchxconfig").read_text(encoding="utf-8")


def test_configure_prints(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "configure", "--print", "-s", "slurm")
    assert "\n[slurm]\n# partition to run in (str)\n# partition = None\n" in text
    assert all(not line or line[0] in "#[" for line in text.splitlines()), "sets nothing"
    assert "prepend_cwd = False" in out(capsys, "configure", "--print", "--all")
    assert not Path(".torchxconfig").exists()


CONFIG = """[cli:run]
component = utils.echo
[local_cwd]
log_dir = /tmp/x
[component:utils.echo]
msg = hello
[component:mine.py:app]
env = HF_TOKEN=hush,A=1
api_key = hush
"""


def test_config_show_shows_where_each_value_stands(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (home / ".torchxconfig").write_text("[local_cwd]\nlog_dir = /home\nprepend_cwd = 1\n", encoding="utf-8")
    Path(".torchxconfig").write_text(CONFIG, encoding="utf-8")
    text = out(capsys, "config", "show")
    rows = [line.split() for line in text.splitlines()]
    assert rows[0] == ["SECTION", "KEY", "VALUE", "FROM"]
    assert ["cli:run", "component", "utils.echo", ".torchxconfig", "line", "2"] in rows
    assert ["local_cwd", "log_dir", "/home", "home/.torchxconfig", "line", "2,", "hidden"] in rows
    assert "hush" not in text
    data = json.loads(out(capsys, "config", "show", "-o", "json"))
    assert data["files"] == [str(tmp_path / ".torchxconfig"), str(home / ".torchxconfig")]
    first = data["values"][1]
    assert (first["section"], first["key"], first["value"], first["line"], first["effective"]) == (
        "local_cwd", "log_dir", "/tmp/x", 4, True,
    )  # fmt: skip
    assert "hush" not in json.dumps(data)


def test_config_show_of_a_scheduler_has_its_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    Path(".torchxconfig").write_text(CONFIG, encoding="utf-8")
    rows = json.loads(out(capsys, "config", "show", "local_cwd", "--json"))["values"]
    reported = {row["key"]: (row["value"], row["origin"]) for row in rows}
    assert reported["log_dir"] == ("/tmp/x", ".torchxconfig line 4")
    assert reported["prepend_cwd"] == ("False", "default")


def test_config_show_checks_every_scheduler(capsys: pytest.CaptureFixture[str]) -> None:
    Path(".torchxconfig").write_text("[local_cwd]\nlog_dri = x\n", encoding="utf-8")
    assert main(["config", "show"]) == 0
    assert capsys.readouterr().err.startswith(
        "error: .torchxconfig line 2 [local_cwd]: unknown run option `log_dri`"
    )


def test_config_show_checks_components(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(
        "raise SystemExit\nfrom torchx.specs import AppDef\ndef app(lr: float) -> AppDef:\n    pass\n"
    )
    text = "[component:utils.pyhton]\ngpu=1\n[component:utils.python]\ngpu = two\nmax_retires=1\ncpu=2\n"
    text += "[component:mine.py:app]\nlr=1\nrl=2\n[component:mine.py:none]\nx=1\n"
    Path(".torchxconfig").write_text(text)
    problems = json.loads(out(capsys, "config", "show", "-o", "json"))["problems"]
    messages = [each["message"] for each in problems]
    assert len(messages) == 5, messages
    assert "line 2 [component:utils.pyhton]: no component `utils.pyhton`" in messages[0]
    assert 'takes an int, got "two"' in messages[1]
    assert messages[2].endswith("unknown argument `max_retires` of utils.python")
    assert messages[3].endswith("unknown argument `rl` of mine.py:app")
    assert messages[4].endswith("there is no component `mine.py:none`")
    assert problems[2]["hint"].startswith("did you mean `max_retries`?")


def test_config_show_without_any(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show"]) == 0
    assert capsys.readouterr().err == "no configuration\n"


def test_runopts(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "runopts", "local_cwd")
    assert text.startswith("local_cwd\n")
    assert "log_dir (str): " in text
    assert max(map(len, out(capsys, "runopts").splitlines())) <= 80
    data = json.loads(out(capsys, "runopts", "-o", "json"))
    assert data["local_cwd"][0] == {
        "name": "log_dir",
        "type": "str",
        "required": False,
        "default": None,
        "help": data["local_cwd"][0]["help"],
    }
    assert "copy_env (list[str]): " in out(capsys, "runopts", "local_docker")


def test_builtins(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "builtins")
    assert "\nutils.echo " in text
    assert "def echo(" in out(capsys, "builtins", "--print", "utils.echo")
    assert main(["builtins", "--print", "utils.echo", "-o", "yaml"]) == 2
    assert "--print cannot be combined with -o yaml" in capsys.readouterr().out
    names = [each["name"] for each in json.loads(out(capsys, "builtins", "--json"))]
    assert {"utils.echo", "dist.ddp"} <= set(names)


def test_lint(capsys: pytest.CaptureFixture[str]) -> None:
    fine = (
        "import torchx.specs as specs\n\n\ndef app(n: int) -> specs.AppDef:\n    return specs.AppDef('a')\n"
    )
    Path("fine.py").write_text(fine, encoding="utf-8")
    assert out(capsys, "lint", "fine.py") == "1 component is fine\n"
    Path("comps.py").write_text(fine.replace("n: int", "n"), encoding="utf-8")
    assert out(capsys, "lint", "comps.py", code=1) == (
        "comps.py:4:9 app: argument `n` has no type annotation; add one, e.g. `n: str`\n"
        "1 problem in 1 component; 0 components are fine\n"
    )
    data = json.loads(out(capsys, "lint", "comps.py", "-o", "json", code=1))
    assert (data["checked"], data["problems"][0]["line"]) == (1, 4)


@pytest.mark.parametrize("target", ["train.py", "folder"])
def test_lint_without_components_fails(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text("print()\n", encoding="utf-8")
    Path("folder").mkdir()
    assert main(["lint", target]) == 1
    assert capsys.readouterr().err.startswith(f"error: {target} has no components\n")
    assert main(["lint", target, "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "unknown_component"


def test_no_words_and_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    from torchx.version import __version__

    assert out(capsys, "--version") == out(capsys, "version") == f"torchx-{__version__}\n"
    text = out(capsys)
    assert text == out(capsys, "--help")
    assert "\n  run " in text
    assert out(capsys, "-h") == text


PLUGIN = '''
class Hello:
    """Says hello."""

    def add_arguments(self, parser):
        parser.add_argument("--name", default="you")

    def run(self, args):
        print(f"hello {args.name}")
'''


def test_commands_of_other_packages(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hello_plugin.py").write_text(PLUGIN, encoding="utf-8")
    info = tmp_path / "hello-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[torchx.cli.cmds]\nhello = hello_plugin:Hello\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert out(capsys, "hello", "--name", "all") == "hello all\n"
    assert "  hello " in out(capsys, "--help")
    Path(".torchxconfig").write_text("[cli:hello]\nname = x\n", encoding="utf-8")
    assert main(["run", "--dryrun", "utils.echo"]) == 0


@pytest.mark.parametrize("command", ["config", "config show", "tracker", "tracker list", "status", "lint"])
def test_an_unknown_flag_has_one_form(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--foo", "x"]) == 2
    assert capsys.readouterr().err == f"error: unknown flag `--foo`\n  see: torchx {command} --help\n"


@pytest.mark.parametrize("command", [["config"], ["tracker"], ["tracker", "list"]])
def test_a_group_alone_prints_its_help(command: list[str]) -> None:
    done = torchx(*command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Usage: torchx {' '.join(command)} [OPTIONS] COMMAND [ARGS]...")
