"""Resources by name: built-in, from entry points, from plugins, from the user's module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchx.errors import UsageError
from torchx.plugins import registry
from torchx.specs import NULL_RESOURCE, Resource, get_named_resources, named_resources, resource
from torchx.specs import named_resources_aws as aws
from torchx.specs import named_resources_generic as generic

EFA, NEURON = "vpc.amazonaws.com/efa", "aws.amazon.com/neurondevice"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages; what it holds is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    registry.cache_clear()
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]
    registry.cache_clear()


@pytest.mark.parametrize(
    ("name", "cpu", "gpu", "mem_mb"),
    [
        ("gpu.small", 8, 1, 32768),
        ("gpu.medium", 16, 2, 65536),
        ("gpu.large", 32, 4, 131072),
        ("gpu.xlarge", 64, 8, 262144),
        ("cpu.nano", 1, 0, 512),
        ("cpu.micro", 1, 0, 1024),
        ("cpu.small", 1, 0, 2048),
        ("cpu.medium", 2, 0, 4096),
        ("cpu.large", 2, 0, 8192),
        ("cpu.xlarge", 8, 0, 32768),
    ],
)
def test_generic_sizes(name: str, cpu: int, gpu: int, mem_mb: int) -> None:
    made = resource(h=name)
    assert (made.cpu, made.gpu, made.memMB) == (cpu, gpu, mem_mb)
    assert (made.get_resource_name(), made.is_fractional()) == (name, False)


@pytest.mark.parametrize(
    ("name", "cpu", "gpu", "gib", "devices"),
    [
        ("aws_t3.medium", 2, 0, 4, {}),
        ("aws_m5.2xlarge", 8, 0, 32, {}),
        ("aws_p3.2xlarge", 8, 1, 61, {}),
        ("aws_p3.8xlarge", 32, 4, 244, {}),
        ("aws_p4d.24xlarge", 96, 8, 1152, {EFA: 4}),
        ("aws_p5.48xlarge", 192, 8, 2048, {EFA: 32}),
        ("aws_p6-b200.48xlarge", 192, 8, 2048, {EFA: 8}),
        ("aws_g5.48xlarge", 192, 8, 768, {EFA: 1}),
        ("aws_trn1.32xlarge", 128, 0, 512, {EFA: 8, NEURON: 16}),
        ("aws_inf2.xlarge", 4, 0, 16, {NEURON: 1}),
    ],
)
def test_machines_of_aws(name: str, cpu: int, gpu: int, gib: int, devices: dict[str, int]) -> None:
    made = named_resources[name]
    assert (made.cpu, made.gpu, made.devices) == (cpu, gpu, devices)
    assert gib * 1024 * 0.95 < made.memMB < gib * 1024 * 0.97
    assert made.capabilities == {"node.kubernetes.io/instance-type": name.removeprefix("aws_")}


def test_the_documented_families_of_aws() -> None:
    families = {name.removeprefix("aws_").split(".")[0] for name in aws.NAMED_RESOURCES}
    names = "t3 m5 m5d c5 p3 p3dn p4d p4de p5 p5e p5en p6-b200 p6-b300 p6e-gb200 g4dn g5 g6e trn1 inf2"
    assert families == set(names.split())
    assert len(aws.NAMED_RESOURCES) == 61


def test_machines_are_functions_too() -> None:
    assert aws.aws_p6_b200_48xlarge() == aws.NAMED_RESOURCES["aws_p6-b200.48xlarge"]()
    with pytest.raises(AttributeError):
        aws.aws_p1_small()


def test_each_is_one_s_own() -> None:
    resource(h="aws_p4d.24xlarge").devices[EFA] = 0
    assert resource(h="aws_p4d.24xlarge").devices[EFA] == 4
    assert generic.NAMED_RESOURCES["gpu.small"]().tags == {}


def test_it_reads_like_a_mapping() -> None:
    names = list(named_resources)
    assert names[0] == "gpu.small"
    assert len(names) == len(named_resources) == len(named_resources.keys()) == len(named_resources.items())
    assert all(name in named_resources for name in names)
    assert dict(named_resources.items())["gpu.small"] == named_resources["gpu.small"]
    assert named_resources["gpu.small"] in named_resources.values()
    assert named_resources.get("nope") is None
    assert named_resources.get("gpu.small") == named_resources["gpu.small"]
    assert (named_resources["NULL"], named_resources["MISSING"]) == (NULL_RESOURCE, NULL_RESOURCE)


def test_a_resource_from_numbers() -> None:
    assert resource() == resource(cpu=0, gpu=0, memMB=0) == resource(h="") == Resource(2, 0, 1024)
    assert resource(cpu=4, gpu=1, memMB=8192) == Resource(4, 1, 8192)
    assert resource(1, 1, 1, "cpu.medium") == resource(h="cpu.medium")


def test_the_case_does_not_matter() -> None:
    assert resource(h="AWS_P4D.24xlarge") == resource(h="aws_p4d.24xlarge")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gpu.smal", "did you mean `gpu.small`?"),
        ("aws_p4d", "did you mean `aws_p4d.24xlarge`?"),
        ("zzz", "there are gpu.small, gpu.medium.*and 61 of AWS"),
    ],
)
def test_an_unknown_name_is_reported_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=rf"(?s)unknown named resource `{name}`\n.*{hint}") as caught:
        resource(h=name)
    assert isinstance(caught.value, KeyError)


def test_old_name_of_look_up_says_new_one() -> None:
    with pytest.warns(DeprecationWarning, match=r"resource\(h="):
        assert get_named_resources("gpu.small") == resource(h="gpu.small")


def test_resources_of_the_user_s_own_module(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "my_machines.py").write_text(
        "from torchx.specs import Resource\n"
        "BIG = Resource(9, 9, 9)\n"
        "NAMED_RESOURCES = {'big': lambda: BIG, 'cpu.nano': BIG, 'wrong': dict}\n"
    )
    monkeypatch.setenv("TORCHX_CUSTOM_NAMED_RESOURCES", "my_machines")
    assert resource(h="big").get_resource_name() == "big"
    assert resource(h="cpu.nano").cpu == 9
    assert resource(h="big").get_resource_name() == "big", "the module's own resource is not written to"
    assert "wrong" in named_resources
    assert "wrong" not in dict(named_resources.items())
    with pytest.raises(UsageError, match="`wrong` has type dict, not Resource"):
        resource(h="wrong")


@pytest.mark.parametrize("text", ["raise ValueError('boom')", "x = 1", None])
def test_a_module_without_resources(site: Path, monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    if text is not None:
        (site / "my_machines.py").write_text(text)
    monkeypatch.setenv("TORCHX_CUSTOM_NAMED_RESOURCES", "my_machines")
    with pytest.raises(
        UsageError, match=r"(?s)`my_machines` cannot be loaded.*TORCHX_CUSTOM_NAMED_RESOURCES"
    ):
        resource(h="gpu.small")


def test_resources_of_entry_points_and_plugins(site: Path) -> None:
    info = site / "machines-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: machines\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[torchx.named_resources]\ntiny = machines:tiny\ngpu.small = machines:tiny\nbroken = nowhere:x\n"
    )
    (site / "machines.py").write_text(
        "from torchx.specs import Resource\ndef tiny(): return Resource(1, 2, 3)\n"
    )
    plugins = site / "torchx_plugins" / "named_resources"
    plugins.mkdir(parents=True)
    (plugins / "ours.py").write_text(
        "from torchx.plugins import register, powers_of_two_gpus\n"
        "from torchx.specs import Resource\n"
        "@register.named_resource(aliases=['b'], fractionals=powers_of_two_gpus)\n"
        "def big():\n    return Resource(64, 8, 1024)\n"
    )
    (plugins / "wrong.py").write_text("raise ValueError('boom')")
    assert resource(h="tiny").get_resource_name() == "tiny"
    assert resource(h="gpu.small").cpu == 1, "an entry point wins over what is built in"
    assert resource(h="b").get_resource_name() == "big"
    half = resource(h="big_4")
    assert (half.cpu, half.gpu, half.memMB) == (32, 4, 512)
    assert (half.get_resource_name(), half.is_fractional()) == ("big_4", True)
    assert "broken" not in dict(named_resources.items())
    with pytest.raises(UsageError, match=r"(?s)`broken` cannot be loaded: ModuleNotFoundError.*nowhere:x"):
        resource(h="broken")
    with pytest.raises(
        UsageError, match=r"broken plugins: torchx_plugins.named_resources.wrong \(ValueError: boom\)"
    ):
        resource(h="bigger")
