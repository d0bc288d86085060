"""The run options of slurm: its own, and those of sbatch by their names."""

from __future__ import annotations

import json
import re

import pytest

from torchx.errors import UsageError
from torchx.schedulers.slurm.options import SBATCH, run_options, sbatch_options
from torchx.schedulers.slurm.scheduler import create_scheduler
from torchx.specs import AppDef, Resource, Role


def script(cfg: dict[str, object], **changes: object) -> list[str]:
    role = Role("r", "img", entrypoint="true", resource=Resource(2, 1, 1000), **changes)  # type: ignore[arg-type]
    info = create_scheduler("s").submit_dryrun(AppDef("a", [role]), cfg)  # type: ignore[arg-type]
    return [line.removeprefix("#SBATCH --") for line in repr(info).splitlines() if line.startswith("#SBATCH")]


def test_options_of_the_contract_go_by_both_spellings() -> None:
    given = "account=a,partition=p,time=10,comment=c,constraint=x,mail_user=u,mail-type=END,qos=q,job_dir=/j"
    cfg = run_options().cfg_from_str(given, strict=True)
    assert cfg["mail-user"] == "u"
    lines = script(dict(cfg))
    for line in (
        "account=a",
        "partition=p",
        "time=10",
        "constraint=x",
        "mail-user=u",
        "mail-type=END",
        "qos=q",
    ):
        assert line in lines
    assert any(line.startswith('comment="c torchx:') for line in lines)


def test_any_option_of_sbatch_goes_by_its_name() -> None:
    opts = run_options()
    cfg = opts.cfg_from_str(
        "gres=gpu:a100:2,exclusive=true,nodelist=node[1-3],mem_per_gpu=4G,hold=false", strict=True
    )
    lines = script(dict(opts.resolve(cfg)))
    assert {"gres=gpu:a100:2", "exclusive", "nodelist=node[1-3]", "mem-per-gpu=4G"} <= set(lines)
    assert not any(line.startswith(("gpus", "mem-per-cpu")) for line in lines), "they take the place of ours"


def test_flags_are_true_or_false() -> None:
    assert "exclusive" in script({"exclusive": True})
    assert "hold" not in script({"hold": False})
    assert "nice=5" in script({"nice": 5})
    json = run_options().cfg_from_json_repr('{"exclusive": true, "partition": "p"}', strict=True)
    assert (json["exclusive"], json["partition"]) == (True, "p")


