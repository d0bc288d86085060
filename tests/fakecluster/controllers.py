"""Makes pods of jobs, sets the status of jobs, and removes objects without an owner."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from fakecluster.objects import (
    TRACKED,
    child_job,
    ended,
    failed_by_rule,
    failed_indexes,
    ignored,
    index,
    indexes,
    owned,
    phase,
    pod_of,
    ready,
    rules_of,
)
from fakecluster.store import Object, Refused, Store, clock, condition, now, seconds_of

RETRY_AFTER = 0.3
"""Seconds before a failed replica is started again; about ten on a real cluster."""


class Controllers:
    """A thread that looks at all objects whenever one has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.stop = threading.Event()
        self._failed_at: dict[tuple[str, int], float] = {}
        self._gone: dict[str, dict[str, tuple[int, bool]]] = {}
        self._thread = threading.Thread(target=self._run, name="controllers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.stop.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        seen = -1
        while not self.stop.is_set():
            with self._store.changed:
                if self._store.version == seen:
                    self._store.changed.wait(0.1)
                seen = self._store.version
            for look in (self._jobsets, self._jobs, self._collect):
                with suppress(Refused):  # it went away meanwhile: the next round sees it
                    look()

    # --- jobs ------------------------------------------------------------------------------------

    def _jobs(self) -> None:
        for collection in self._store.collections("jobs"):
            if collection.startswith("/apis/batch/v1/"):
                for job in self._store.list(collection):
                    if not job["metadata"].get("deletionTimestamp") and not ended(job):
                        self._job(collection, job)
                    self._release(job)

    def _release(self, job: Object) -> None:
        """Removes the finalizer of the pods that a job has counted (facts 1.36).

        A failed pod of an index that neither has failed nor has another pod is not counted yet; if the job is
        suspended, it never is.
        """
        pods_at = f"/api/v1/namespaces/{job['metadata']['namespace']}/pods"
        pods = [p for p in self._store.list(pods_at) if owned(p, job)]
        over = ended(job) or job["metadata"].get("deletionTimestamp")
        by_index = job["spec"].get("backoffLimitPerIndex") is not None
        lost = indexes(job, "failedIndexes")
        newest = {index(p): p["metadata"]["uid"] for p in pods}
        for pod in pods:
            replaced = newest[index(pod)] != pod["metadata"]["uid"]
            counted = phase(pod) == "Succeeded" or not by_index or replaced or index(pod) in lost
            if over or (counted and phase(pod) in ("Succeeded", "Failed")):
                free(self._store, pods_at, pod)

    def _job(self, collection: str, job: Object) -> None:
        pods_at = f"/api/v1/namespaces/{job['metadata']['namespace']}/pods"
        pods = [p for p in self._store.list(pods_at) if owned(p, job)]
        if job["spec"].get("suspend"):
            self._suspend(collection, job, pods_at, pods)
            return
        self._note_deletions(job, pods)
        verdict = self._verdict(job, pods) or expired(job)
        live = [p for p in pods if phase(p) in ("Pending", "Running")]
        if verdict and verdict[0] == "Failed":
            for pod in live:
                delete(self._store, pods_at, pod)
        elif not verdict:
            self._start_missing(job, pods_at, pods)
        self._tell(collection, job, pods, live, verdict)

    def _note_deletions(self, job: Object, pods: list[Object]) -> None:
        """Counts pods that others delete: as failures, but for those that a rule ignores (facts 12d, 15)."""
        gone = self._gone.setdefault(job["metadata"]["uid"], {})
        if any(c["type"] == "FailureTarget" for c in job["status"].get("conditions") or []):
            return  # it was the job that deleted the others (facts 03f: failedIndexes stays as it was)
        # 15g: with a rule, a pod that is being deleted counts once it has ended
        counted = ("Pending", "Failed") if rules_of(job["spec"]) else ("Pending", "Failed", "Running")
        for pod in pods:
            if pod["metadata"].get("deletionTimestamp") and phase(pod) in counted:
                gone.setdefault(pod["metadata"]["uid"], (index(pod), ignored(job, pod)))

    def _failures(self, job: Object, pods: list[Object], *, ignoring: bool = False) -> dict[int, int]:
        """Returns how often each index has failed; or how often that was ignored."""
        found: dict[int, int] = {}
        there = {p["metadata"]["uid"]: p for p in pods}
        gone = self._gone.get(job["metadata"]["uid"], {})
        ends = [
            (index(p), ignored(job, p))
            for uid, p in there.items()
            if phase(p) == "Failed" and uid not in gone and not p["metadata"].get("deletionTimestamp")
        ]
        for number, was_ignored in [*ends, *gone.values()]:
            if was_ignored is ignoring:
                found[number] = found.get(number, 0) + 1
        return found

    def _suspend(self, collection: str, job: Object, pods_at: str, pods: list[Object]) -> None:
        live = [p for p in pods if phase(p) in ("Pending", "Running")]
        for pod in live:
            delete(self._store, pods_at, pod)

        def change(found: Object) -> None:
            status = found["status"]
            set_condition(status, condition("Suspended", "JobSuspended", "Job suspended"))
            status.pop("active", None)
            status.update({"terminating": len(live), "ready": 0})

        self._store.update(collection, job["metadata"]["name"], change)

    def _verdict(self, job: Object, pods: list[Object]) -> tuple[str, str, str] | None:
        for known in job["status"].get("conditions") or []:
            if known["type"] == "FailureTarget":  # what was decided stays, whatever is changed afterwards
                return "Failed", known["reason"], known["message"]
        spec = job["spec"]
        good = {index(p) for p in pods if phase(p) == "Succeeded"} | indexes(job, "completedIndexes")
        bad = [p for p in pods if phase(p) == "Failed" and not p["metadata"].get("deletionTimestamp")]
        result = failed_by_rule(spec, bad)
        if result:
            return "Failed", "PodFailurePolicy", result
        limit = spec.get("backoffLimitPerIndex")
        failures = self._failures(job, pods)
        if limit is not None:
            lost = {number for number, count in failures.items() if count > limit} - good
            lost |= failed_indexes(spec, pods)
            most = spec.get("maxFailedIndexes")
            if most is not None and len(lost) > most:
                return (
                    "Failed",
                    "MaxFailedIndexesExceeded",
                    "Job has exceeded the specified maximal number of failed indexes",
                )
            if lost and len(good | lost) == spec["completions"]:
                return "Failed", "FailedIndexes", "Job has failed indexes"
        elif sum(failures.values()) > spec.get("backoffLimit", 6):
            return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if len(good) == spec["completions"]:
            return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
        return None

    def _start_missing(self, job: Object, pods_at: str, pods: list[Object]) -> None:
        limit = job["spec"].get("backoffLimitPerIndex")
        failures, spared = self._failures(job, pods), self._failures(job, pods, ignoring=True)
        done = indexes(job, "completedIndexes") | failed_indexes(job["spec"], pods)
        room = job["spec"].get("parallelism", 1) - sum(phase(p) in ("Pending", "Running") for p in pods)
        for number in range(job["spec"]["completions"]):
            mine = [p for p in pods if index(p) == number]
            bad, before = failures.get(number, 0), spared.get(number, 0)
            there = any(phase(p) != "Failed" for p in mine) or number in done
            if there or (limit is not None and bad > limit):
                continue
            key = job["metadata"]["uid"], (bad + before) * 100_000 + number
            late = time.monotonic() - self._failed_at.setdefault(key, time.monotonic()) >= RETRY_AFTER
            if room > 0 and (not bad + before or late):
                room -= 1
                self._store.create(pods_at, pod_of(job, number, bad, before))

    def _tell(
        self, collection: str, job: Object, pods: list[Object], live: list[Object], verdict: Any
    ) -> None:
        good = sorted({index(p) for p in pods if phase(p) == "Succeeded"} | indexes(job, "completedIndexes"))
        failures = self._failures(job, pods)
        limit = job["spec"].get("backoffLimitPerIndex")
        lost = sorted(
            {n for n, count in failures.items() if limit is not None and count > limit}
            | failed_indexes(job["spec"], pods)
        )
        leaving = [p for p in live if p["metadata"].get("deletionTimestamp")]

        def change(found: Object) -> None:
            status = found["status"]
            if any(
                c["type"] == "Suspended" and c["status"] == "True" for c in status.get("conditions") or []
            ):
                set_condition(status, condition("Suspended", "JobResumed", "Job resumed", "False"))
            status.setdefault("startTime", now())
            for key, value in (
                ("active", len(live) - len(leaving)),
                ("succeeded", len(good)),
                ("failed", sum(failures.values())),
            ):
                status.pop(key, None)
                if value:
                    status[key] = value
            status["ready"] = sum(phase(p) == "Running" and ready(p) for p in pods if p not in leaving)
            status["terminating"] = len(leaving)
            if limit is not None:
                status["failedIndexes"] = ",".join(map(str, lost))
            if good:
                status["completedIndexes"] = ",".join(map(str, good))
            if verdict is None:
                return
            kind, reason, message = verdict
            first = "FailureTarget" if kind == "Failed" else "SuccessCriteriaMet"
            if not any(c["type"] == first for c in status.get("conditions") or []):
                set_condition(status, condition(first, reason, message))
            if not live:
                set_condition(status, condition(kind, reason, message))
                if kind == "Complete":
                    status["completionTime"] = now()

        self._store.update(collection, job["metadata"]["name"], change)

    # --- jobsets ---------------------------------------------------------------------------------

    def _jobsets(self) -> None:
        for collection in self._store.collections("jobsets"):
            for jobset in self._store.list(collection):
                if not jobset["metadata"].get("deletionTimestamp") and not ended(jobset):
                    self._jobset(collection, jobset)

    def _jobset(self, collection: str, jobset: Object) -> None:
        name, namespace = jobset["metadata"]["name"], jobset["metadata"]["namespace"]
        jobs_at = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        run = str((jobset.get("status") or {}).get("restarts", 0))
        mine = [j for j in self._store.list(jobs_at) if owned(j, jobset)]
        old = [j for j in mine if j["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] != run]
        for job in old:
            delete(self._store, jobs_at, job)
        restarting = condition("RestartingJobSet", "RestartingJobSet", "", str(bool(old)))
        if run != "0":  # facts 1.36: new in its versions after 0.12
            self._store.update(collection, name, lambda found: set_condition(found["status"], restarting))
        if old:
            return
        suspend = bool(jobset["spec"].get("suspend"))
        known = {j["metadata"]["name"] for j in mine}
        for each in jobset["spec"]["replicatedJobs"]:
            child = f"{name}-{each['name']}-0"
            if child not in known:
                self._store.create(jobs_at, child_job(jobset, each, child, run, suspend))
            else:
                self._store.update(jobs_at, child, lambda job: job["spec"].update(suspend=suspend))
        failed = [j for j in mine if any(c["type"] == "Failed" for c in j["status"].get("conditions") or [])]
        done = [j for j in mine if any(c["type"] == "Complete" for c in j["status"].get("conditions") or [])]
        policy = jobset["spec"].get("failurePolicy") or {}

        def change(found: Object) -> None:
            status = found.setdefault("status", {})
            if failed and int(run) < policy.get("maxRestarts", 0):
                status["restarts"] = status["restartsCountTowardsMax"] = int(run) + 1
            elif failed:
                message = f"jobset failed (first failed job: {failed[0]['metadata']['name']})"
                set_condition(status, condition("Failed", "FailedJobs", message))
                status["terminalState"] = "Failed"
            elif len(done) == len(jobset["spec"]["replicatedJobs"]):
                set_condition(
                    status, condition("Completed", "AllJobsCompleted", "jobset completed successfully")
                )
                status["terminalState"] = "Completed"
            elif suspend or any(c["type"] == "Suspended" for c in status.get("conditions") or []):
                reason = "SuspendedJobs" if suspend else "ResumeJobs"
                set_condition(status, condition("Suspended", reason, "", str(suspend)))

        self._store.update(collection, name, change)
        if failed and int(run) >= policy.get("maxRestarts", 0):
            for job in mine:
                if not ended(job):
                    delete(self._store, jobs_at, job)

    # --- what belongs to nothing -----------------------------------------------------------------

    def _collect(self) -> None:
        everything = [(c, each) for c in self._store.collections() for each in self._store.list(c)]
        alive = {each["metadata"]["uid"] for _, each in everything}
        leaving = {e["metadata"]["uid"] for _, e in everything if e["metadata"].get("deletionTimestamp")}
        waited_for: set[str] = set()
        for collection, each in everything:
            owners = [owner["uid"] for owner in each["metadata"].get("ownerReferences") or []]
            if owners and all(uid not in alive for uid in owners):
                free(self._store, collection, each)
            if owners and all(uid not in alive or uid in leaving for uid in owners):
                delete(self._store, collection, each)
                waited_for.update(owners)
        for collection, each in everything:
            metadata = each["metadata"]
            if (
                "foregroundDeletion" in (metadata.get("finalizers") or [])
                and metadata["uid"] not in waited_for
            ):
                self._store.remove(collection, metadata["name"])


def free(store: Store, collection: str, thing: Object) -> None:
    """Removes the finalizer of a pod."""
    if TRACKED in (thing["metadata"].get("finalizers") or []):
        store.update(collection, thing["metadata"]["name"], lambda p: p["metadata"].update(finalizers=[]))


def expired(job: Object) -> tuple[str, str, str] | None:
    """Returns the verdict on a job whose deadline has come (facts 18); its pods that run are deleted."""
    limit, started = job["spec"].get("activeDeadlineSeconds"), job["status"].get("startTime")
    if limit is None or started is None or clock() - seconds_of(started) < limit - 1:
        return None
    return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"


def set_condition(status: Object, wanted: Object) -> None:
    conditions = status.setdefault("conditions", [])
    same = [c for c in conditions if c["type"] == wanted["type"]]
    if same and same[0]["status"] == wanted["status"]:
        return
    for each in same:
        conditions.remove(each)
    conditions.append(wanted)


def delete(
    store: Store, collection: str, thing: Object, policy: str = "Background", grace: int | None = None
) -> None:
    """Deletes an object as the API does: pods and what waits for its dependents go later."""
    metadata = thing["metadata"]
    if collection.endswith("/pods"):
        seconds = thing["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace

        def leave(found: Object) -> None:
            if grace is not None or not found["metadata"].get("deletionTimestamp"):
                found["metadata"].update({"deletionTimestamp": now(), "deletionGracePeriodSeconds": seconds})

        store.update(collection, metadata["name"], leave)
    elif policy == "Foreground":
        waits = {"deletionTimestamp": now(), "finalizers": ["foregroundDeletion"]}
        store.update(collection, metadata["name"], lambda found: found["metadata"].update(waits))
    else:
        store.remove(collection, metadata["name"])
