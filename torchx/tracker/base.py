"""The interface of trackers, and the data that they keep; ``torchx.tracker.api`` re-exports them."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

UNDEFINED = "<UNDEFINED>"
"""The id of a run outside every job."""


@dataclass(frozen=True)
class TrackerArtifact:
    """A result of a run.

    Attributes:
        name: its name within the run.
        path: its path or URL.
        metadata: further information.
    """

    name: str
    path: str
    metadata: Mapping[str, object] | None = None


@dataclass(frozen=True)
class TrackerSource:
    """An input of a run.

    Attributes:
        source_run_id: the id of the other run, or another identifier such as a URL.
        artifact_name: its artifact; None for the whole run.
    """

    source_run_id: str
    artifact_name: str | None = None


@dataclass(frozen=True)
class LineageEdge:
    """One step of a lineage: a run that was made from another.

    Attributes:
        source_id: the id of the earlier one.
        run_id: the id of the later one.
        artifact_name: the artifact of the earlier one; None for the whole run.
    """

    source_id: str
    run_id: str
    artifact_name: str | None = None


@dataclass(frozen=True)
class Lineage:
    """The ancestors and descendants of a run, over any number of steps.

    Attributes:
        run_id: the run.
        edges: the steps, those nearest to the run first; each once.
    """

    run_id: str = UNDEFINED
    edges: tuple[LineageEdge, ...] = ()

    def sources(self, run_id: str | None = None) -> list[LineageEdge]:
        """Returns the edges to a run (default: the run of the lineage)."""
        return [edge for edge in self.edges if edge.run_id == (run_id or self.run_id)]

    def descendants(self, run_id: str | None = None) -> list[LineageEdge]:
        """Returns the edges from a run (default: the run of the lineage)."""
        return [edge for edge in self.edges if edge.source_id == (run_id or self.run_id)]


class TrackerBase(abc.ABC):
    """Stores the reports of runs. A run's id is the handle of its application."""

    @abc.abstractmethod
    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Stores the location of an artifact; replaces an earlier one of the same name."""

    @abc.abstractmethod
    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        """Returns the artifacts of a run by name; empty if the run is unknown."""

    @abc.abstractmethod
    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        """Stores values by name; later values replace earlier ones."""

    @abc.abstractmethod
    def metadata(self, run_id: str) -> Mapping[str, object]:
        """Returns the values of a run by name; empty if the run is unknown."""

    def history(self, run_id: str) -> Iterable[tuple[float, Mapping[str, object]]]:
        """Returns the reports of values of a run, the oldest first.

        A tracker that keeps no earlier values returns the last ones, at time 0.

        Returns:
            Seconds since the epoch, and values by name.
        """
        return [(0.0, self.metadata(run_id))]

    @abc.abstractmethod
    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Records that a run was made from another, or from an artifact of it."""

    @abc.abstractmethod
    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        """Returns the inputs of a run.

        Args:
            run_id: the run.
            artifact_name: only those that name this artifact.
        """

    def lineage(self, run_id: str) -> Lineage:
        """Returns the ancestors and descendants of a run; handles cycles."""
        edges: dict[LineageEdge, None] = {}
        for forward in (False, True):
            seen, front = {run_id}, [run_id]
            while front:
                reached = []
                for here in front:
                    for edge in _steps_from(self, here) if forward else _steps_to(self, here):
                        edges.setdefault(edge)
                        reached.append(edge.run_id if forward else edge.source_id)
                front = [one for one in dict.fromkeys(reached) if one not in seen]
                seen.update(front)
        return Lineage(run_id, tuple(edges))

    @abc.abstractmethod
    def run_ids(self, **kwargs: str) -> Iterable[str]:
        """Returns the ids of the known runs.

        Args:
            kwargs: filters: ``parent_run_id`` for those made from that run. An unknown filter is an
                error.
        """


def _steps_to(tracker: TrackerBase, run_id: str) -> list[LineageEdge]:
    return [LineageEdge(s.source_run_id, run_id, s.artifact_name) for s in tracker.sources(run_id)]


def _steps_from(tracker: TrackerBase, run_id: str) -> list[LineageEdge]:
    later = tracker.run_ids(parent_run_id=run_id)
    return [edge for one in later for edge in _steps_to(tracker, one) if edge.source_id == run_id]