@pytest.mark.parametrize(
    ("cfg", "said"),
    [
        ({"partion": "x"}, "partion"),
        ({"array": "1-3"}, "an application is one job"),
        ({"ntasks": "3"}, "is not supported"),
        ({"clusters": "other"}, "torchx queries one cluster"),
        ({"sbatch": ["--clusters=other"]}, "clusters"),
        ({"exclusive": ["a"]}, "must be a string"),
        ({"comment": "a\nb"}, "line break"),
        ({"gpu_option": "gpu"}, "gpus-per-task"),
        ({"sbatch": ["--exclusiv"]}, "not an sbatch option"),
        ({"sbatch": ["--No-such"]}, "not an sbatch option"),
        ({"exclusve": "1"}, "did you mean `exclusive`"),
        ({"arr": "1-3"}, "unknown run option `arr`"),
        ({"sbatch": ["--clus=a"]}, "not an sbatch option"),
        ({"grace_perod": "3"}, "did you mean `grace_period`"),
        ({"job-dirs": "/x"}, "did you mean `job_dir`"),
        ({"requeue": "expedited"}, "takes bool"),
        ({"sbatch": ["--output=x"]}, "output"),
    ],
)
def test_what_cannot_be_is_refused(cfg: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        script(cfg)


NEW = (
    "segment=2",
    "stepmgr",
    "ntasks-per-gpu=2",
    "consolidate-segments",
    "mem-update",
    "resources=a",
    "oom-kill-step=1",
    "spread-segments",
    "container-type=oci",
    "requeue=expedite",
)


@pytest.mark.parametrize("option", NEW)
def test_options_of_new_releases(option: str) -> None:
    opts = run_options()
    name, _, value = option.partition("=")
    by_text = opts.cfg_from_str(f"{name}={value or 'true'}", strict=True)
    by_json = opts.cfg_from_json_repr(json.dumps({name.replace("-", "_"): value or True}), strict=True)
    for cfg in (by_text, by_json, {"sbatch": [f"--{option}"]}):
        resolved = opts.resolve(cfg)
        info = create_scheduler("s").submit_dryrun(
            AppDef("a", [Role("r", "img", entrypoint="true")]), resolved
        )
        header = str(info.request.script).partition("\n\n")[0].splitlines()
        assert f"#SBATCH --{option}" in header
        assert ("#SBATCH --no-requeue" in header) is (name != "requeue")
        assert f"--{name}" not in str(info.request.script).partition("\n\n")[2], "not for srun"
        assert not info.notes


def test_option_that_torchx_does_not_know_is_passed_on() -> None:
    opts = run_options()
    for cfg in (opts.cfg_from_str("a-new-one=3", strict=True), {"a-new-one": 3}, {"sbatch": ["a-new-one=3"]}):
        role = Role("r", "img", entrypoint="true", metadata={"slurm": {"another": "x"}})
        info = create_scheduler("s").submit_dryrun(AppDef("a", [role]), opts.resolve(cfg))
        assert {"#SBATCH --a-new-one=3", "#SBATCH --another=x"} <= set(info.request.script.splitlines())
        assert info.notes == ["passed to sbatch, but not known to torchx: a-new-one, another"]


@pytest.mark.parametrize(
    ("option", "kept", "dropped"),
    [
        ({"mem-bind": "local"}, {"mem-per-cpu=500M", "gpus-per-task=1"}, set()),
        ({"gres-flags": "enforce-binding"}, {"mem-per-cpu=500M", "gpus-per-task=1"}, set()),
        ({"gpu-bind": "none"}, {"gpus-per-task=1"}, set()),
        ({"gres": "lustre:1"}, {"gres=lustre:1", "gpus-per-task=1"}, set()),
        ({"gres": "lustre:1", "gpu_option": "gres"}, {"gres=gpu:1,lustre:1"}, set()),
        ({"gres": "gpu:h100:1"}, {"gres=gpu:h100:1"}, {"gpus-per-task=1"}),
        ({"gres": "shard:1"}, {"gres=shard:1"}, {"gpus-per-task=1"}),
        ({"tres-per-task": "gres/gpu:2"}, {"cpus-per-task=2"}, {"gpus-per-task=1"}),
        ({"ntasks-per-gpu": 2}, set(), {"gpus-per-task=1"}),
        ({"cpus-per-gpu": 4}, {"gpus-per-task=1", "mem-per-cpu=250M"}, {"cpus-per-task=2"}),
        ({"tres-per-task": "cpu:4"}, {"mem-per-cpu=250M"}, {"cpus-per-task=2"}),
        ({"tres-per-task": "cpu=4,gres/gpu=1"}, {"mem-per-cpu=250M"}, {"cpus-per-task=2", "gpus-per-task=1"}),
        ({"cpus-per-task": 8}, {"cpus-per-task=8", "mem-per-cpu=125M"}, {"cpus-per-task=2"}),
        ({"ntasks-per-node": 4}, {"ntasks-per-node=3"}, {"ntasks-per-node=4"}),
        ({"ntasks-per-node": 2}, {"ntasks-per-node=2"}, set()),
        ({"overcommit": True}, {"mem=3000M"}, {"cpus-per-task=2"}),
        ({"overcommit": True, "nodes": 2}, {"mem=2000M"}, {"cpus-per-task=2"}),
        ({"overcommit": True, "ntasks-per-node": 1}, {"mem=1000M"}, {"cpus-per-task=2"}),
        ({"overcommit": True, "mem": "0", "cpus-per-task": 3}, {"mem=0"}, {"cpus-per-task=3"}),
    ],
)
def test_requests_of_the_role_beside_options(
    option: dict[str, object], kept: set[str], dropped: set[str]
) -> None:
    lines = set(script(option, num_replicas=3))
    assert kept <= lines
    assert not dropped & lines


@pytest.mark.parametrize(
    ("option", "cpus"),
    [
        ({"overcommit": True}, "2"),
        ({"overcommit": True, "cpus-per-task": 3}, "3"),
        ({"cpus-per-gpu": 4}, None),
        ({"tres-per-task": "cpu:4"}, None),
    ],
)
def test_cpus_of_the_step(option: dict[str, object], cpus: str | None) -> None:
    role = Role("r", "img", entrypoint="true", resource=Resource(2, 1, 1000))
    info = create_scheduler("s").submit_dryrun(AppDef("a", [role]), option)  # type: ignore[arg-type]
    step = str(info.request.script).partition("\n\n")[2]
    assert re.findall(r"--cpus-per-task=(\d+)", step) == ([cpus] if cpus else [])


def test_memory_of_nodes_of_its_own() -> None:
    assert "mem-per-cpu=500M" in script({})
    lines = script({"exclusive": True})
    assert "mem=0" in lines
    assert not any(line.startswith("mem-per-cpu") for line in lines)
    assert "mem-per-cpu=500M" in script({"exclusive": "user"})
    assert "mem=4G" in script({"exclusive": True, "mem": "4G"})


def test_lines_from_a_configuration() -> None:
    opts = run_options()
    value = opts.get("sbatch")
    assert value is not None
    lines = script({"sbatch": value.cast_to_type("--exclusive;#SBATCH --reservation=r;switches=2")})
    assert {"exclusive", "reservation=r", "switches=2"} <= set(lines)
    assert sbatch_options({"sbatch": ["--qos=a"], "qos": "b"}) == {"qos": "b"}, "what has a name is stronger"


def test_gpus_as_the_cluster_wants_them() -> None:
    assert "gpus-per-task=1" in script({})
    assert {"gpus-per-node=1", "nodes=3", "ntasks-per-node=1"} <= set(
        script({"gpu_option": "gpus-per-node"}, num_replicas=3)
    )
    assert "gres=gpu:1" in script({"gpu_option": "gres"})


def test_metadata_of_a_role() -> None:
    assert "constraint=a100" in script({}, metadata={"slurm": {"constraint": "a100"}})
    with pytest.raises(UsageError, match="constrain"):
        script({}, metadata={"slurm": {"constrain": "a100"}})


def test_no_option_is_both_ours_and_of_sbatch() -> None:
    assert {"job_dir", "requeue", "fail_fast", "containers"}.isdisjoint(SBATCH)


@pytest.mark.parametrize(
    ("text", "kind"), [("true", "pyxis"), ("false", None), ("pyxis", "pyxis"), ("apptainer", "apptainer")]
)
def test_the_kinds_of_containers(text: str, kind: str | None) -> None:
    opts = run_options()
    assert opts.resolve(opts.cfg_from_str(f"containers={text}"))["containers"] == kind
    if text in ("true", "false"):
        assert opts.resolve({"containers": text == "true"})["containers"] == kind
    with pytest.raises(UsageError, match="containers"):
        script({"containers": "docker"})
