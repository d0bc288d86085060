"""Values of the environment and arguments stand in the specification of the pods, and nowhere else."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakecluster import FakeCluster
from hidden import check_no_view_of_a_sweep_shows_secrets, check_no_view_shows_secrets
from kubejobs import IMAGE, role, submit, until
from manifests import KINDS, made
from manifests import role as plain_role
from program import torchx
from support import wait_until

from torchx.errors import StateError
from torchx.schedulers.kubernetes import contexts as places
from torchx.schedulers.kubernetes.api.errors import ClusterError, response_error
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler, create_scheduler
from torchx.scheduling.base import DescribeAppResponse
from torchx.scheduling.logs import LogQuery
from torchx.specs.app import AppDef
from torchx.specs.overlays import JOIN, set_overlay
from torchx.specs.status import AppState
from torchx.specs.workspace import Workspace

CANARY = "canary-4f9d1b7c"
SECRETS = {"MY_TOKEN": CANARY, "PLAIN": f"user:{CANARY}@host", "BOTH": "${app_id}-" + CANARY}


def elsewhere(data: Any, path: str = "") -> Iterator[str]:
    """The places of the canary outside the environment and the arguments of a container."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key not in ("env", "args") or "containers" not in path.lower():
                yield from elsewhere(value, f"{path}.{key}")
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from elsewhere(value, f"{path}[{number}]")
    elif CANARY in str(data):
        yield path


