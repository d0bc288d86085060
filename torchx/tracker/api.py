"""The interface of trackers, and the run that reports to them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torchx import settings
from torchx.lazy import lazy_imports
from torchx.tracker.base import UNDEFINED as UNDEFINED
from torchx.tracker.base import Lineage as Lineage
from torchx.tracker.base import LineageEdge as LineageEdge
from torchx.tracker.base import TrackerArtifact as TrackerArtifact
from torchx.tracker.base import TrackerBase as TrackerBase
from torchx.tracker.base import TrackerSource as TrackerSource

with lazy_imports:
    from torchx.tracker import configured


@dataclass(frozen=True)
class AppRun:
    """The run of this program; it reports to all trackers.

    Attributes:
        id: the handle of its application.
        backends: the trackers.
    """

    id: str
    backends: Iterable[TrackerBase] = ()

    @staticmethod
    def run_from_env() -> AppRun:
        """Returns the run of this process: ``$TORCHX_JOB_ID``, with the trackers in ``$TORCHX_TRACKERS``.

        Records the run of ``$TORCHX_PARENT_RUN_ID``, if set, as its source. Without a job or trackers,
        returns a run that records nothing.

        Raises:
            UsageError: a tracker is unknown, or cannot be created with its configuration.
        """
        job = os.environ.get(settings.TORCHX_JOB_ID)
        if not job:
            return AppRun(UNDEFINED)

        run = AppRun(job, tuple(configured.trackers_from_environ()))
        parent = os.environ.get(settings.TORCHX_PARENT_RUN_ID)
        if parent:
            for tracker in run.backends:
                if TrackerSource(parent) not in tracker.sources(job):  # every replica executes this
                    tracker.add_source(job, parent)
        return run

    def job_id(self) -> str:
        """Returns the handle of its application."""
        return self.id

    def add_metadata(self, **kwargs: object) -> None:
        """Stores values by name."""
        for tracker in self.backends:
            tracker.add_metadata(self.id, **kwargs)

    def add_artifact(self, name: str, path: str, metadata: Mapping[str, object] | None = None) -> None:
        """Stores the location of an artifact.

        Args:
            name: its name within the run.
            path: its path or URL.
            metadata: further information.
        """
        for tracker in self.backends:
            tracker.add_artifact(self.id, name, path, metadata)

    def add_source(self, source_id: str, artifact_name: str | None = None) -> None:
        """Records that this run was made from another, or from an artifact of it."""
        for tracker in self.backends:
            tracker.add_source(self.id, source_id, artifact_name)

    def sources(self) -> Iterable[AppRunTrackableSource]:
        """Returns the inputs of this run, from all trackers."""
        sources = dict.fromkeys(source for tracker in self.backends for source in tracker.sources(self.id))
        return [
            AppRunTrackableSource(AppRun(s.source_run_id, self.backends), s.artifact_name) for s in sources
        ]

    def children(self) -> Iterable[AppRun]:
        """Returns the runs made from this one, from all trackers."""
        children = (one for tracker in self.backends for one in tracker.run_ids(parent_run_id=self.id))
        return [AppRun(one, self.backends) for one in dict.fromkeys(children)]


@dataclass(frozen=True)
class AppRunTrackableSource:
    """An input of a run.

    Attributes:
        parent: the other run.
        artifact_name: its artifact; None for the whole run.
    """

    parent: AppRun
    artifact_name: str | None
