"""The components with names of their own: built-in ones and those of entry points, listed from source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchx.discovery import (
    ComponentNotFoundException,
    build_app,
    builtin_source,
    find_component,
    lint,
    list_components,
    parse_arguments,
)

COMPONENT = """
from torchx.specs import AppDef, Role
SIZE = 3

def {name}(n: int = 1) -> AppDef:
    '''Does {name},
    well.

    Not shown in a list.
    '''
    return AppDef("{name}")

def helper(n) -> int:
    return n

def _private() -> AppDef:
    return AppDef("p")

def broken(n) -> AppDef:
    return AppDef("b")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution with components, in a folder on the path: what `pip install` leaves behind."""
    site = tmp_path / "site"
    meta = site / "my_jobs-1.0.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: my-jobs\nVersion: 1.0\n")
    entries = [
        "team = catalogue_jobs",
        "_all = catalogue_all",
        "one = catalogue_jobs.deep.more:single",
        "gone = catalogue_no_such_module.jobs",
        "bad = catalogue_bad",
    ]
    (meta / "entry_points.txt").write_text("[torchx.components]\n" + "\n".join(entries) + "\n")
    for file, name in (
        ("catalogue_jobs/__init__.py", "top"),
        ("catalogue_jobs/train.py", "trainer"),
        ("catalogue_jobs/deep/__init__.py", "deeper"),
        ("catalogue_jobs/deep/more.py", "single"),
        ("catalogue_all/utils.py", "echo"),
        ("catalogue_all/__init__.py", "bare"),
    ):
        path = site / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(COMPONENT.format(name=name))
    (site / "catalogue_bad.py").write_text("def (")
    (site / "catalogue_jobs" / "explodes.py").write_text("raise AssertionError('imported')\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    return site


def by_name() -> dict[str, str]:
    return {info.name: info.origin for info in list_components()}


def test_built_in_components_are_listed_with_what_they_do() -> None:
    infos = {info.name: info for info in list_components()}
    assert {"utils.echo", "utils.sh", "utils.python", "dist.torchrun", "dist.ddp", "dist.spmd"} <= set(infos)
    echo = infos["utils.echo"]
    assert (echo.origin, echo.problems) == ("built-in", ())
    assert echo.description
    assert Path(echo.path).name == "utils.py"
    assert all(info.problems == () and "\n" not in info.description for info in infos.values())


def test_entry_points_come_beside_built_ins_and_win(installed: Path) -> None:
    names = by_name()
    assert names["utils.sh"] == "built-in"
    assert names["utils.echo"] == "entry point `_all` of my-jobs"
    for name in (
        "team.top",
        "team.train.trainer",
        "team.deep.deeper",
        "team.deep.more.single",
        "bare",
        "one",
    ):
        assert name in names
    assert not [n for n in names if "helper" in n or "private" in n]


def test_listing_imports_nothing(installed: Path) -> None:
    before = set(sys.modules)
    list_components()
    lint(str(installed / "catalogue_jobs"))
    assert not [n for n in set(sys.modules) - before if n.startswith("catalogue")]


def test_a_listed_component_with_problems_shows_them(installed: Path) -> None:
    infos = {info.name: info for info in list_components()}
    assert "no type annotation" in infos["team.train.broken"].problems[0].description
    assert "not installed" in infos["gone"].problems[0].description
    assert "not valid Python" in infos["bad"].problems[0].description
    assert infos["team.train.trainer"].description == "Does trainer, well."


@pytest.mark.parametrize(
    ("name", "app"),
    [
        ("team.top", "top"),
        ("team.train.trainer", "trainer"),
        ("team.deep.more.single", "single"),
        ("one", "single"),
        ("bare", "bare"),
        ("utils.echo", "echo"),
        ("team._private", "p"),
    ],
)
def test_components_of_entry_points_run(name: str, app: str, installed: Path) -> None:
    component = find_component(name)
    assert build_app(component, parse_arguments(component, [])).name == app
    assert not component.is_builtin
    for module in [m for m in sys.modules if m.startswith("catalogue_")]:
        del sys.modules[module]


@pytest.mark.parametrize("name", ["team.train.trainr", "team.trainr", "gone.x", "one.x", "team", "utils"])
def test_a_name_that_no_entry_point_has(name: str, installed: Path) -> None:
    with pytest.raises(ComponentNotFoundException) as caught:
        find_component(name)
    assert caught.value.message == f"no component `{name}`"
    if name == "team.train.trainr":
        assert "did you mean `team.train.trainer`?" in (caught.value.hint or "")


def test_broken_module_beside_does_not_keep_others_from_running(installed: Path) -> None:
    assert find_component("utils.sh").is_builtin


def test_the_source_of_a_built_in_stands_by_itself(tmp_path: Path) -> None:
    for info in list_components():
        path = tmp_path / f"{info.name.replace('.', '_')}.py"
        path.write_text(builtin_source(info.name))
        function = info.name.rpartition(".")[2]
        assert lint(f"{path}:{function}").messages == ()
        assert find_component(f"{path}:{function}").description
    with pytest.raises(ComponentNotFoundException, match=r"utils\.echo"):
        builtin_source("utils.ehco")


def test_no_heavy_import_on_the_way_to_a_component() -> None:
    code = (
        "import sys; from torchx.discovery import find_component, parse_arguments, build_app\n"
        "c = find_component('utils.echo'); build_app(c, parse_arguments(c, ['--msg', 'x']))\n"
        "heavy = {'yaml', 'fsspec', 'docker', 'rich', 'docstring_parser', 'asyncio', 'typer', 'difflib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
