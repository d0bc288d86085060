"""The scheduler ``kubernetes``: runs applications on a Kubernetes cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchx.compat.subclasses import NO_OPTIONS
from torchx.errors import StateError, UsageError
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse, Scheduler

if TYPE_CHECKING:
    from torchx.schedulers.kubernetes.api.client import Cluster
    from torchx.schedulers.kubernetes.objects import Facts
    from torchx.schedulers.kubernetes.request import KubernetesJob as KubernetesJob
    from torchx.scheduling.findings import Finding
    from torchx.scheduling.logs import LogChunk, LogQuery
    from torchx.scheduling.streams import Streams
    from torchx.specs.app import AppDef
    from torchx.specs.dryrun import AppDryRunInfo
    from torchx.specs.run_options import CfgVal, runopts

LIST_CONNECT = 2.0
"""Seconds to wait for a connection in listings, which query several schedulers."""


def __getattr__(name: str) -> Any:
    if name == "KubernetesJob":
        from torchx.schedulers.kubernetes import request as kubernetes_request

        return kubernetes_request.KubernetesJob
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


class KubernetesScheduler(Scheduler["KubernetesJob"]):
    """Runs applications as jobs of a cluster, which stores all their data.

    Args:
        session_name: the session part of handles.
    """

    plans_workspaces = True

    def __init__(self, session_name: str) -> None:
        super().__init__("kubernetes", session_name)
        self._clusters: dict[tuple[str | None, str | None, bool], Cluster] = {}

    def close(self) -> None:
        """Closes the connections to clusters."""
        clusters, self._clusters = list(self._clusters.values()), {}
        for cluster in clusters:
            cluster.close()

    def _run_opts(self) -> runopts:
        from torchx.schedulers.kubernetes.options import run_opts

        return run_opts()

    # --- submit ----------------------------------------------------------------------------------

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal] = NO_OPTIONS) -> None:
        """Validates an application; resources are optional."""
        from torchx.schedulers.kubernetes.request import check

        check(app, cfg)

    def build_planned_images(self, dryrun_info: AppDryRunInfo[KubernetesJob]) -> None:
        """Builds and pushes the images that a dry-run has planned for workspaces."""
        from torchx.schedulers.docker.engine.client import Engine
        from torchx.schedulers.docker.images.workspace import build_planned

        if dryrun_info.app is not None:
            build_planned(Engine(), dryrun_info.request.workspaces.builds, dryrun_info.app)

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[KubernetesJob]:
        from torchx.schedulers.kubernetes import request as requests
        from torchx.schedulers.kubernetes.manifests.names import unique_name
        from torchx.schedulers.kubernetes.manifests.workspace import plan_workspaces
        from torchx.specs.dryrun import AppDryRunInfo

        kind = requests.kind_of(app, cfg)
        plans = plan_workspaces(app, cfg)
        request = requests.to_request(app, unique_name(app), cfg, kind, plans)
        info = AppDryRunInfo(request, requests.as_text)
        info.notes += plans.notes
        info.notes += requests.notes_of(app, cfg, kind)
        info.notes += requests.process_notes(app, requests.templates_of(info.request))
        return info

    def schedule(self, dryrun_info: AppDryRunInfo[KubernetesJob]) -> str:
        """Creates the objects of an application, all or none.

        Raises:
            UsageError: the request is invalid, or was submitted before.
            StateError: the cluster does not respond, or rejects the request.
        """
        from torchx.schedulers.kubernetes.api.errors import ClusterError
        from torchx.schedulers.kubernetes.contexts import remember
        from torchx.schedulers.kubernetes.submit import namespace_hint, submit

        cfg = dryrun_info.cfg
        cluster = self._cluster_from(cfg)
        request = self._resolve_kind(cluster, dryrun_info)
        report = _discard if cfg.get("quiet") else dryrun_info.on_progress
        if request.workspaces.builds:
            from torchx.schedulers.kubernetes.images import provide_images

            request, notes = provide_images(request, report)
            dryrun_info.notes += notes
        other = namespace_hint(cluster, request.namespace)
        try:
            dryrun_info.notes += submit(cluster, request, validate=bool(cfg.get("validate_spec", True)))
        except ClusterError as error:
            if other and error.status in (403, 404):
                error.hint = other
            raise
        if other:
            dryrun_info.notes.append(f"it runs in namespace `{request.namespace}`; {other}")
        app_id = f"{request.namespace}:{request.app_id}"
        remember(app_id, cfg)
        return app_id

    def _resolve_kind(self, cluster: Cluster, info: AppDryRunInfo[KubernetesJob]) -> KubernetesJob:
        """Returns the request with kind=auto resolved to a kind that the cluster supports."""
        from torchx.schedulers.kubernetes.request import kind_of, to_request

        request, app, cfg = info.request, info.app, info.cfg
        if (
            app is None
            or cfg.get("kind", "auto") != "auto"
            or kind_of(app, cfg, has_jobset=True) == request.kind
        ):
            return request
        from torchx.schedulers.kubernetes.submit import has_jobsets

        if not has_jobsets(cluster):
            return request
        if to_request(app, request.app_id, cfg, request.kind, request.workspaces) != request:
            info.notes.append(
                "the request was changed after the dry-run and remains one Job per role, not a JobSet"
            )
            return request
        kind = kind_of(app, cfg, has_jobset=True)
        return to_request(app, request.app_id, cfg, kind, request.workspaces)

    # --- status and end --------------------------------------------------------------------------

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the description of an application, running or ended."""
        facts = self._facts(app_id)
        if facts is None:
            return None
        from torchx.schedulers.kubernetes.application import app_of
        from torchx.schedulers.kubernetes.state.damage import describe_safely

        app = app_of(facts)
        return replace(describe_safely(facts, time.time()), roles=app.roles, metadata=app.metadata)

    def glance(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the status of an application, without its roles."""
        facts = self._facts(app_id)
        if facts is None:
            return None
        from torchx.schedulers.kubernetes.state.damage import describe_safely

        return describe_safely(facts, time.time())

    def describe_native(self, app_id: str) -> Any:
        """Returns the cluster's objects of an application, or None."""
        facts = self._facts(app_id)
        return None if facts is None else [*facts.mains, *facts.pods]

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[ListAppResponse]:
        """Returns the applications of a namespace, newest first.

        Args:
            cfg: run options context and namespace; default: the namespace ``default`` and that of the
                context.
        """
        from torchx.schedulers.kubernetes.api.config import require_config

        require_config(_text(cfg, "kubeconfig"))
        from torchx.schedulers.kubernetes.objects import gather_namespaces
        from torchx.schedulers.kubernetes.state.damage import list_safely

        cluster = self._cluster_from(cfg or {}, quick=True)
        namespace = _text(cfg, "namespace")
        namespaces = [namespace] if namespace else list(dict.fromkeys(("default", cluster.namespace)))
        now = time.time()
        lines = [list_safely(facts, now) for facts in gather_namespaces(cluster, namespaces)]
        return sorted(
            lines,
            key=lambda line: (line.submitted_at is not None, line.submitted_at, line.app_id),
            reverse=True,
        )

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Blocks until an application has ended, by watching its objects."""
        from torchx.schedulers.kubernetes.wait import wait

        facts = self._facts(app_id)
        return facts is None or wait(self._cluster_of(app_id), facts, timeout)

    def _cancel_existing(self, app_id: str) -> None:
        from torchx.schedulers.kubernetes.cancel import cancel

        facts = self._own_facts(app_id)
        if facts is not None:
            cancel(self._cluster_of(app_id), facts)

    def reconcile(self, app_id: str) -> None:
        """Ends the other replicas and roles after a failure, since jobs are independent of each other."""
        from torchx.schedulers.kubernetes.cancel import reconcile

        facts = self._facts(app_id)
        if facts is not None:
            reconcile(self._cluster_of(app_id), facts)

    def kill(self, app_id: str) -> None:
        """Ends all pods of an application immediately."""
        from torchx.schedulers.kubernetes.cancel import kill

        facts = self._own_facts(app_id)
        if facts is not None:
            kill(self._cluster_of(app_id), facts)

    def cancel(self, app_id: str) -> None:
        """Ends an application, if it exists and has not ended."""
        self._cancel_existing(app_id)

    def delete(self, app_id: str) -> None:
        """Deletes an application with all its objects."""
        from torchx.schedulers.kubernetes.cancel import delete
        from torchx.schedulers.kubernetes.contexts import forget

        facts = self._own_facts(app_id)
        if facts is not None:
            delete(self._cluster_of(app_id), facts)
        forget(app_id)

    # --- logs ------------------------------------------------------------------------------------

    def log_chunks(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Returns the logs of all replicas in chronological order.

        Raises:
            StateError: the application does not exist.
            UsageError: the query selects a stream; a cluster does not separate them.
        """
        from torchx.scheduling.logs import Stream

        if query.stream is not Stream.COMBINED:
            raise UsageError(
                f"{self.backend} keeps stdout and stderr in one log and cannot separate them",
                hint="omit --streams",
            )
        facts = self._facts(app_id)
        if facts is None:
            raise StateError(f"{self.backend} knows no application `{app_id}`")
        if query.follow and query.until is None:
            from torchx.schedulers.kubernetes.log_follow import Follower

            return Follower(self._cluster_of(app_id), facts, query).read()
        from torchx.schedulers.kubernetes.logs import read_logs

        return read_logs(self._cluster_of(app_id), facts, query)

    def execute(self, app_id: str, role_name: str, k: int, command: Sequence[str], streams: Streams) -> int:
        """Runs a program in the container of a replica and returns its exit code.

        Raises:
            StateError: the replica is not running, or the program does not exist.
        """
        from torchx.schedulers.kubernetes.exec import execute, pod_of

        facts = self._facts(app_id)
        if facts is None:
            raise StateError(f"{self.backend} knows no application `{app_id}`")
        return execute(
            self._cluster_of(app_id), facts.namespace, pod_of(facts, role_name, k), command, streams
        )

    # --- the cluster -----------------------------------------------------------------------------

    def diagnose(self) -> Iterable[Finding]:
        """Checks the default cluster."""
        from torchx.errors import TorchxError
        from torchx.schedulers.kubernetes.api.config import require_config

        cluster: Cluster | TorchxError
        try:
            require_config()
            cluster = self._cluster_from({}, quick=True)
        except TorchxError as error:
            cluster = error
        from torchx.schedulers.kubernetes.doctor import diagnose

        return diagnose(cluster)

    def _cluster_from(self, cfg: Mapping[str, CfgVal], *, quick: bool = False) -> Cluster:
        from torchx.schedulers.kubernetes.api.client import CONNECT, Cluster

        key = _text(cfg, "context"), _text(cfg, "kubeconfig"), quick
        if key not in self._clusters:
            self._clusters[key] = Cluster(key[0], key[1], connect=LIST_CONNECT if quick else CONNECT)
        return self._clusters[key]

    def _cluster_of(self, app_id: str) -> Cluster:
        """Returns the cluster that an application was submitted to, else the default cluster."""
        from torchx.schedulers.kubernetes.contexts import recall

        return self._cluster_from(recall(app_id))

    def _own_facts(self, app_id: str) -> Facts | None:
        """Returns the objects of an application after checking that it belongs to the caller."""
        from torchx.schedulers.kubernetes.owner import require_own

        facts = self._facts(app_id)
        if facts is not None:
            require_own(facts)
        return facts

    def _facts(self, app_id: str) -> Facts | None:
        """Returns the objects of an application, or None."""
        from torchx.schedulers.kubernetes.objects import gather, split_id

        cluster = self._cluster_of(app_id)
        namespace, name = split_id(app_id, cluster.namespace)
        facts = gather(cluster, namespace, name)
        if facts is None and ":" not in app_id and namespace != "default":
            return gather(cluster, "default", name)  # the default of submissions, regardless of the context
        return facts


def _text(cfg: Mapping[str, CfgVal] | None, option: str) -> str | None:
    value = (cfg or {}).get(option)
    return str(value) if value else None


def _discard(line: str) -> None:
    """Drops a line of progress."""


def create_scheduler(session_name: str, **kwargs: Any) -> KubernetesScheduler:
    """Returns the scheduler ``kubernetes``."""
    return KubernetesScheduler(session_name)
