"""The one node of the fake cluster: it runs each pod as a process of this machine, and keeps its log."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from typing import Any

from fakecluster.environment import command_of, environment_of, expanded
from fakecluster.probes import Prober
from fakecluster.store import Object, Refused, Store, clock, condition, now, seconds_of
from fakecluster.volumes import Volumes

LAG = 0.05
"""Seconds by which the phase of a pod is behind the state of its container; about one on a real cluster."""
CPUS = 64
NODES, NAME = "/api/v1/nodes", "node-1"
MOUNT_FAILED = (
    'MountVolume.SetUp failed for volume "kube-api-access-x" : failed to fetch token: serviceaccounts '
    '"default" is forbidden: node requested token bound to a pod scheduled on a different node'
)
PAST_DEADLINE = "Pod was active on the node longer than the specified deadline"


class Log:
    """The lines of one container as they came, each with its time."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, bytes]] = []
        self.closed = False
        self.changed = threading.Condition()

    def add(self, line: bytes) -> None:
        with self.changed:
            ns = time.time_ns()
            at = datetime.fromtimestamp(ns // 10**9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
            self.lines.append((f"{at}.{ns % 10**9:09d}Z", line))
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()


class Node:
    """Starts pods, ends those that are deleted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.stop = threading.Event()
        self._pods: set[str] = set()
        self._due: set[str] = set()
        self.lost = threading.Event()
        self.creation = 0.0
        self.mounts = threading.Event()  # while it is cleared, no volume can be mounted
        self.mounts.set()
        self._creating: set[str] = set()
        self._threads: list[threading.Thread] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, Log] = {}
        node = {"metadata": {"name": NAME}, "status": {"conditions": [condition("Ready", "KubeletReady")]}}
        store.create(NODES, node)
        self._thread = threading.Thread(target=self._run, name="node", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.stop.set()
        self._thread.join(timeout=10)
        for process in list(self.processes.values()):
            end(process, signal.SIGKILL)
        for thread in self._threads:
            thread.join(timeout=10)

    def _run(self) -> None:
        seen = -1
        while not self.stop.is_set():
            with self._store.changed:
                if self._store.version == seen:
                    self._store.changed.wait(0.1)
                seen = self._store.version
            for collection in () if self.lost.is_set() else self._store.collections("pods"):
                for pod in self._store.list(collection):
                    self._look(collection, pod)

    def _look(self, collection: str, pod: Object) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp"):
            process = self.processes.get(uid)
            if process is None or process.poll() is not None:
                over = pod["status"]["phase"] in ("Succeeded", "Failed")
                if process is None or (over and not pod["metadata"].get("finalizers")):
                    self._store.remove(collection, name)
            elif uid in self._pods:
                self._pods.discard(uid)  # the kubelet fetches it once
                grace = pod["metadata"]["deletionGracePeriodSeconds"]
                self._thread_for(self._end, pod, process, float(grace))
        elif uid in self._creating:
            return  # facts 1.36: it starts its container all the same, and ends it then
        elif uid in self._pods and deadline(pod) and pod["status"]["phase"] in ("Pending", "Running"):
            self._pods.discard(uid)
            self._due.add(uid)
            if uid not in self.processes:  # facts 16o: it has never run
                never = {"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": now()}
                self._thread_for(self._finish, collection, name, never)
                return
            self._ready(collection, name, "False", "PodFailed")
            grace = float(pod["spec"].get("terminationGracePeriodSeconds", 30))
            self._thread_for(self._end, pod, self.processes[uid], grace)
        elif uid not in self._pods and uid not in self.processes and pod["status"]["phase"] == "Pending":
            self._pods.add(uid)
            self._creating.add(uid)
            self._thread_for(self._life, collection, pod)

    def _thread_for(self, what: Any, *args: Any) -> None:
        thread = threading.Thread(target=what, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _end(self, pod: Object, process: subprocess.Popen[bytes], grace: float) -> None:
        if grace:
            grace = max(grace - self._run_hook(pod, process, grace), 0.0)
            end(process, signal.SIGTERM)
            try:
                process.wait(grace)
                return
            except subprocess.TimeoutExpired:
                pass
        end(process, signal.SIGKILL)

    def _run_hook(self, pod: Object, process: subprocess.Popen[bytes], grace: float) -> float:
        """Runs the hook of a container before its end, as recorded in 18d; returns the seconds that it took.

        A hook ends with the program, since both are in one container. The processes of a pod are not in a
        namespace of their own here: process 0, above all of them, is the program.
        """
        stop = (pod["spec"]["containers"][0].get("lifecycle") or {}).get("preStop")
        if stop is None:
            return 0.0
        begin = time.monotonic()
        words = [str(process.pid) if word == "0" else word for word in stop["exec"]["command"]]
        with subprocess.Popen(words, start_new_session=True) as hook:
            while hook.poll() is None and process.poll() is None and time.monotonic() - begin < grace:
                if self.stop.wait(0.05):
                    break
            end(hook, signal.SIGKILL)
        return time.monotonic() - begin

    # --- one pod ---------------------------------------------------------------------------------

    def _life(self, collection: str, pod: Object) -> None:
        with suppress(Refused):  # it was deleted before it began
            volumes = Volumes(self._store, collection, pod)
            try:
                self._lead(collection, pod, volumes)
            finally:
                self._creating.discard(pod["metadata"]["uid"])
                volumes.close()

    def _lead(self, collection: str, pod: Object, volumes: Volumes) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        container = pod["spec"]["containers"][0]
        refused = unschedulable(container)
        if refused:
            reported = {**condition("PodScheduled", "Unschedulable", refused, "False"), "lastProbeTime": None}
            self._store.update(collection, name, lambda p: p["status"].update(conditions=[reported]))
            return
        self._store.update(collection, name, lambda p: p["spec"].update(nodeName=NAME))
        self._store.update(collection, name, lambda p: p["status"].update(startTime=now()))
        self._state(collection, name, {"waiting": {"reason": "ContainerCreating"}})
        self._mount(collection, pod)
        if "nosuch" in container["image"]:
            image = container["image"]
            reported = (
                f'Back-off pulling image "{image}": failed to pull and unpack image "{image}": not found'
            )
            self._state(collection, name, {"waiting": {"reason": "ImagePullBackOff", "message": reported}})
            return
        failed = volumes.prepare(pod)
        if failed:
            reported = {"name": "workspace", "state": {"terminated": failed}}
            self._store.update(
                collection, name, lambda p: p["status"].update(initContainerStatuses=[reported])
            )
            self._store.update(collection, name, lambda p: p["status"].update(phase="Failed"))
            return
        log = self.logs[uid] = Log()
        secrets = {
            each["metadata"]["name"]: each
            for each in self._store.list(collection[: -len("pods")] + "secrets")
        }
        environment = environment_of(pod, container, secrets)
        words = [
            volumes.found(container, expanded(word, environment))
            for word in [*container.get("command", []), *container.get("args", [])]
        ]
        prober = Prober(self._store, collection, name, container.get("readinessProbe") or {})
        if "readinessProbe" in container:
            prober.report(False)
        self.stop.wait(self.creation)
        started = now()
        try:
            process = subprocess.Popen(
                words,
                env={"PATH": os.environ["PATH"], **environment},
                cwd=volumes.cwd(container),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            log.close()
            reported = (
                f'failed to create task: runc create failed: exec: "{words[0]}": {error.strerror}: unknown'
            )
            never = {"exitCode": 128, "reason": "StartError", "message": reported}
            never |= {"startedAt": "1970-01-01T00:00:00Z", "finishedAt": now()}
            self._finish(collection, name, never)
            return
        self.processes[uid] = process
        self._creating.discard(uid)
        with process:
            try:
                self._state(collection, name, {"running": {"startedAt": started}}, phase="Running")
            except Refused:  # it was deleted meanwhile
                end(process, signal.SIGKILL)
            if self.stop.is_set():
                end(process, signal.SIGKILL)
            if "readinessProbe" in container:
                check = [expanded(word, environment) for word in command_of(container["readinessProbe"])]
                env = {"PATH": os.environ["PATH"], **environment}
                ended = partial(self._has_ended, process)
                self._thread_for(prober.run, ended, env, check, volumes.cwd(container))
            assert process.stdout is not None
            for line in process.stdout:
                log.add(line)
        code = process.returncode
        end(process, signal.SIGKILL)  # what it has left behind goes with the container
        log.close()
        code = 128 - code if code < 0 else code
        reported = b"".join(line for _, line in log.lines[-20:]).decode("utf-8", "replace") if code else ""
        reason = "Completed" if code == 0 else "Error"
        over = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now()}
        self._finish(collection, name, {**over, **({"message": reported} if reported else {})})

    def _mount(self, collection: str, pod: Object) -> None:
        """Waits for the volume of the service account (facts 1.36: it fails for seconds under load)."""
        if self.mounts.is_set():
            return
        name = pod["metadata"]["name"]
        event = {
            "metadata": {"generateName": f"{name}."},
            "involvedObject": {"kind": "Pod", "name": name},
            "type": "Warning",
            "reason": "FailedMount",
            "message": MOUNT_FAILED,
            "lastTimestamp": now(),
        }
        self._store.create(f"{collection[: -len('pods')]}events", event)
        while not (self.mounts.wait(0.05) or self.stop.is_set()):
            pass

    def _has_ended(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        return self.stop.wait(seconds) or process.poll() is not None

    def _finish(self, collection: str, name: str, terminated: Object) -> None:
        while self.lost.is_set() and not self.stop.wait(0.02):
            continue  # a node that is lost reports nothing
        self._state(collection, name, {"terminated": terminated})
        self.stop.wait(LAG)
        due = self._store.get(collection, name)["metadata"]["uid"] in self._due
        found: Object = {"phase": "Failed" if terminated["exitCode"] or due else "Succeeded"}
        if due:  # facts 16j, 16n: whatever it ended with
            found |= {"reason": "DeadlineExceeded", "message": PAST_DEADLINE}
        self._store.update(collection, name, lambda pod: pod["status"].update(found))

    def _ready(self, collection: str, name: str, status: str, reason: str = "") -> None:
        reported = condition("Ready", reason, status=status)

        def change(pod: Object) -> None:
            others = [c for c in pod["status"].get("conditions") or [] if c["type"] != "Ready"]
            pod["status"]["conditions"] = [*others, reported]

        with suppress(Refused):
            self._store.update(collection, name, change)

    def lose(self) -> None:
        """Has the node fall silent, as recorded in 14b: its pods run on, and nothing of them is reported."""
        self.lost.set()
        self._report("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        for collection in self._store.collections("pods"):
            for pod in self._store.list(collection):
                if pod["status"]["phase"] == "Running":
                    self._ready(collection, pod["metadata"]["name"], "False")

    def find(self) -> None:
        """Has a lost node come back."""
        self.lost.clear()
        self._report("True", "KubeletReady", "kubelet is posting ready status")
        for collection in self._store.collections("pods"):
            for pod in self._store.list(collection):
                if pod["status"]["phase"] == "Running":
                    self._ready(collection, pod["metadata"]["name"], "True")
        with self._store.changed:
            self._store.version += 1  # it looks at everything once more
            self._store.changed.notify_all()

    def _report(self, status: str, reason: str, message: str) -> None:
        reported = condition("Ready", reason, message, status)
        self._store.update(NODES, NAME, lambda node: node["status"].update(conditions=[reported]))

    def _state(self, collection: str, name: str, state: Object, phase: str = "") -> None:
        def change(pod: Object) -> None:
            status = {"name": "main", "state": state, "lastState": {}, "restartCount": 0}
            probed = "readinessProbe" in pod["spec"]["containers"][0]
            pod["status"]["containerStatuses"] = [{**status, "ready": "running" in state and not probed}]
            if phase:
                pod["status"]["phase"] = phase

        self._store.update(collection, name, change)


def deadline(pod: Object) -> bool:
    """Returns True if the deadline of a pod has come; one of a second, as torchx sets it, comes at once."""
    limit = int(pod["spec"].get("activeDeadlineSeconds") or 10**6)
    if limit <= 1:
        return True
    started = pod["status"].get("startTime")
    return started is not None and clock() - seconds_of(started) >= limit


def end(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def unschedulable(container: Object) -> str:
    """Returns why no node can take a pod, in the words of the recorded cluster."""
    requested = (
        (container.get("resources") or {}).get("requests")
        or (container.get("resources") or {}).get("limits")
        or {}
    )
    cpu = str(requested.get("cpu", "0"))
    wanted = float(cpu[:-1]) / 1000 if cpu.endswith("m") else float(cpu)
    if wanted > CPUS:
        more = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        return f"0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, {more}"
    return ""
