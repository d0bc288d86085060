"""Plugins that are found, and the errors of broken ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torchx.errors import UsageError
from torchx.plugins import PluginRegistry, PluginType, RegistrationError, registry, resource_tags

SCHEDULERS = "torchx_plugins/schedulers"
RESOURCES = "torchx_plugins/named_resources"
Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Writes modules where they are found; what was imported is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    registry.cache_clear()

    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]
    registry.cache_clear()


def _entry_points(install: Install, text: str) -> None:
    install("some-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: some\nVersion: 1.0\n")
    install("some-1.0.dist-info/entry_points.txt", text)


def _scheduler(name: str, value: int) -> str:
    return (
        "from torchx.plugins import register\n"
        f"@register.scheduler('{name}')\n"
        f"def _(session_name, **kwargs):\n    return {value}, session_name, kwargs\n"
    )


def test_no_plugins() -> None:
    empty = PluginRegistry(plugin_sources=1)
    assert empty.info() == {plugin_type: {} for plugin_type in PluginType}
    assert (empty.errors, empty.load_errors()) == ([], [])
    assert str(empty) == "scheduler: []\nnamed_resource: []\ntracker: []\nevent_handler: []\nerrors: []"


def test_each_type_has_a_namespace_and_a_group() -> None:
    assert {t.value: t.namespace for t in PluginType} == {
        "torchx.schedulers": "torchx_plugins.schedulers",
        "torchx.named_resources": "torchx_plugins.named_resources",
        "torchx.tracker": "torchx_plugins.tracker",
        "torchx.event_handlers": "torchx_plugins.event_handlers",
    }


@pytest.mark.parametrize(
    ("folder", "decorator", "plugin_type"),
    [
        ("schedulers", "scheduler", PluginType.SCHEDULER),
        ("tracker", "tracker", PluginType.TRACKER),
        ("event_handlers", "event_handler", PluginType.EVENT_HANDLER),
    ],
)
def test_a_module_offers_what_it_decorates(
    install: Install, folder: str, decorator: str, plugin_type: PluginType
) -> None:
    install(
        f"torchx_plugins/{folder}/mine.py",
        "from torchx.plugins import PluginType, register\n"
        f"@register.{decorator}()\ndef one(): return 1\n"
        f"@register.{decorator}('second')\ndef two(): return 2\n"
        f"@register(PluginType.{plugin_type.name}, 'third')\ndef three(): return 3\n"
        "def plain(): return 4\n",
    )
    found = PluginRegistry(plugin_sources=1)
    assert {name: make() for name, make in found.get(plugin_type).items()} == {
        "one": 1,
        "second": 2,
        "third": 3,
    }
    assert found.errors == []


def test_package_is_plugin_too_and_import_is_not_offer(install: Install) -> None:
    install(f"{SCHEDULERS}/mine/__init__.py", _scheduler("mine", 1))
    install(
        f"{SCHEDULERS}/other.py",
        "from torchx_plugins.schedulers.mine import _ as make\n" + _scheduler("other", 2),
    )
    install(f"{SCHEDULERS}/third.py", "from torchx_plugins.schedulers.mine import _ as make\n")
    found = PluginRegistry()
    assert found.get(PluginType.SCHEDULER)["mine"]("s", a=1) == (1, "s", {"a": 1})
    assert sorted(found.get(PluginType.SCHEDULER)) == ["mine", "other"]
    assert found.errors == []


def test_a_named_resource_with_aliases_and_parts(install: Install) -> None:
    install(
        f"{RESOURCES}/mine.py",
        "from torchx.plugins import HALF, WHOLE, halve_mem_down_to, register\n"
        "from torchx.specs import Resource\n"
        "@register.named_resource(aliases=['b1', 'b2'], fractionals={HALF: 'half', WHOLE: 'all'})\n"
        "def big():\n    'Big.'\n    return Resource(64, 8, 65536, devices={'efa': 4})\n"
        "@register.named_resource('own.parts', fractionals=halve_mem_down_to(minGiB=32))\n"
        "def own(fractional=WHOLE): return Resource(int(64 * fractional), 7, int(65536 * fractional))\n",
    )
    found = PluginRegistry(plugin_sources=1)
    names = found.get(PluginType.NAMED_RESOURCE)
    assert list(names) == [
        "big",
        "b1",
        "b2",
        "big_all",
        "big_half",
        "own.parts",
        "own.parts_32",
        "own.parts_64",
    ]
    made = {name: make() for name, make in names.items()}
    assert (made["big"].gpu, made["big_half"].gpu, made["big_half"].devices) == (8, 4, {"efa": 2})
    assert (made["own.parts_32"].cpu, made["own.parts_32"].gpu) == (32, 7), "the function makes its own parts"
    name_tag, part_tag = resource_tags.RESOURCE_NAME, resource_tags.IS_FRACTIONAL
    assert [made[n].tags[name_tag] for n in ("b1", "big_half", "big_all")] == ["big", "big_half", "big_all"]
    assert [made[n].tags[part_tag] for n in ("b1", "big_half", "big_all")] == [False, True, False]
    assert names["big"].__doc__ == "Big."
    rows = found.to_dict()["named_resource"]
    assert rows[0]["aliases"] == ["b1", "b2"]
    assert rows[0]["fractionals"] == ["big_all", "big_half"]


def test_a_resource_is_not_written_to(install: Install) -> None:
    install(
        f"{RESOURCES}/mine.py",
        "from torchx.plugins import register\nfrom torchx.specs import Resource\n"
        "ONE = Resource(1, 0, 1)\n@register.named_resource()\ndef one(): return ONE\n",
    )
    make = PluginRegistry().get(PluginType.NAMED_RESOURCE)["one"]
    assert make().get_resource_name() == "one"
    assert sys.modules["torchx_plugins.named_resources.mine"].ONE.tags == {}


def test_a_function_that_makes_no_resource(install: Install) -> None:
    text = "from torchx.plugins import register\n@register.named_resource()\ndef one(): return 1\n"
    install(f"{RESOURCES}/mine.py", text)
    with pytest.raises(UsageError, match="`one` has type int, not Resource"):
        PluginRegistry().get(PluginType.NAMED_RESOURCE)["one"]()


def test_an_entry_point_is_imported_when_it_is_called(install: Install) -> None:
    _entry_points(
        install, "[torchx.schedulers]\nmine = some:make\nbroken = nowhere:make\nempty = some:nope\n"
    )
    install("some.py", "def make(session_name, **kwargs): return session_name, kwargs\n")
    plugins = PluginRegistry().get(PluginType.SCHEDULER)
    assert "some" not in sys.modules
    assert plugins["mine"]("s", a=1) == ("s", {"a": 1})
    with pytest.raises(UsageError, match=r"(?s)`broken` cannot be loaded: ModuleNotFoundError.*nowhere:make"):
        plugins["broken"]("s")
    with pytest.raises(UsageError, match="`empty` cannot be loaded: AttributeError"):
        plugins["empty"]("s")


def test_entry_point_wins_name_and_first_module_too(install: Install) -> None:
    _entry_points(install, "[torchx.schedulers]\nmine = some:make\n")
    install("some.py", "def make(session_name): return 0\n")
    install(f"{SCHEDULERS}/a.py", _scheduler("mine", 1) + _scheduler("other", 1))
    install(f"{SCHEDULERS}/b.py", _scheduler("other", 2))
    found = PluginRegistry()
    plugins = found.get(PluginType.SCHEDULER)
    assert (plugins["mine"]("s"), plugins["other"]("s")[0]) == (0, 1)
    taken = "another plugin with this name was found first; ignored"
    assert found.errors == [
        RegistrationError("torchx_plugins.schedulers.a", taken, "mine", "scheduler"),
        RegistrationError("torchx_plugins.schedulers.b", taken, "other", "scheduler"),
    ]


@pytest.mark.parametrize(("sources", "names"), [("0", []), ("1", ["ns"]), ("2", ["ep"]), ("3", ["ep", "ns"])])
def test_where_plugins_come_from(
    install: Install, monkeypatch: pytest.MonkeyPatch, sources: str, names: list[str]
) -> None:
    _entry_points(install, "[torchx.schedulers]\nep = some:make\n")
    install(f"{SCHEDULERS}/a.py", _scheduler("ns", 1))
    monkeypatch.setenv("TORCHX_PLUGINS_SOURCE", sources)
    assert list(registry().get(PluginType.SCHEDULER)) == names
    assert registry() is registry()


def test_a_wrong_source_is_reported(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_PLUGINS_SOURCE", "all")
    with pytest.raises(UsageError, match=r"TORCHX_PLUGINS_SOURCE is `all`\n  it is a sum of 1"):
        registry()


def test_a_broken_plugin_is_reported_and_skipped(install: Install) -> None:
    install(f"{SCHEDULERS}/a.py", "raise ValueError('boom')")
    install(f"{SCHEDULERS}/b.py", "import nowhere")
    install(f"{SCHEDULERS}/c.py", _scheduler("good", 1))
    install(f"{RESOURCES}/d.py", _scheduler("lost", 1))
    install(
        f"{RESOURCES}/e.py",
        "from torchx.plugins import powers_of_two_gpus, register\nfrom torchx.specs import Resource\n"
        "@register.named_resource(fractionals=powers_of_two_gpus)\ndef odd(): return Resource(1, 3, 1)\n",
    )
    found = PluginRegistry()
    assert list(found.get(PluginType.SCHEDULER)) == ["good"]
    assert list(found.get(PluginType.NAMED_RESOURCE)) == ["odd"]
    assert [(e.module.rsplit(".")[-1], e.name) for e in found.errors] == [
        ("a", None),
        ("b", None),
        ("d", "lost"),
        ("e", "odd"),
    ]
    assert found.errors[0].error == "ValueError: boom"
    assert (
        "is in torchx_plugins.named_resources; move it to torchx_plugins.schedulers" in found.errors[2].error
    )
    assert found.load_errors(PluginType.SCHEDULER) == found.errors[:2]
    report = found.to_dict()
    assert report["errors"][0] == {"module": "torchx_plugins.schedulers.a", "error": "ValueError: boom"}
    assert {"name": "lost", "module": "torchx_plugins.named_resources.d", "error": found.errors[2].error} in (
        report["named_resource"]
    )
    assert json.loads(json.dumps(report)) == report
    assert "  - name: good\n    module: torchx_plugins.schedulers.c\n" in str(found)


def test_one_type_is_searched_without_the_others(install: Install) -> None:
    install(f"{SCHEDULERS}/a.py", _scheduler("mine", 1))
    install(f"{RESOURCES}/b.py", "raise ValueError('boom')")
    found = PluginRegistry()
    assert list(found.get(PluginType.SCHEDULER)) == ["mine"]
    assert "torchx_plugins.named_resources" not in sys.modules


def test_what_was_found_can_be_forgotten(install: Install) -> None:
    found = PluginRegistry(plugin_sources=1)
    assert found.get(PluginType.SCHEDULER) == {}
    install(f"{SCHEDULERS}/a.py", _scheduler("mine", 1))
    assert found.get(PluginType.SCHEDULER) == {}
    found.clear()
    assert list(found.get(PluginType.SCHEDULER)) == ["mine"]
    found.get(PluginType.SCHEDULER).clear()
    assert list(found.get(PluginType.SCHEDULER)) == ["mine"], "what is handed out is a copy"
