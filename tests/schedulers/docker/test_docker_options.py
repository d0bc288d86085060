"""Further options of containers: the forms they may have, and what is refused; needs no engine."""

from __future__ import annotations

from typing import Any

import pytest
from containers import scheduler, sh

from torchx.errors import UsageError
from torchx.schedulers.docker.container_body import to_body
from torchx.specs.app import AppDef


def body(**options: Any) -> dict[str, Any]:
    """What the engine is sent for the options of a role."""
    role = sh("true", metadata={"local_docker": options})
    (container,) = scheduler().submit_dryrun(AppDef("job", [role]), {}).request.containers
    return to_body(container.image, container.command, container.kwargs)


@pytest.mark.parametrize(
    ("options", "key", "told"),
    [
        ({"volumes": {"/src": {"bind": "/dst", "mode": "ro"}}}, "Binds", ["/src:/dst:ro"]),
        ({"volumes": {"/src": {"bind": "/dst"}}}, "Binds", ["/src:/dst:rw"]),
        ({"volumes": ["/src:/dst"]}, "Binds", ["/src:/dst"]),
        ({"privileged": False}, "Privileged", False),
        ({"extra_hosts": ["a:1.2.3.4"]}, "ExtraHosts", ["a:1.2.3.4"]),
        ({"extra_hosts": {"a": "1.2.3.4"}}, "ExtraHosts", ["a:1.2.3.4"]),
        ({"tmpfs": ["/run:size=1m", "/x"]}, "Tmpfs", {"/run": "size=1m", "/x": ""}),
        ({"sysctls": {"net.core.somaxconn": 1024}}, "Sysctls", {"net.core.somaxconn": "1024"}),
        ({"ports": {80: 8080}}, "PortBindings", {"80/tcp": [{"HostPort": "8080"}]}),
        ({"ulimits": [{"name": "nofile", "soft": 9}]}, "Ulimits", [{"Name": "nofile", "Soft": 9}]),
        ({"group_add": ["video", 44]}, "GroupAdd", ["video", "44"]),
        ({"dns": None}, "Dns", None),
    ],
)
def test_options_have_the_forms_of_the_docker_package(options: dict[str, Any], key: str, told: Any) -> None:
    assert body(**options)["HostConfig"].get(key) == told


def test_a_check_of_health_has_small_letters_too() -> None:
    wanted = {"test": ["CMD", "true"], "start_period": 10**9}
    assert body(healthcheck=wanted)["Healthcheck"] == {"Test": ["CMD", "true"], "StartPeriod": 10**9}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"volumes": {"/src": {"dst": "/dst"}}}, "e.g. {'/src': {'bind': '/dst', 'mode': 'ro'}}"),
        ({"volumes": "/src:/dst"}, "a list of texts"),
        ({"privileged": "false"}, "true or false"),
        ({"dns": "8.8.8.8"}, "a list of texts"),
        ({"cap_drop": "ALL"}, "a list of texts"),
        ({"group_add": "user"}, "a list of texts"),
        ({"devices": "/dev/null"}, "a list of texts"),
        ({"ports": [80]}, "e.g. {'80/tcp': 8080}"),
        ({"sysctls": ["a=b"]}, "values by name"),
        ({"pids_limit": "x"}, "a whole number"),
        ({"pids_limit": 1.5}, "a whole number"),
        ({"mem_limit": "much"}, "a number of bytes or e.g. 256m"),
        ({"ulimits": [{"nofile": 9}]}, "values for Name, Soft, Hard"),
        ({"mounts": {"Type": "tmpfs"}}, "a list of values by name, as in the engine's interface"),
        ({"working_dir": ["/tmp"]}, "a text"),
    ],
)
def test_a_value_that_an_option_does_not_take_is_refused_at_the_dry_run(
    options: dict[str, Any], expected: str
) -> None:
    ((name, value),) = options.items()
    with pytest.raises(UsageError) as caught:
        body(**options)
    assert caught.value.message == (
        f"the container option `{name}` in the metadata of role `w` is {value!r}, expected {expected}"
    )
