"""What a tracker does, and the run that all trackers of a job are told about."""

from __future__ import annotations

import abc
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torchx import settings

UNDEFINED = "<UNDEFINED>"
"""The id of a run outside every job."""


@dataclass(frozen=True)
class TrackerArtifact:
    """Something that a run has made.

    Attributes:
        name: its name within the run.
        path: where it lies: a path or a URL.
        metadata: what there is to say about it.
    """

    name: str
    path: str
    metadata: Mapping[str, object] | None = None


@dataclass(frozen=True)
class TrackerSource:
    """Something that a run was made from.

    Attributes:
        source_run_id: the id of the other run, or anything else that names it, as a URL.
        artifact_name: which artifact of it; None for the run as a whole.
    """

    source_run_id: str
    artifact_name: str | None = None


@dataclass(frozen=True)
class LineageEdge:
    """One step of a lineage: a run that was made from another.

    Attributes:
        source_id: the id of the earlier one.
        run_id: the id of the later one.
        artifact_name: which artifact of the earlier one; None for it as a whole.
    """

    source_id: str
    run_id: str
    artifact_name: str | None = None


@dataclass(frozen=True)
class Lineage:
    """All that a run came from, and all that came of it, over any number of steps.

    Attributes:
        run_id: the run.
        edges: the steps, those nearest to the run first; each once.
    """

    run_id: str = UNDEFINED
    edges: tuple[LineageEdge, ...] = ()

    def sources(self, run_id: str | None = None) -> list[LineageEdge]:
        """Returns the steps that lead straight to a run; to the one of the lineage unless told."""
        return [edge for edge in self.edges if edge.run_id == (run_id or self.run_id)]

    def descendants(self, run_id: str | None = None) -> list[LineageEdge]:
        """Returns the steps that lead straight away from a run; from the one of the lineage unless told."""
        return [edge for edge in self.edges if edge.source_id == (run_id or self.run_id)]


class TrackerBase(abc.ABC):
    """Keeps what runs tell. A run is named by its id: the handle of its application."""

    @abc.abstractmethod
    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Keeps the place of something that a run has made; a later one of its name takes its place."""

    @abc.abstractmethod
    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        """Returns the artifacts of a run by name; none where the run is not known."""

    @abc.abstractmethod
    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        """Keeps values by name; later ones take the place of earlier ones."""

    @abc.abstractmethod
    def metadata(self, run_id: str) -> Mapping[str, object]:
        """Returns the values of a run by name; none where the run is not known."""

    @abc.abstractmethod
    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Notes that a run was made from another, or from an artifact of it."""

    @abc.abstractmethod
    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        """Returns what a run was made from.

        Args:
            run_id: the run.
            artifact_name: only those that name this artifact.
        """

    def lineage(self, run_id: str) -> Lineage:
        """Returns all that a run came from and all that came of it; circles are walked once."""
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
        """Returns the ids of the runs that are known.

        Args:
            kwargs: which of them: ``parent_run_id`` for those made from that run. What a tracker does not
                know is an error.
        """


def _steps_to(tracker: TrackerBase, run_id: str) -> list[LineageEdge]:
    return [LineageEdge(s.source_run_id, run_id, s.artifact_name) for s in tracker.sources(run_id)]


def _steps_from(tracker: TrackerBase, run_id: str) -> list[LineageEdge]:
    later = tracker.run_ids(parent_run_id=run_id)
    return [edge for one in later for edge in _steps_to(tracker, one) if edge.source_id == run_id]


@dataclass(frozen=True)
class AppRun:
    """A run, as its own program sees it; what it tells goes to all trackers.

    Attributes:
        id: the handle of its application.
        backends: the trackers.
    """

    id: str
    backends: Iterable[TrackerBase] = ()

    @staticmethod
    def run_from_env() -> AppRun:
        """Returns the run of this process: ``$TORCHX_JOB_ID``, with the trackers in ``$TORCHX_TRACKERS``.

        Where ``$TORCHX_PARENT_RUN_ID`` is set, that run is noted as its source. Without a job, or without
        trackers, a run that keeps nothing.

        Raises:
            UsageError: there is no tracker of a name, or it cannot be made with its configuration.
        """
        job = os.environ.get(settings.TORCHX_JOB_ID)
        if not job:
            return AppRun(UNDEFINED)
        from torchx.tracker.configured import trackers_from_environ

        run = AppRun(job, tuple(trackers_from_environ()))
        parent = os.environ.get(settings.TORCHX_PARENT_RUN_ID)
        if parent:
            for tracker in run.backends:
                if TrackerSource(parent) not in tracker.sources(job):  # each replica comes by here
                    tracker.add_source(job, parent)
        return run

    def job_id(self) -> str:
        """Returns the handle of its application."""
        return self.id

    def add_metadata(self, **kwargs: object) -> None:
        """Keeps values by name."""
        for tracker in self.backends:
            tracker.add_metadata(self.id, **kwargs)

    def add_artifact(self, name: str, path: str, metadata: Mapping[str, object] | None = None) -> None:
        """Keeps the place of something that the run has made.

        Args:
            name: its name within the run.
            path: where it lies: a path or a URL.
            metadata: what there is to say about it.
        """
        for tracker in self.backends:
            tracker.add_artifact(self.id, name, path, metadata)

    def add_source(self, source_id: str, artifact_name: str | None = None) -> None:
        """Notes that this run was made from another, or from an artifact of it."""
        for tracker in self.backends:
            tracker.add_source(self.id, source_id, artifact_name)

    def sources(self) -> Iterable[AppRunTrackableSource]:
        """Returns what this run was made from, as all trackers together know it."""
        told = dict.fromkeys(source for tracker in self.backends for source in tracker.sources(self.id))
        return [AppRunTrackableSource(AppRun(s.source_run_id, self.backends), s.artifact_name) for s in told]

    def children(self) -> Iterable[AppRun]:
        """Returns the runs that were made from this one, as all trackers together know them."""
        told = (one for tracker in self.backends for one in tracker.run_ids(parent_run_id=self.id))
        return [AppRun(one, self.backends) for one in dict.fromkeys(told)]


@dataclass(frozen=True)
class AppRunTrackableSource:
    """What a run was made from.

    Attributes:
        parent: the other run.
        artifact_name: which artifact of it; None for the run as a whole.
    """

    parent: AppRun
    artifact_name: str | None
