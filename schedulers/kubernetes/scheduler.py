"""The scheduler ``kubernetes``: runs applications on a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx.compat.subclasses import NO_OPTIONS
from torchx.lazy import lazy_imports, lazy_names
from torchx.schedulers.kubernetes.contexts import Clusters
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse, Scheduler
from torchx.scheduling.pace import alone

with lazy_imports:
    from torchx.schedulers.kubernetes import cancel as kubernetes_cancel
    from torchx.schedulers.kubernetes import (
        checks,
        doctor,
        images,
        log_follow,
        options,
        queries,
        request,
        submit,
    )
    from torchx.schedulers.kubernetes import exec as kubernetes_exec
    from torchx.schedulers.kubernetes import many as sweep_actions
    from torchx.schedulers.kubernetes import many as sweep_submit
    from torchx.schedulers.kubernetes import measurement as kubernetes_measurement
    from torchx.schedulers.kubernetes import reconcile as kubernetes_reconcile
    from torchx.schedulers.kubernetes import watch as kubernetes_wait

if TYPE_CHECKING:
    from socket import socket

    from torchx.schedulers.kubernetes.request import KubernetesJob as KubernetesJob
    from torchx.scheduling.base import ManyRuns
    from torchx.scheduling.findings import Finding
    from torchx.scheduling.logs import LogChunk, LogQuery
    from torchx.scheduling.measurement import AppUsage
    from torchx.scheduling.streams import Streams
    from torchx.specs.app import AppDef, AppDryRunInfo
    from torchx.specs.run_options import RunOptions, runopts


__getattr__ = lazy_names(__name__, {"KubernetesJob": "torchx.schedulers.kubernetes.request"})


class KubernetesScheduler(Scheduler["KubernetesJob"]):
    """Runs applications as jobs of a cluster, which stores all their data.

    Args:
        session_name: the session part of handles.
    """

    plans_workspaces = runs_services = knows_hosts = True

    def __init__(self, session_name: str) -> None:
        super().__init__("kubernetes", session_name)
        self._clusters = Clusters()

    def close(self) -> None:
        """Closes the connections to clusters."""
        self._clusters.close()

    # --- submit ----------------------------------------------------------------------------------

    def _run_opts(self) -> runopts:
        return options.run_options()

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: RunOptions) -> None:
        options.check_options(cfg)

    def _validate(self, app: AppDef, scheduler: str, cfg: RunOptions = NO_OPTIONS) -> None:
        checks.check(app)

    def build_planned_images(self, dryrun_info: AppDryRunInfo[KubernetesJob]) -> None:
        """Builds and pushes the images that a dry-run has planned for workspaces."""
        images.build_planned_images(dryrun_info)

    def _submit_dryrun(self, app: AppDef, cfg: RunOptions) -> AppDryRunInfo[KubernetesJob]:
        return request.dry_run(app, cfg)

    def schedule(self, dryrun_info: AppDryRunInfo[KubernetesJob]) -> str:
        """Creates the objects of an application, all or none.

        Raises:
            UsageError: the request is invalid, or was submitted before.
            StateError: the cluster does not respond, or rejects the request.
        """
        return submit.schedule(self._clusters, dryrun_info)

    def needs_watcher(self, dryrun_info: AppDryRunInfo[KubernetesJob]) -> bool:
        """Returns True if torchx restarts an application as a whole, which no Job does."""
        return submit.needs_watcher(dryrun_info)

    # --- status ----------------------------------------------------------------------------------

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the description of an application, running or ended."""
        return queries.describe_app(self._clusters, app_id)

    def glance(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the status of an application, without its roles."""
        return queries.glance(self._clusters, app_id)

    def outline(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the roles and replicas of an application, without their status."""
        return queries.outline(self._clusters, app_id)

    def describe_native(self, app_id: str) -> Any:
        """Returns the cluster's objects of an application, or None."""
        return queries.describe_native(self._clusters, app_id)

    def list(self, cfg: RunOptions | None = None) -> Iterable[ListAppResponse]:
        """Returns the applications of a namespace, newest first.

        Args:
            cfg: run options context and namespace; default: the namespace ``default`` and that of the
                context.
        """
        self._clusters.require_config(cfg)

        return queries.list_apps(self._clusters, cfg)

    def wakes(self, app_id: str) -> bool:
        """Returns True: watches report the end."""
        return True

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Blocks until an application has ended, by watching its objects."""
        return kubernetes_wait.wait(self._clusters, app_id, timeout)

    def usage(self, app_id: str) -> AppUsage | None:
        """Returns the measurements of an application, or None if there are none."""
        return kubernetes_measurement.usage(self._clusters, app_id)

    # --- cancel ----------------------------------------------------------------------------------

    def reconcile(self, app_id: str) -> None:
        """Ends the other replicas and roles after a failure, since jobs are independent of each other."""
        kubernetes_reconcile.reconcile(self._clusters, app_id)

    def cancel(self, app_id: str) -> None:
        """Ends an application, if it exists and has not ended."""
        self._cancel_existing(app_id)

    def _cancel_existing(self, app_id: str) -> None:
        with alone():
            facts = kubernetes_cancel.cancel(self._clusters, app_id)
            kubernetes_reconcile.note_end(self._clusters, facts)

    def kill(self, app_id: str) -> None:
        """Ends all pods of an application immediately."""
        kubernetes_reconcile.note_end(self._clusters, kubernetes_cancel.kill(self._clusters, app_id))

    def delete(self, app_id: str) -> None:
        """Deletes an application with all its objects."""
        kubernetes_cancel.delete(self._clusters, app_id)

    # --- sweeps ----------------------------------------------------------------------------------

    def rejects_many(self, runs: ManyRuns) -> str:
        """Returns why runs cannot be the indexes of one Job, as a clause; empty if they can."""
        return sweep_submit.rejects_many(self._clusters, runs)

    def submit_many(self, runs: ManyRuns) -> Mapping[int, str]:
        """Creates one Job for runs, and returns the id of each run by its number.

        Raises:
            UsageError: the arguments of the runs are too large.
            UnavailableError: the cluster does not respond.
            StateError: the cluster rejects the Job.
        """
        return sweep_submit.submit_many(self._clusters, self, runs)

    def glance_many(self, app_ids: Collection[str]) -> Mapping[str, DescribeAppResponse]:
        """Returns the status of runs, without their roles; unknown ones are left out.

        Raises:
            UnavailableError: the cluster does not respond.
        """
        return sweep_actions.glance_many(self._clusters, app_ids)

    def usage_many(self, app_ids: Collection[str]) -> Mapping[str, AppUsage]:
        """Returns no measurements: a cluster keeps none of ended pods."""
        return sweep_actions.usage_many(app_ids)

    def cancel_many(self, app_ids: Collection[str], *, now: bool = False) -> None:
        """Ends runs; those that have ended are left unchanged."""
        sweep_actions.cancel_many(self._clusters, app_ids, now=now)

    def delete_many(self, app_ids: Collection[str]) -> None:
        """Deletes runs, with their logs; the Job with the last of them."""
        sweep_actions.delete_many(self._clusters, app_ids)

    def limit_many(self, app_ids: Collection[str], at_once: int) -> None:
        """Changes the maximum number of these runs at the same time; 0 for no limit."""
        sweep_actions.limit_many(self._clusters, app_ids, at_once)

    # --- logs, programs, checks ------------------------------------------------------------------

    def log_chunks(self, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
        """Returns the logs of all replicas in chronological order.

        Raises:
            StateError: the application does not exist.
            UsageError: the query selects a stream; a cluster does not separate them.
        """
        return log_follow.log_chunks(self._clusters, app_id, query)

    def execute(self, app_id: str, role_name: str, k: int, command: Sequence[str], streams: Streams) -> int:
        """Runs a program in the container of a replica and returns its exit code.

        Raises:
            StateError: the replica is not running, or the program does not exist.
        """
        return kubernetes_exec.execute(self._clusters, app_id, role_name, k, command, streams)

    def port_connector(self, app_id: str, role_name: str, k: int, port: str) -> Callable[[], socket]:
        """Returns a function that connects to a port of a replica."""
        return kubernetes_exec.port_connector(self._clusters, app_id, role_name, k, port)

    def diagnose(self) -> Iterable[Finding]:
        """Checks the default cluster."""
        return doctor.diagnose(self._clusters)


def create_scheduler(session_name: str, **kwargs: Any) -> KubernetesScheduler:
    """Returns the scheduler ``kubernetes``."""
    return KubernetesScheduler(session_name)
