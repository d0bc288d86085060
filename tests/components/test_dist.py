"""``dist.*``: the command line of torchrun that each way of asking gives, and what is refused."""

from __future__ import annotations

import inspect
import shlex

import pytest

import torchx.specs as specs
from torchx.components import dist
from torchx.specs import macros


def words(app: specs.AppDef) -> list[str]:
    """Returns the words that the shell of the only role is given, quotes resolved."""
    (role,) = app.roles
    assert role.entrypoint == "bash"
    assert role.args[0] == "-c"
    assert len(role.args) == 2
    line = shlex.split(role.args[1])
    return line[line.index("torchrun") :]


def option(app: specs.AppDef, name: str) -> str:
    line = words(app)
    return line[line.index(name) + 1]


def test_what_stands_on_the_command_line() -> None:
    app = dist.torchrun("--epochs", "3", script="jobs/train.py", j="1x4")
    assert words(app) == shlex.split(
        "torchrun --rdzv_backend c10d --rdzv_endpoint localhost:0 --rdzv_id '${app_id}' --nnodes 1 "
        "--nproc_per_node 4 --tee 3 --role '' jobs/train.py --epochs 3"
    )
    assert app.name == app.roles[0].name == "train"


def test_several_nodes_meet_at_replica_0() -> None:
    app = dist.torchrun(script="train.py", j="2x4")
    (role,) = app.roles
    assert (role.num_replicas, role.min_replicas) == (2, 2)
    assert role.port_map == {"c10d": 29500}
    assert option(app, "--rdzv_endpoint") == "$${${rank0_env}:=localhost}:$${TORCHX_PORT_C10D:=29500}"
    filled = macros.Values(img_root="", app_id="train-x1", replica_id="1", rank0_env="RANK0").apply(role)
    assert "--rdzv_endpoint ${RANK0:=localhost}:${TORCHX_PORT_C10D:=29500} " in filled.args[1]
    assert "--rdzv_id 'train-x1' " in filled.args[1]


def test_port_that_is_requested_is_taken_as_it_is() -> None:
    app = dist.torchrun(script="train.py", j="2x4", rdzv_port=4711)
    assert option(app, "--rdzv_endpoint") == "$${${rank0_env}:=localhost}:4711"
    assert app.roles[0].port_map == {"c10d": 4711}


def test_an_elastic_job_has_a_least_number_of_nodes() -> None:
    app = dist.torchrun(script="train.py", j="1:4x2")
    assert (app.roles[0].num_replicas, app.roles[0].min_replicas) == (4, 1)
    assert option(app, "--nnodes") == "1:4"


def test_numa_binding_is_passed_on() -> None:
    for component in (dist.torchrun, dist.ddp):
        assert option(component(script="train.py", numa_binding="node"), "--numa-binding") == "node"
        assert "--numa-binding" not in words(component(script="train.py"))


def test_static_rendezvous_gets_its_rank() -> None:
    app = dist.torchrun(script="train.py", j="2x1", rdzv_backend="static", rdzv_conf="timeout=60")
    assert option(app, "--node_rank") == macros.replica_id
    assert option(app, "--rdzv_conf") == "timeout=60"
    assert "--node_rank" not in words(dist.torchrun(script="train.py", j="2x1"))


@pytest.mark.parametrize(
    ("h", "j", "nodes", "processes"),
    [
        (None, "4", 1, 4),
        (None, "3x4", 3, 4),
        ("gpu.medium", "3", 1, 3),
        ("gpu.medium", "3x8", 3, 8),
        ("cpu.small", "2x2", 2, 2),
    ],
)
def test_a_number_alone_counts_processes(h: str | None, j: str, nodes: int, processes: int) -> None:
    app = dist.torchrun(script="train.py", h=h, j=j)
    assert app.roles[0].num_replicas == nodes
    assert option(app, "--nproc_per_node") == str(processes)


def test_spmd_counts_nodes_of_gpu_hosts() -> None:
    app = dist.spmd("x", script="train.py", h="gpu.large", j="2")
    assert app.roles[0].num_replicas == 2
    assert option(app, "--nproc_per_node") == "4"
    assert app.roles[0].resource.gpu == 4
    assert words(app)[-2:] == ["train.py", "x"]


def test_ddp_is_torchrun() -> None:
    assert inspect.signature(dist.ddp) == inspect.signature(dist.torchrun)
    options = {
        "m": "jobs.train",
        "j": "2x2",
        "env": {"A": "1"},
        "name": "exp/run",
        "max_retries": 3,
        "tee": 1,
    }
    assert dist.ddp("a", **options) == dist.torchrun("a", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["two words", "it's", "$HOME", "`id`", "a;b", "", "*"])
def test_what_user_writes_reaches_script_as_it_is(word: str) -> None:
    assert words(dist.torchrun(word, script="my train.py"))[-2:] == ["my train.py", word]


def test_the_environment() -> None:
    env = dist.torchrun(script="train.py", name="exp/run", env={"A": "1", "LOGLEVEL": "INFO"}).roles[0].env
    assert env == {
        "A": "1",
        "LOGLEVEL": "INFO",
        "TORCHX_TRACKING_EXPERIMENT_NAME": "exp",
        "TORCHX_TRACKING_RUN_NAME": "run",
    }
    debug = dist.torchrun(script="train.py", debug=True, env={"CUDA_LAUNCH_BLOCKING": "0"}).roles[0].env
    assert debug["LOGLEVEL"] == "WARNING"
    assert debug["TORCH_DISTRIBUTED_DEBUG"] == "DETAIL"
    assert debug["CUDA_LAUNCH_BLOCKING"] == "0", "what the user sets wins"


def test_what_else_the_role_carries() -> None:
    app = dist.torchrun(
        m="jobs.train",
        image="mine:1",
        cpu=3,
        gpu=1,
        memMB=5,
        max_retries=2,
        metadata={"team": "a"},
        mounts=["type=bind", "src=/a", "dst=/b", "readonly"],
    )
    (role,) = app.roles
    assert words(app)[-2:] == ["-m", "jobs.train"]
    assert app.metadata == {"team": "a"}
    assert (role.image, role.max_retries) == ("mine:1", 2)
    assert role.resource == specs.Resource(cpu=3, gpu=1, memMB=5)
    assert role.mounts == [specs.BindMount(src_path="/a", dst_path="/b", read_only=True)]
    assert "torchrun" in role.metadata["requires"]


def test_the_warning_of_torchrun_is_not_requested() -> None:
    """It concerns OMP_NUM_THREADS; the value of the caller stays, and the default is the one of torchrun."""
    role = macros.Values("", "", "", "RANK0").apply(dist.torchrun(script="train.py", j="1x2").roles[0])
    assert role.args[1].startswith('OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" torchrun ')
    assert dist.torchrun(script="train.py", j="1x1").roles[0].args[1].startswith("torchrun ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "--script train.py, or -m"),
        ({"script": "a.py", "m": "a"}, "not both"),
        ({"script": "a.py", "j": "x"}, 'such as 2x4.*got "x"'),
        ({"script": "a.py", "j": "0x2"}, 'got "0x2"'),
        ({"script": "a.py", "j": "2x0"}, 'got "2x0"'),
        ({"script": "a.py", "j": "3:2x1"}, 'got "3:2x1"'),
    ],
)
def test_what_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dist.torchrun(**options)  # type: ignore[arg-type]


def test_a_script_without_its_flag_is_recognised() -> None:
    with pytest.raises(ValueError, match=r"--script train\.py"):
        dist.torchrun("train.py", "--epochs", "3")
