"""From a name to a component: files, modules, classes, and what stands in the way."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from torchx.discovery import (
    Component,
    ComponentError,
    ComponentNotFoundException,
    ComponentValidationException,
    build_app,
    find_component,
    parse_arguments,
)
from torchx.discovery.source.component_source import open_source
from torchx.discovery.source.places import describe_exception
from torchx.errors import StateError

HEAD = "from torchx.specs import AppDef, Role\n"
BODY = """
def trainer(*words: str, n: int = 1) -> AppDef:
    '''Trains.'''
    return AppDef("a", [Role("r", "i", entrypoint="e", args=[str(WHO), str(n), *words])])
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def start(component: Component, *words: str) -> list[str]:
    return build_app(component, parse_arguments(component, words)).roles[0].args


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("form", ["{0}:trainer", "./{0}:trainer", "{1}/{0}:trainer", "~/{0}:trainer"])
def test_a_file_by_any_path(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "my job.py", HEAD + "WHO = __file__" + BODY)
    found = find_component(form.format("my job.py", tmp_path))
    assert start(found, "x") == [str(tmp_path / "my job.py"), "1", "x"]
    assert (found.path, found.line, found.fn_name) == (str(tmp_path / "my job.py"), 3, "trainer")
    assert found.description == "Trains."


def test_paths_count_from_the_given_folder(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "job.py", HEAD + "WHO = 1" + BODY)
    assert start(find_component("job.py:trainer", cwd=str(tmp_path / "deep"))) == ["1", "1"]


@pytest.mark.parametrize(
    "name", ["pkg.jobs:trainer", "pkg.jobs.trainer", "pkg.deep.more:trainer", "solo.trainer"]
)
def test_a_module_in_the_working_directory(name: str, tmp_path: Path) -> None:
    for file in ("pkg/jobs.py", "pkg/deep/more.py", "solo.py"):
        write(tmp_path / file, HEAD + "WHO = __name__" + BODY)
    write(tmp_path / "pkg/__init__.py", "")
    module = name.replace(":", ".").removesuffix(".trainer")
    assert start(find_component(name)) == [module, "1"]
    assert module not in sys.modules


def test_an_installed_module() -> None:
    assert start(find_component("torchx.components.utils:echo"), "--msg", "x") == ["x"]
    assert start(find_component("torchx.components.utils.echo"), "--msg", "x") == ["x"]


def test_only_the_chosen_file_is_imported(tmp_path: Path) -> None:
    write(tmp_path / "job.py", HEAD + "WHO = 1" + BODY)
    for other in ("other.py", "sub/__init__.py", "sub/more.py"):
        write(tmp_path / other, "raise AssertionError('imported')")
    assert start(find_component("job.py:trainer")) == ["1", "1"]


def test_siblings_are_found_at_import_and_at_call(tmp_path: Path) -> None:
    write(tmp_path / "one" / "helpers.py", "WHO = 'one'")
    write(tmp_path / "two" / "helpers.py", "WHO = 'two'")
    lazy = HEAD + "def trainer() -> AppDef:\n    import helpers\n    return AppDef(helpers.WHO)\n"
    for each in ("one", "two"):
        write(tmp_path / each / "job.py", HEAD + "from helpers import WHO" + BODY)
        write(tmp_path / each / "lazy.py", lazy)
    before = list(sys.path)
    found = [find_component(f"{each}/job.py:trainer") for each in ("one", "two", "one")]
    assert [start(each)[0] for each in found] == ["one", "two", "one"]
    lazies = [find_component(f"{each}/lazy.py:trainer") for each in ("one", "two")]
    assert [build_app(each, parse_arguments(each, [])).name for each in lazies] == ["one", "two"]
    assert "helpers" not in sys.modules
    assert sys.path == before


def test_a_sibling_module_is_imported_once(tmp_path: Path) -> None:
    write(tmp_path / "helpers.py", "class Marker: pass")
    text = "import helpers\ndef trainer() -> AppDef:\n    import helpers as h\n"
    text += "    return AppDef(str(h is helpers))\n"
    write(tmp_path / "job.py", HEAD + text)
    found = find_component("job.py:trainer")
    assert build_app(found, parse_arguments(found, [])).name == "True"


def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    for who in ("'a'", "'b'"):
        write(tmp_path / "helpers.py", f"WHO = {who}")
        write(tmp_path / "job.py", HEAD + "from helpers import WHO" + BODY)
        assert start(find_component("job.py:trainer"))[0] == who.strip("'")


