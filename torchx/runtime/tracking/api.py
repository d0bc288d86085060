"""Results of an application, under a key in a folder that another program reads."""

from __future__ import annotations

import abc
import json
from collections.abc import Mapping
from typing import TypeAlias

from torchx.lazy import lazy_imports

with lazy_imports:
    import fsspec

Key: TypeAlias = int | str
Result: TypeAlias = int | float | str


class ResultTracker(abc.ABC):
    """Stores results by key, as a mapping: ``tracker[key] = {"loss": 0.2}``."""

    @abc.abstractmethod
    def put(self, key: Key, **results: Result) -> None:
        """Stores results under a key; they replace earlier ones."""

    @abc.abstractmethod
    def get(self, key: Key) -> dict[str, Result]:
        """Returns the results under a key; empty if there are none."""

    def __setitem__(self, key: Key, results: Mapping[str, Result]) -> None:
        self.put(key, **results)

    def __getitem__(self, key: Key) -> dict[str, Result]:
        return self.get(key)


class FsspecResultTracker(ResultTracker):
    """Stores results as JSON files in a folder, one for each key.

    >>> import tempfile
    >>> tracker = FsspecResultTracker(tempfile.mkdtemp())
    >>> tracker["attempt_1/out"] = {"accuracy": 0.25}
    >>> tracker["attempt_1/out"], tracker["attempt_2/out"]
    ({'accuracy': 0.25}, {})

    Args:
        tracker_base: the folder, a path or a URL that fsspec knows.
    """

    def __init__(self, tracker_base: str) -> None:
        self._base = tracker_base

    def put(self, key: Key, **results: Result) -> None:
        """Stores results in the file of a key."""
        with fsspec.open(self._file(key), "w", auto_mkdir=True) as file:
            json.dump(results, file, indent=2)

    def get(self, key: Key) -> dict[str, Result]:
        """Returns the results in the file of a key; empty if it does not exist."""
        try:
            with fsspec.open(self._file(key), "r") as file:
                results: dict[str, Result] = json.load(file)
        except FileNotFoundError:
            return {}
        return results

    def _file(self, key: Key) -> str:
        return f"{self._base.rstrip('/')}/{key}"
