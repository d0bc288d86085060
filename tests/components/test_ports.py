"""Leased ports: no two holders have the same, in one process or in several."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support import wait_until

from torchx.errors import StateError
from torchx.machine.ports import POOL, PortLeases

FIRST = 12_000
"""The first port that these tests use; no other test or job uses any from it up to the pool."""

HOLDER = """
import sys, time
from torchx.machine.ports import PortLeases
leases = PortLeases(["a"], range(int(sys.argv[1]), int(sys.argv[2])))
print(leases.ports["a"], flush=True)
time.sleep(600)
"""


@pytest.fixture
def free() -> Iterator[range]:
    """Three ports in a row that are free, reserved among all tests that use this fixture.

    They are below those that the kernel and other jobs choose, and a socket of their own name reserves them:
    two tests at the same time would otherwise find the same ports.
    """
    for first in range(FIRST, POOL[0] - 2, 3):
        with socket.socket(socket.AF_UNIX) as reserved:
            try:
                reserved.bind(f"\0torchx-tests-ports-{first}")
                with PortLeases("abc", range(first, first + 3)):
                    pass
            except (OSError, StateError):
                continue
            yield range(first, first + 3)
            return
    raise AssertionError("no three free ports")


def test_each_name_has_a_port_of_its_own() -> None:
    with PortLeases(["a", "b", "a"]) as one, PortLeases(["a", "b"]) as other:
        ports = [*one.ports.values(), *other.ports.values()]
        assert len(set(ports)) == 4
        assert all(port in POOL for port in ports)
        assert one.env == {"TORCHX_PORT_A": str(ports[0]), "TORCHX_PORT_B": str(ports[1])}


def test_a_lease_lets_its_holder_listen(free: range) -> None:
    with PortLeases(["a"], free) as leases, socket.create_server(("", leases.ports["a"])) as server:
        assert server.getsockname()[1] == leases.ports["a"]


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1"])
def test_a_port_that_someone_listens_on_is_passed_over(free: range, address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
        family, address = socket.AF_INET, "127.0.0.1"
    with socket.create_server((address, free[1]), family=family), PortLeases("ab", free) as leases:
        assert sorted(leases.ports.values()) == [free[0], free[2]]
        with pytest.raises(StateError, match=f"no port from {free[0]} to {free[2]} is free"):
            PortLeases("c", free)


def test_what_was_leased_before_a_failure_is_given_back(free: range) -> None:
    with pytest.raises(StateError):
        PortLeases("abcd", free)
    with PortLeases("abc", free) as leases:
        assert sorted(leases.ports.values()) == list(free)


def test_another_process_never_gets_it_until_holder_is_dead(free: range) -> None:
    pool = range(free[0], free[0] + 1)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(pool[0]), str(pool[0] + 1)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert int(holder.stdout.readline()) == pool[0]
        with pytest.raises(StateError):
            PortLeases("a", pool)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()

    def lease() -> bool:
        try:
            with PortLeases("a", pool):
                return True
        except StateError:
            return False

    wait_until(lease, "the port of a killed holder is free")


def test_who_inherits_the_descriptors_holds_the_lease_too(free: range) -> None:
    pool = range(free[0], free[0] + 1)
    with PortLeases("a", pool) as leases:
        heir = subprocess.Popen(["sleep", "600"], pass_fds=leases.descriptors)
    try:
        with pytest.raises(StateError):
            PortLeases("a", pool)
    finally:
        heir.kill()
        heir.wait()
    PortLeases("a", pool).close()


SQUATTER = """
import socket, sys, time
held = []
for port in range(int(sys.argv[1]), int(sys.argv[2])):
    held.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    held[-1].bind(f"\\0torchx-port-{port}")
print("held", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(bool(os.geteuid()), reason="needs another user: run the tests as root")
def test_another_user_with_all_names_blocks_no_other(free: range) -> None:
    words = ["setpriv", "--reuid", "65534", "--clear-groups", sys.executable, "-I", "-S", "-c", SQUATTER]
    with subprocess.Popen(
        [*words, str(free[0]), str(free[-1] + 1)], stdout=subprocess.PIPE, text=True
    ) as squatter:
        try:
            assert squatter.stdout is not None
            assert squatter.stdout.readline() == "held\n"
            with PortLeases("ab", free) as one, PortLeases("c", free) as two:
                ports = [*one.ports.values(), *two.ports.values()]
                assert sorted(ports) == list(free), "each is leased once"
                with pytest.raises(StateError):
                    PortLeases("d", free)
                assert len(one.descriptors) == 2
            with (
                socket.create_server(("", free[0])),
                PortLeases("ab", free) as left,
                pytest.raises(StateError),
            ):
                assert sorted(left.ports.values()) == list(free[1:]), "what is listened on is in use"
                PortLeases("c", free)
        finally:
            squatter.kill()


def test_a_lease_under_another_name_is_kept(free: range) -> None:
    """As it is made while another user holds the usual name, who may give that up meanwhile."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(f"\0torchx-port-{free[0]}.0123456789abcdef")
        with PortLeases("ab", free) as leases, pytest.raises(StateError):
            assert free[0] not in leases.ports.values()
            PortLeases("c", free)