def test_siblings_win_over_installed_modules_but_not_standard_library(tmp_path: Path) -> None:
    write(tmp_path / "pluggy.py", "WHO = 'sibling'")
    write(tmp_path / "graphlib.py", "raise AssertionError('shadowed')")
    imports = "import graphlib\ngraphlib.TopologicalSorter\nfrom pluggy import WHO"
    write(tmp_path / "job.py", HEAD + imports + BODY)
    installed = sys.modules.get("pluggy")
    assert start(find_component("job.py:trainer"))[0] == "sibling"
    assert sys.modules.get("pluggy") is installed


def test_plain_folder_beside_file_does_not_hide_package(tmp_path: Path) -> None:
    write(tmp_path / "packaging" / "readme.txt", "boxes")
    write(tmp_path / "job.py", HEAD + "from packaging.version import Version\nWHO = Version('1.0')" + BODY)
    assert start(find_component("job.py:trainer"))[0] == "1.0"


def test_plain_folder_beside_file_can_be_imported_from(tmp_path: Path) -> None:
    write(tmp_path / "lib" / "names.py", "WHO = 'lib'")
    write(tmp_path / "job.py", HEAD + "from lib.names import WHO" + BODY)
    assert start(find_component("job.py:trainer"))[0] == "lib"
    assert "lib" not in sys.modules


def test_loaded_module_does_not_replace_a_sibling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = ModuleType("helpers")
    monkeypatch.setitem(sys.modules, "helpers", loaded)
    write(tmp_path / "helpers.py", "WHO = 'sibling'")
    write(tmp_path / "job.py", HEAD + "from helpers import WHO" + BODY)
    assert start(find_component("job.py:trainer"))[0] == "sibling"
    assert sys.modules["helpers"] is loaded


def test_a_file_in_a_package_imports_relatively_and_absolutely(tmp_path: Path) -> None:
    write(tmp_path / "repo/app/__init__.py", "")
    write(tmp_path / "repo/app/jobs/__init__.py", "")
    write(tmp_path / "repo/app/base.py", "WHO = 'base'")
    for text in ("from ..base import WHO", "from app.base import WHO"):
        write(tmp_path / "repo/app/jobs/job.py", HEAD + text + BODY)
        assert start(find_component("repo/app/jobs/job.py:trainer"))[0] == "base"
    assert "app" not in sys.modules


def test_a_dataclass_with_late_annotations_in_the_file(tmp_path: Path) -> None:
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        + HEAD
        + "@dataclass\nclass Opt:\n    lr: float = 0.1\n    more: Opt2 | None = None\n"
        + "@dataclass\nclass Opt2:\n    n: int = 3\n"
        + "def trainer(opt: Opt = Opt()) -> AppDef:\n    return AppDef(f'{opt.lr} {opt.more}')\n"
    )
    write(tmp_path / "job.py", text)
    found = find_component("job.py:trainer")
    app = build_app(found, parse_arguments(found, ["--opt.lr", "0.5", "--opt.more.n", "4"]))
    assert app.name == "0.5 Opt2(n=4)"


def test_a_function_that_comes_from_another_file(tmp_path: Path) -> None:
    write(tmp_path / "job.py", "from torchx.components.utils import echo\nfrom lib import *\n")
    write(tmp_path / "lib.py", HEAD + "WHO = 'lib'" + BODY)
    assert start(find_component("job.py:echo"), "--msg", "x") == ["x"]
    found = find_component("job.py:trainer")
    assert start(found) == ["lib", "1"]
    assert found.path == str(tmp_path / "lib.py")