@pytest.mark.parametrize("kind", KINDS)
def test_manifests_repeat_no_value(kind: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    first = plain_role("r", args=["--key", CANARY, "${replica_id}"], env=dict(SECRETS), num_replicas=2)
    first.workspace = Workspace({f"ftp://me:{CANARY}@host/src": "", str(tmp_path): "x"})
    app = AppDef("a", [first, plain_role("s", args=[f"--key={CANARY}"])])
    sidecar = {"name": "log", "image": "i", "env": [{"name": "A", "value": CANARY}], "args": [CANARY]}
    set_overlay(app.roles[0], "kubernetes", "V1Pod", {"spec": {JOIN("containers", on="name"): [sidecar]}})
    request = made(app, kind)
    assert CANARY in json.dumps(request.manifests), "the pods have it"
    assert list(elsewhere(request.manifests)) == []


def test_no_object_and_no_output_shows_a_value(
    cluster: FakeCluster, scheduler: KubernetesScheduler, tmp_path: Path
) -> None:
    replica = role("sleep 600; : " + CANARY, env=dict(SECRETS))
    app_id = submit(scheduler, replica)
    for collection in cluster.store.collections():
        assert list(elsewhere(cluster.store.list(collection))) == [], collection
    (answer,) = scheduler.describe(app_id).roles  # type: ignore[union-attr]
    assert (answer.args, dict(answer.env)) == (replica.args, SECRETS), "describe has all of it"
    handle = f"kubernetes://torchx/{app_id}"
    shown = [torchx("--debug", "describe", handle), torchx("--debug", "list", "-s", "kubernetes")]
    assert [done.returncode for done in shown] == [0, 0]
    assert all(CANARY not in done.stdout + done.stderr for done in shown), "masked as on other engines"
    home = Path(os.environ["TORCHX_HOME"])
    assert [path for path in home.rglob("*") if path.is_file() and CANARY in path.read_text()] == []


def test_the_command_line_is_recorded_without_values(cluster: FakeCluster) -> None:
    done = torchx("run", "-s", "kubernetes", "utils.sh", "--env", f"A={CANARY}", f": {CANARY}")
    described = torchx("describe", done.stdout.strip()).stdout
    assert re.search(r"^submitted by +torchx run utils.sh --env … …$", described, re.MULTILINE), described
    for collection in cluster.store.collections():
        assert list(elsewhere(cluster.store.list(collection))) == [], collection


def test_no_process_is_given_a_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a cluster without a node: those that run pods have their arguments, as they must."""
    with FakeCluster(run=False) as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        scheduler = create_scheduler("torchx")
        seen: list[bytes] = []
        create = cluster.store.create

        def look(*args: Any) -> Any:
            seen.extend(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
            return create(*args)

        monkeypatch.setattr(cluster.store, "create", look)
        # another one: the pods of other tests, which run side by side, have theirs
        submit(scheduler, role("true", env={"MY_TOKEN": "canary-of-processes"}), validate_spec=False)
        scheduler.close()
    assert seen
    assert not any(b"canary-of-processes" in line for line in seen)


@pytest.mark.parametrize(
    "message",
    [
        f'Job.batch "x" is invalid: spec.template.spec.containers[0].args: Invalid value: "{CANARY}": no',
        f"cannot unmarshal, error found in #10 byte of ...|{CANARY}|..., bigger context ...|{CANARY}|...",
        f"admission webhook denied the request: env MY_TOKEN={CANARY} is not allowed",
    ],
)
def test_refusal_that_quotes_value_is_shown_without_it(
    cluster: FakeCluster, scheduler: KubernetesScheduler, message: str
) -> None:
    cluster.fault("POST", "/jobs$", 400, body={"message": message, "reason": "BadRequest"})
    with pytest.raises(ClusterError) as caught:
        submit(scheduler, role("true", env={"MY_TOKEN": CANARY}))
    assert CANARY not in f"{caught.value}{caught.value!r}{caught.value.__dict__}"


def test_what_decoders_quote_is_left_out() -> None:
    body = json.dumps({"message": f"bad quantity, error found in #10 byte of ...|{CANARY}|..."}).encode()
    assert CANARY not in response_error("POST", "/api/v1/namespaces/a/services", 400, body, {}).message


# --- the note of which cluster it was ------------------------------------------------------------


def test_a_note_is_private_whatever_the_umask() -> None:
    before = os.umask(0)
    try:
        places.remember("default:a", {"context": "c", "kubeconfig": "k"})
    finally:
        os.umask(before)
    (note,) = Path(os.environ["TORCHX_HOME"]).rglob("default:a.json")
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    assert stat.S_IMODE(note.parent.stat().st_mode) == 0o700
    assert places.recall("default:a") == {"context": "c", "kubeconfig": str(Path("k").absolute())}


@pytest.mark.parametrize("kind", ["fifo", "link", "nested", "list", "types", "huge"])
def test_a_note_that_is_none_is_not_believed(kind: str, tmp_path: Path) -> None:
    folder = Path(os.environ["TORCHX_HOME"]) / "kubernetes"
    folder.mkdir(parents=True)
    note = folder / "default:a.json"
    other = tmp_path / "other.json"
    other.write_text('{"context": "c"}')
    texts = {
        "nested": "[" * 9000,
        "list": "[]",
        "types": '{"context": 5}',
        "huge": '{"context": "' + "x" * 99_999,
    }
    if kind == "fifo":
        os.mkfifo(note)
    elif kind == "link":
        note.symlink_to(other)
    else:
        note.write_text(texts[kind])
    assert places.recall("default:a") == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_state_home_of_another_user_is_refused(scheduler: KubernetesScheduler) -> None:
    home = Path(os.environ["TORCHX_HOME"])
    home.mkdir()
    os.chown(home, 12345, 12345)
    with pytest.raises(StateError, match="belongs to another user"):
        scheduler.glance("default:a")


# --- applications of other users -----------------------------------------------------------------


def become(monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    """Changes the user of this process, as the engines see it."""
    monkeypatch.setattr("torchx.schedulers.shared.owner.user_name", lambda: user)


def test_another_user_s_application_is_not_changed(
    cluster: FakeCluster, scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(monkeypatch, "alice")
    app_id = submit(scheduler, role("sleep 600", name="a"), role("sleep 600", name="b"))
    assert [row.is_own for row in scheduler.list()] == [True]
    become(monkeypatch, "bob")
    cluster.asked.clear()
    assert [row.is_own for row in scheduler.list()] == [False]
    for method in (scheduler.cancel, scheduler.kill, scheduler.delete):
        with pytest.raises(StateError, match="was submitted by the user alice, and you are bob") as caught:
            method(app_id)
        name = app_id.partition(":")[2]
        assert f"kubectl delete jobs.batch -n default {name}-a {name}-b" in str(caught.value.hint)
    done = torchx("cancel", f"kubernetes://torchx/{app_id}")
    assert done.returncode != 0
    assert "was submitted by the user alice" in done.stderr
    assert scheduler.glance(app_id) is not None
    assert {asked.split()[0] for asked in cluster.asked} == {"GET"}, "nothing was sent that changes anything"
    become(monkeypatch, "alice")
    scheduler.delete(app_id)


def test_waiting_for_foreign_application_changes_nothing(
    cluster: FakeCluster, scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(monkeypatch, "alice")
    server = role("trap 'exit 143' TERM; while true; do sleep 0.05; done", name="server")
    app_id = submit(scheduler, server, role("exit 6", name="client"))

    def failed(answer: DescribeAppResponse) -> bool:
        return any(r.state is AppState.FAILED for each in answer.roles_statuses for r in each.replicas)

    until(scheduler, app_id, failed, "the client has failed")
    become(monkeypatch, "bob")
    cluster.asked.clear()
    scheduler.reconcile(app_id)
    assert scheduler.wait(app_id, timeout=0.5) is False, "the server runs on"
    following = threading.Thread(
        target=lambda: list(scheduler.log_chunks(app_id, LogQuery(follow=True))), daemon=True
    )
    following.start()
    wait_until(lambda: any(asked.endswith("/log") for asked in cluster.asked), "the log is followed")
    assert {asked.split()[0] for asked in cluster.asked} == {"GET"}, "nothing was sent that changes anything"
    become(monkeypatch, "alice")
    assert scheduler.wait(app_id, timeout=120), "the owner's command ends what the failure leaves"
    following.join(30)
    answer = scheduler.glance(app_id)
    assert answer is not None
    assert answer.state is AppState.FAILED


def test_no_view_shows_a_printed_secret(cluster: FakeCluster, tmp_path: Path) -> None:
    check_no_view_shows_secrets(tmp_path, "-s", "kubernetes", image=IMAGE)


def test_no_view_of_a_sweep_shows_a_printed_secret(cluster: FakeCluster, tmp_path: Path) -> None:
    check_no_view_of_a_sweep_shows_secrets(tmp_path, "-s", "kubernetes", image=IMAGE)
