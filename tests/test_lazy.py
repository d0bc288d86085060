"""Tests of imports that load a module at its first use."""

from __future__ import annotations

import builtins
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchx.lazy import LazyModule, lazy_imports, postpone

MODULES = {
    "__init__": "",
    "user": "with lazy_imports:\n    from lazypackage import used as renamed, unused\n",
    "used": "import sys\nVALUE = 1\nloaded_by = __name__\n",
    "unused": "raise RuntimeError('it was loaded')\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "lazypackage"
    folder.mkdir()
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(f"from torchx.lazy import lazy_imports\n{text}")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.startswith("lazypackage")]:
        del sys.modules[name]


def test_a_module_is_loaded_at_its_first_use(package: Path) -> None:
    from lazypackage import user  # type: ignore[import-not-found]

    assert "lazypackage.used" not in sys.modules
    assert "lazypackage.used" in repr(user.renamed)
    assert "lazypackage.used" not in sys.modules
    assert user.renamed.VALUE == 1
    assert user.renamed.loaded_by == "lazypackage.used"
    with pytest.raises(AttributeError, match="nosuch"):
        _ = user.renamed.nosuch
    with pytest.raises(RuntimeError, match="it was loaded"):
        _ = user.unused.VALUE


def test_names_are_replaced_in_the_module_itself(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lazypackage import user

    monkeypatch.setattr(user.renamed, "VALUE", 2)
    assert sys.modules["lazypackage.used"].VALUE == 2  # type: ignore[attr-defined]
    monkeypatch.undo()
    assert user.renamed.VALUE == 1


def test_a_module_that_others_import_is_postponed(package: Path) -> None:
    (package / "other.py").write_text("import lazypackage.used as used\nimport lazypackage.unused\n")
    for name in ("lazypackage", "lazypackage.used", "lazypackage.unused"):
        postpone(name) if "." in name else __import__(name)
    from lazypackage import other

    first = sys.modules["lazypackage.used"]
    assert isinstance(first, LazyModule)
    assert other.used.VALUE == 1
    assert not isinstance(sys.modules["lazypackage.used"], LazyModule)
    postpone("lazypackage.used")
    assert sys.modules["lazypackage.used"].loaded_by == "lazypackage.used", "loaded: it stays"  # type: ignore[attr-defined]
    from lazypackage.used import VALUE

    assert (first.VALUE, VALUE) == (1, 1)
    assert isinstance(sys.modules["lazypackage.unused"], LazyModule)


@pytest.mark.parametrize("statement", ["import os.path", "from . import errors", "from .errors import X"])
def test_only_modules_by_absolute_names_can_be_imported(statement: str) -> None:
    with pytest.raises(ImportError, match="from package import module"):
        exec(
            f"with lazy_imports:\n    {statement}\n", {"lazy_imports": lazy_imports, "__package__": "torchx"}
        )
    assert builtins.__import__ is not lazy_imports
    exec("import os.path", {})


def test_other_threads_import_as_usual() -> None:
    loaded: list[object] = []

    def load() -> None:
        import wave

        loaded.append(wave)

    sys.modules.pop("wave", None)
    with lazy_imports:
        thread = threading.Thread(target=load)
        thread.start()
        thread.join()
    assert loaded == [sys.modules["wave"]]
    assert isinstance(loaded[0], type(sys))


def test_a_command_loads_few_packages_of_others() -> None:
    heavy = ("yaml", "docker", "fsspec", "kubernetes", "rich")
    code = f"import torchx_cli.app, sys; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
