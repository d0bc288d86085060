"""Fluent definitions of applications: their parts, and rejected ones."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
import shlex

import pytest

from torchx import specs, tsm
from torchx.errors import UsageError
from torchx.specs.app import resolve_overrides


def command(role: specs.Role) -> list[str]:
    """The words of torchrun as the shell has them."""
    filled = specs.macros.Values("", "app-1", "0", "RANK0").apply(resolve_overrides(role))
    assert filled.entrypoint == "bash"
    assert filled.args[0] == "-c"
    return shlex.split(filled.args[1])


def option(role: specs.Role, name: str) -> str | None:
    words = command(role)
    return words[words.index(name) + 1] if name in words else None


def test_words_follow_each_other() -> None:
    box = (
        tsm.Container(image="pytorch/torch:1")
        .require(tsm.Resource(cpu=1, gpu=1, memMB=500))
        .ports(tcp_store=8080, tensorboard=8081)
    )
    trainer = (
        tsm.Role(name="trainer").runs("my_trainer.py", "--arg", "foo", ENV_VAR="FOOBAR").on(box).replicas(4)
    )
    app = tsm.Application("train_app").of(trainer)
    assert isinstance(app, specs.AppDef)
    assert app.roles == [trainer]
    assert trainer == tsm.Role(
        "trainer",
        "my_trainer.py",
        ["--arg", "foo"],
        {"ENV_VAR": "FOOBAR"},
        tsm.Container("pytorch/torch:1", tsm.Resource(1, 1, 500), {"tcp_store": 8080, "tensorboard": 8081}),
        4,
    )
    assert (trainer.image, trainer.resource.memMB, trainer.port_map["tcp_store"]) == (
        "pytorch/torch:1",
        500,
        8080,
    )
    assert tsm.Role("r") == tsm.Role("r", container=tsm.Container())
    assert tsm.Role("r").container.image == "<MISSING>"


def test_later_updates_of_a_container_count_too() -> None:
    box = tsm.Container("img")
    one, two = tsm.Role("a").on(box), tsm.Role("b").on(box)
    needs = tsm.Resource(2, 0, 512)
    box.require(needs).ports(web=80)
    assert one.resource == two.resource == needs
    assert two.port_map == {"web": 80}
    box.resources.cpu = 9
    assert needs.cpu == 2, "the caller's own stays as it is"
    assert specs.NULL_RESOURCE.cpu == -1
    assert tsm.Container().resources == specs.NULL_RESOURCE


def test_newer_fields_of_role_are_there_by_name() -> None:
    role = tsm.Role("r", image="img", metadata={"slurm": {}}, max_retries=2, resource=tsm.Resource(1, 0, 1))
    assert (role.container.image, role.container.resources.cpu, role.metadata) == ("img", 1, {"slurm": {}})
    other = dataclasses.replace(role, env={"A": "1"})
    assert (other.env, other.image, other.max_retries) == ({"A": "1"}, "img", 2)
    with pytest.raises(TypeError, match="nope"):
        tsm.Role("r", nope=1)


def test_role_of_specs_becomes_one_of_session() -> None:
    @dataclasses.dataclass
    class Mine(specs.Role):
        def __post_init__(self) -> None:
            self.own = "not a field"

    plain = Mine("r", "img", entrypoint="x", num_replicas=3, port_map={"web": 80}, min_replicas=2)
    app = tsm.Application.read_back(specs.AppDef("a", [plain], {"team": "blue"}))
    (role,) = app.roles
    assert isinstance(role, tsm.Role)
    for each in dataclasses.fields(specs.Role):
        assert getattr(role, each.name) == getattr(plain, each.name)
    assert (app.metadata, app.is_attached, role.container.port_map) == ({"team": "blue"}, True, {"web": 80})
    assert tsm.Role.of_spec(role) is role


@pytest.mark.parametrize("count", [0, -1, "4", 1.5, True, None])
def test_replicas_are_counted(count: object) -> None:
    with pytest.raises(UsageError, match="takes 1 or more replicas"):
        tsm.Role("r").replicas(count)  # type: ignore[arg-type]


def test_what_cannot_be_is_refused_with_what_to_write() -> None:
    with pytest.raises(UsageError, match="runs on a Container, got 'img'") as error:
        tsm.Role("r").on("img")  # type: ignore[arg-type]
    assert error.value.hint == "write Container(image='img')"
    with pytest.raises(UsageError, match="made of roles, got 'trainer'"):
        tsm.Application("a").of("trainer")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"requires a Resource, got 'gpu\.small'"):
        tsm.Container().require("gpu.small")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="requires a Resource"):
        tsm.Container("img", {"cpu": 1})  # type: ignore[arg-type]


def test_torchrun_gets_the_arguments_of_dist_torchrun() -> None:
    """The two ways to the same start must not drift apart."""
    from torchx.components.dist import torchrun

    role = tsm.ElasticRole("train", nproc_per_node=2).runs("train.py", "--lr", "0.1 $X").replicas(4)
    component = torchrun("--lr", "0.1 $X", script="train.py", j="4x2").roles[0]

    def options(of: specs.Role) -> tuple[dict[str, str], list[str]]:
        quiet, program, *words = command(of)
        assert (quiet, program) == ("OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}", "torchrun")
        script = words.index("train.py")
        found = dict(zip(words[:script:2], words[1:script:2], strict=True))
        assert found.pop("--rdzv_id") in ("app-1", "app-1-train")
        return found, words[script:]

    assert options(role) == options(component)
    resolved = resolve_overrides(role)
    assert resolved.port_map == component.port_map
    assert resolved.metadata == component.metadata
    assert resolved.env["LOGLEVEL"] == component.env["LOGLEVEL"]


def test_the_options_of_torchrun() -> None:
    role = tsm.ElasticRole(
        "trainer", nproc_per_node=8, nnodes="2:4", max_restarts=3, no_python=True, tee=None
    )
    role.runs("train.py", "--script_arg", "foo").replicas(2)
    words = command(role)
    assert [option(role, o) for o in ("--nproc_per_node", "--nnodes", "--max_restarts")] == ["8", "2:4", "3"]
    assert "--no_python" in words
    assert "--tee" not in words
    assert words[-3:] == ["train.py", "--script_arg", "foo"]
    # it is read in the order of the calls
    assert (role.entrypoint, role.args, role.port_map) == ("train.py", ["--script_arg", "foo"], {})
    assert resolve_overrides(role).min_replicas is None
    assert resolve_overrides(role.replicas(3)).min_replicas == 2


def test_where_the_nodes_meet() -> None:
    one = tsm.ElasticRole("t").runs("x.py")
    assert (option(one, "--rdzv_endpoint"), resolve_overrides(one).port_map) == ("localhost:0", {})
    assert "OMP_NUM_THREADS" not in command(one)[0]
    two = tsm.ElasticRole("t").runs("x.py").replicas(2)
    assert option(two, "--rdzv_endpoint") == "${RANK0:=localhost}:${TORCHX_PORT_C10D:=29500}"
    own = tsm.ElasticRole("t", rdzv_endpoint="etcd:2379", rdzv_backend="etcd-v2").runs("x.py").replicas(2)
    assert (option(own, "--rdzv_endpoint"), option(own, "--rdzv_backend")) == ("etcd:2379", "etcd-v2")
    assert resolve_overrides(own).port_map == {}
    alone = tsm.ElasticRole("t", standalone=True, nproc_per_node=2).runs("x.py")
    assert "--standalone" in command(alone)
    assert not [word for word in command(alone) if word.startswith("--rdzv")]


def test_copies_of_an_elastic_role_answer_for_themselves() -> None:
    role = tsm.ElasticRole("t", nproc_per_node=2).runs("one.py").replicas(2)
    for twin in (
        copy.deepcopy(role),
        pickle.loads(pickle.dumps(role)),
        dataclasses.replace(role, env={"A": "1"}),
    ):
        twin.runs("two.py").replicas(3)
        assert command(twin)[-1] == "two.py"
        assert (option(twin, "--nnodes"), option(twin, "--nproc_per_node")) == ("3", "2")
    assert command(role)[-1] == "one.py"
    once = resolve_overrides(role)
    assert resolve_overrides(copy.deepcopy(once)).args == once.args, "worked out once, not twice"


def test_a_lazy_value_of_ones_own_wins() -> None:
    role = tsm.ElasticRole("t", overrides={"image": lambda: "late", "env": lambda: {"B": "2"}}).runs("x.py")
    resolved = resolve_overrides(role)
    assert (resolved.image, resolved.env) == ("late", {"B": "2"})


@pytest.mark.parametrize(
    ("nnodes", "replicas", "message"),
    [
        ("2:4", 5, 'role `t` has 5 replicas, which nnodes="2:4" does not allow'),
        ("2:4", 1, "has 1 replicas, which"),
        (2, 3, 'nnodes="2" does not allow'),
        ("4:2", 3, "nnodes is N or MIN:MAX"),
        ("many", 3, 'such as 4 or 2:4; got "many"'),
        ("0", 1, "nnodes is N or MIN:MAX"),
    ],
)
def test_the_number_of_replicas_is_one_of_nnodes(nnodes: object, replicas: int, message: str) -> None:
    role = tsm.ElasticRole("t", nnodes=nnodes).runs("x.py").replicas(replicas)
    with pytest.raises(UsageError, match=re.escape(message)):
        resolve_overrides(role)


def test_misspelt_option_of_torchrun_is_rejected() -> None:
    with pytest.raises(UsageError, match="no option `nproc_per_nod`") as error:
        tsm.ElasticRole("t", nproc_per_nod=2)
    assert error.value.hint == "did you mean `nproc_per_node`?"
    assert option(tsm.ElasticRole("t", zzz_brand_new="1").runs("x.py"), "--zzz_brand_new") == "1"
    assert option(tsm.ElasticRole("t", nprocs_per_node=2).runs("x.py"), "--nproc_per_node") == "2"
    with pytest.raises(UsageError, match="role `t` has no entrypoint"):
        resolve_overrides(tsm.ElasticRole("t"))