def test_a_thin_wrapper_as_people_write_them(tmp_path: Path) -> None:
    text = (
        "import torchx.components.utils as utils\nimport torchx.specs as specs\n"
        "def train(*script_args: str, epochs: int = 1) -> specs.AppDef:\n"
        "    return utils.sh('train', '--epochs', str(epochs), *script_args)\n"
    )
    write(tmp_path / "job.py", text)
    found = find_component("job.py:train")
    app = build_app(found, parse_arguments(found, ["--epochs", "3", "--", "--x"]))
    assert "train --epochs 3 --x" in " ".join(app.roles[0].args)


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        (
            "utils.ehco",
            "no component `utils.ehco`",
            "did you mean `utils.echo`?   all components: torchx builtins",
        ),
        ("zzzzzz", "no component `zzzzzz`", "all components: torchx builtins   your own: FILE.py:FUNCTION"),
        (
            "job.py:trainr",
            "no component `trainr` in job.py",
            "did you mean `trainer`?   components in it: trainer",
        ),
        ("jbo.py:trainer", "no file `jbo.py`", "did you mean `job.py`?"),
        ("sub/job.py:trainer", "no folder `sub`", "looked for"),
        ("job.py", "which component of job.py? name it as FILE:FUNCTION", "job.py:trainer"),
        ("./job.py", "which component of job.py? name it as FILE:FUNCTION", "./job.py:trainer"),
        (
            "script.py",
            "script.py has no components",
            "to run it: torchx run utils.python --script script.py",
        ),
        ("./a b.sh", "a b.sh has no components", "to run it: torchx run utils.sh './a b.sh'"),
        ("ls | wc -l", "no component `ls | wc -l`", "to run it: torchx run utils.sh 'ls | wc -l'"),
        ("jbo.py", "no file `jbo.py`", "did you mean `job.py`?"),
        ("job.py:", "`job.py:` is not a component name", "e.g. utils.echo"),
        (":trainer", "`:trainer` is not a component name", "e.g. utils.echo"),
        ("no.such.module:trainer", "no module `no.such.module`", "looked in"),
        ("job:nothing", "no component `nothing` in job.py", "components in it: trainer"),
        ("job.nothing", "no component `nothing` in job.py", "components in it: trainer"),
        ("", "no component ``", "all components"),
    ],
)
def test_what_is_not_there(name: str, message: str, hint: str, tmp_path: Path) -> None:
    write(tmp_path / "job.py", HEAD + "WHO = 1" + BODY)
    write(tmp_path / "script.py", "print('hi')")
    write(tmp_path / "a b.sh", "echo hi")
    with pytest.raises(ComponentNotFoundException) as caught:
        find_component(name)
    assert caught.value.message == message
    assert (caught.value.hint or "").startswith(hint)


def test_a_file_that_is_not_valid_python(tmp_path: Path) -> None:
    write(tmp_path / "broken.py", "def trainer(:\n")
    with pytest.raises(ComponentValidationException, match=r"^broken\.py:1:13 is not valid Python"):
        find_component("broken.py")


def test_a_failing_import_keeps_its_cause_and_place(tmp_path: Path) -> None:
    write(tmp_path / "job.py", HEAD + "1 / 0\nWHO = 1" + BODY)
    with pytest.raises(ComponentError) as caught:
        find_component("job.py:trainer")
    error = caught.value
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert (error.path, error.line) == (str(tmp_path / "job.py"), 2)
    assert (
        error.message == "job.py cannot be imported: ZeroDivisionError: division by zero  (job.py:2, 1 / 0)"
    )


def test_a_syntax_error_in_a_sibling_names_the_sibling(tmp_path: Path) -> None:
    write(tmp_path / "helpers.py", "def (")
    write(tmp_path / "job.py", HEAD + "import helpers\nWHO = 1" + BODY)
    with pytest.raises(ComponentError) as caught:
        find_component("job.py:trainer")
    assert caught.value.message.endswith("(helpers.py:1, def ()")


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "zero.py").write_bytes(b"\x00")
    (tmp_path / "latin.py").write_bytes(HEAD.encode() + b"WHO = '\xe9'" + BODY.encode())
    (tmp_path / "cookie.py").write_bytes(
        b"# coding: latin-1\n" + HEAD.encode() + b"WHO = '\xe9'" + BODY.encode()
    )
    for name in ("zero.py", "latin.py"):
        with pytest.raises(ComponentValidationException, match=rf"^{name}:\d+:\d+ is not valid Python"):
            find_component(f"{name}:trainer")
    assert start(find_component("cookie.py:trainer"))[0] == "é"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "job.py").write_text("")
    (tmp_path / "dir.py").mkdir()
    with pytest.raises(ComponentNotFoundException, match=r"no file `loop\.py`"):
        find_component("loop.py:trainer")
    with pytest.raises(ComponentNotFoundException, match=r"no file `dir\.py`"):
        find_component("dir.py:trainer")
    with pytest.raises(StateError, match=r"^dir\.py cannot be read: "):
        open_source("dir.py")


def test_ctrl_c_in_a_component_passes_through(tmp_path: Path) -> None:
    write(tmp_path / "job.py", HEAD + "def trainer() -> AppDef:\n    raise KeyboardInterrupt\n")
    found = find_component("job.py:trainer")
    with pytest.raises(KeyboardInterrupt):
        build_app(found, parse_arguments(found, []))


def test_built_in_that_rejects_arguments_names_no_place() -> None:
    found = find_component("utils.python")
    with pytest.raises(ComponentError) as caught:
        build_app(found, parse_arguments(found, []))
    assert caught.value.message.startswith("utils.python: ")
    assert ".py:" not in caught.value.message


def test_an_exception_is_reported_in_one_line() -> None:
    assert describe_exception(ValueError()) == "ValueError"
    assert describe_exception(KeyError("a")) == "KeyError: 'a'"
    assert describe_exception(ValueError("one\ntwo")) == "ValueError: one"
    assert len(describe_exception(ValueError("x" * 1000))) < 400
