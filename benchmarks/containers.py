"""Duration of jobs in containers, compared with the `docker` command and the peer on the same engine."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from measure import NOT_MEASURED, Place, Row, compared, limited, main, paired, until

from torchx.errors import TorchxError
from torchx.schedulers.docker.cancel import remove
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.labels import APP_ID
from torchx.schedulers.docker.request import NETWORK

IMAGE = os.environ.get("TORCHX_BENCH_IMAGE") or "torchx-test:latest"
"""Any image with a shell, `echo` and `seq`."""

RUN = ("run", "-s", "local_docker")
GRACE = 3
"""The grace period of replicas that ignore TERM, in seconds."""
DEAF = "trap '' TERM; echo deaf; while true; do sleep 1; done"

LOOP = """
i=0
while [ $i -lt "$1" ]; do docker run --label "$2" --network "$4" "$3" echo "hello world" & i=$((i + 1)); done
wait
"""
LOOP_IS = "`docker run` in a shell loop, in parallel"
NAMED_IS = "the same loop, with a network that has names"
LABEL = "torchx-benchmark"


def missing() -> str:
    """Returns the missing requirements of these benchmarks and how to install them, or an empty string."""
    if shutil.which("docker") is None:
        return "no `docker` command to compare with (Debian: apt install docker-cli or docker.io)"
    try:
        Engine().call("GET", f"/images/{IMAGE}/json")
    except EngineError:
        return f"the Docker engine has no image {IMAGE}: .ci/image makes it; TORCHX_BENCH_IMAGE names another"
    except TorchxError as error:
        return f"{error.message}; .ci/docker starts one"
    return ""


def rows(place: Place) -> Iterator[Row]:
    """Measures a job of 32 replicas, its cancellation, a long log, and an unchanged workspace."""
    place = replace(place, engine=True)
    replicas = place.size(32, 2)
    yield from many(place, replicas)
    yield cancelled(place, replicas)
    yield read(place, place.size(1_000_000, 1_000))
    yield workspace(place, place.size(2_000, 20))


def many(place: Place, replicas: int) -> Iterator[Row]:
    """Measures an echo in each container, to the end of the command."""
    words = (*RUN, "utils.echo", "--image", IMAGE, "--num_replicas", str(replicas))

    def loop(network: str) -> float:
        label = f"{LABEL}={secrets.token_hex(8)}"
        words = ["sh", "-c", LOOP, "sh", str(replicas), label, IMAGE, network]
        try:
            return printed(place, words, replicas)
        finally:
            clear(label)

    ours = running(place, place.torchx(*words), replicas)
    times = paired(
        ours,
        lambda: loop("bridge"),
        # the peer builds an image of the working directory in each run; the folder is nearly empty
        running(place, [place.peer, *words], replicas) if place.peer else None,
        rounds=place.size(3, 1),
        peer_rounds=place.size(2, 1),
    )
    what = f"{replicas} replicas of echo"
    yield compared(what, times, LOOP_IS, of_floor=1.2)
    # replicas find each other by name; the engine needs half as long again for such a network
    named = paired(ours, lambda: loop(NETWORK), rounds=place.size(3, 1))
    yield compared(what, named, NAMED_IS, of_floor=1.2)
    if place.peer:
        yield compared(what, times._replace(floor=[]), of_peer=0.5)


def cancelled(place: Place, replicas: int) -> Row:
    """Measures from a cancel to the end of the last replica that ignores TERM, less the grace period."""
    over = []
    words = ("-cfg", f"grace_period={GRACE}", "utils.sh", "--image", IMAGE, "--num_replicas", str(replicas))
    output = place.folder / "output"
    for _ in range(place.size(2, 1)):
        app_id = place.submit(*words, DEAF, scheduler="local_docker")
        handle = f"local_docker://torchx/{app_id}"

        def all_deaf(handle: str = handle) -> bool:
            place.run(place.torchx("log", handle), output)
            return output.read_text().count("deaf") == replicas

        until(all_deaf, "all replicas ignore TERM")
        over.append(place.run(place.torchx("cancel", handle)) - GRACE)
        clear(f"{APP_ID}={app_id}")
    peer = "one after the other, 10 s each" if place.peer else NOT_MEASURED
    return limited(
        f"`torchx cancel` of {replicas} replicas that ignore TERM, beyond the grace time",
        statistics.median(over), "s", 2, peer=peer,
    )  # fmt: skip


def read(place: Place, lines: int) -> Row:
    """Measures reading a whole log into a file."""
    app_id = place.submit("utils.sh", "--image", IMAGE, "--", "seq", str(lines), scheduler="local_docker")
    handle = f"local_docker://torchx/{app_id}"
    try:
        place.run(place.torchx("wait", handle))
        (container,) = Engine().call("GET", "/containers/json", _of(f"{APP_ID}={app_id}"))
        times = paired(
            lambda: printed(place, place.torchx("log", handle), lines, "\n"),
            lambda: printed(place, ["docker", "logs", container["Id"]], lines, "\n"),
            rounds=place.size(5, 1),
        )
    finally:
        clear(f"{APP_ID}={app_id}")
    return compared(
        f"`torchx log HANDLE`, {lines:,} lines", times, "`docker logs`", of_floor=1.5,
        no_peer="minutes: not measured" if place.peer else NOT_MEASURED,
    )  # fmt: skip


def workspace(place: Place, files: int) -> Row:
    """Measures a run with an unchanged workspace, and one without a workspace."""
    tree = place.folder / "tree"
    for number in range(files):
        path = tree / f"folder{number % 40}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"number = {number}\n" * 50)
    echo = ("utils.echo", "--image", IMAGE)
    with_tree = (*RUN, "--workspace", f"file://{tree}", *echo)
    times = paired(  # the first round, which is not counted, builds the image
        running(place, place.torchx(*with_tree), 1, images=False),
        running(place, place.torchx(*RUN, *echo), 1),
        running(place, [place.peer, *with_tree], 1) if place.peer else None,
        rounds=place.size(7, 1),
        peer_rounds=place.size(2, 1),
    )
    running(place, place.torchx(*with_tree), 1)()  # and its image goes
    return compared(
        f"a run with an unchanged workspace of {files:,} files", times, "without a workspace", of_floor=1.3
    )


def running(place: Place, command: Sequence[str], lines: int, *, images: bool = True) -> Callable[[], float]:
    """Returns an action that runs a job to its end; its containers are removed after the measurement."""

    def action() -> float:
        output = place.folder / "output"
        try:
            return printed(place, command, lines)
        finally:
            for app_id in re.findall(r"local_docker://[^/\s]*/([\w.-]+)", output.read_text())[:1]:
                clear(f"{APP_ID}={app_id}", images=images)

    return action


def printed(place: Place, command: Sequence[str], lines: int, what: str = "hello world") -> float:
    """Runs a command, and checks the number of lines it printed."""
    output = place.folder / "output"
    took = place.run(command, output)
    came = output.read_text().count(what)
    if came != lines:
        raise SystemExit(f"{' '.join(command)[:80]} printed {came} lines, not {lines}")
    return took


def clear(label: str, *, images: bool = True) -> None:
    """Removes the containers with a label, and the images that were built for them."""
    engine = Engine()
    found = engine.call("GET", "/containers/json", _of(label))
    remove(engine, [container["Id"] for container in found])
    of_all = engine.call("GET", f"/images/{IMAGE}/json")["Id"]
    for image in {container["ImageID"] for container in found} - {of_all} if images else ():
        with suppress(EngineError):  # of something that still runs
            engine.call("DELETE", f"/images/{image}", {"force": 1})


def _of(label: str) -> dict[str, object]:
    return {"all": 1, "filters": {"label": [label]}}


if __name__ == "__main__":
    main(__doc__, rows, missing)
