"""What is submitted, on a machine whose sbatch takes few options and has never heard of any memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurms import configure_no_controller

from torchx.errors import StateError, UsageError
from torchx.schedulers.shared.batch.record import Records
from torchx.schedulers.slurm import commands as slurm_client
from torchx.schedulers.slurm.scheduler import create_scheduler
from torchx.specs import AppDef, CfgVal, Resource, Role

LINES = "#SBATCH --gpus-per-nod=1\n#SBATCH --partition=theirs\n#SBATCH --mem-per-cpu=1\n"
SBATCH = """\
#!/bin/sh
test "$1" != --help || exec echo "--job-name --comment --output --cpus-per-task --mem-per-cpu --partition"
cat > "$0.read"
echo "$SBATCH_PARTITION" > "$0.partition"
! sed '/^$/q' "$0.read" | grep -q '^#SBATCH --mem-per-cpu' ||
    { echo 'sbatch: error: Memory specification can not be satisfied' >&2; exit 1; }
echo 7
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the programs of that machine."""
    for name, text in {"sbatch": SBATCH, "sinfo": "#!/bin/sh\necho 1", "srun": "#!/bin/sh"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    configure_no_controller(monkeypatch, tmp_path)
    slurm_client.options_of.cache_clear()
    yield tmp_path
    slurm_client.options_of.cache_clear()


def test_arguments_that_look_like_options_arrive(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "mine")
    role = Role("r", "", entrypoint="echo", args=["--container-image=foo", f"\n{LINES}"])
    role.resource = Resource(1, 0, 100)
    assert create_scheduler("torchx").submit(AppDef("a", [role]), {}) == "7"
    (record,) = Records("slurm").all()
    assert LINES in (record.paths.folder / "role-0.sh").read_text()
    assert LINES not in record.paths.script.read_text()
    assert (programs / "sbatch.partition").read_text() == "mine\n"


def test_job_neither_recorded_nor_cancelled_is_named(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, and a controller that does not answer."""
    (programs / "scancel").write_text("#!/bin/sh\necho 'scancel: error: no answer' >&2; exit 1\n")
    (programs / "scancel").chmod(0o755)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Records, "add", full)
    with pytest.raises(StateError, match=r"job 7 was submitted.*No space left.*no answer") as raised:
        create_scheduler("torchx").submit(AppDef("a", [Role("r", "", entrypoint="true")]), {})
    assert raised.value.hint == "to cancel it: scancel 7"


def test_error_of_sbatch_about_option_is_shown_whole(programs: Path) -> None:
    refusal = "sbatch: unrecognized option '--segment=2'\nTry sbatch --help for more."
    (programs / "sbatch").write_text(f'#!/bin/sh\necho "{refusal}" >&2; exit 1\n')
    with pytest.raises(StateError) as error:
        create_scheduler("torchx").submit(AppDef("a", [Role("r", "", entrypoint="true")]), {"segment": "2"})
    assert error.value.message == (
        "Slurm rejected the job: unrecognized option '--segment=2' Try sbatch --help for more."
    )
    assert not list(Records("slurm").all())


def test_containers_without_the_plugin_are_rejected(programs: Path) -> None:
    image = {"container-image": "foo"}
    with pytest.raises(UsageError, match="has no container plugin"):
        create_scheduler("torchx").submit(AppDef("a", [Role("r", "", entrypoint="true")]), image)


@pytest.mark.parametrize("cfg", [{"job-name": "my own"}, {"sbatch": ["--job-name=my own"]}, {}])
def test_job_is_known_by_name_without_comments(programs: Path, cfg: dict[str, CfgVal]) -> None:
    info = create_scheduler("torchx").submit_dryrun(AppDef("a", [Role("r", "", entrypoint="true")]), cfg)
    create_scheduler("torchx").schedule(info)
    (record,) = Records("slurm").all()
    assert record.is_of("my own" if cfg else info.request.name, "")
    assert not record.is_of("another", "")


@pytest.mark.parametrize(
    ("options", "default", "message"),
    [
        ({"partition": "one"}, "", "the roles need 2 nodes of partition `one`, which has 1"),
        ({"partition": "two"}, "", ""),
        ({"partition": "one,two"}, "", ""),
        ({"partition": "two", "nodes": 2}, "", "the roles need 4 nodes of partition `two`, which has 2"),
        ({"partition": "unknown"}, "", ""),
        ({}, "", "the roles need 2 nodes of partition `first`, which has 1"),
        ({}, "two", ""),
        ({}, "one", "the roles need 2 nodes of partition `one`, which has 1"),
    ],
)
def test_roles_on_partitions_with_too_few_nodes(
    programs: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, CfgVal], default: str, message: str
) -> None:
    if default:
        monkeypatch.setenv("SBATCH_PARTITION", default)
    (programs / "sinfo").write_text("#!/bin/sh\nprintf 'first*|c1\\none|a1\\ntwo|b1\\ntwo|b2\\n'\n")
    roles = [Role(name, "", entrypoint="true", resource=Resource(1, 0, 100)) for name in ("r", "s")]
    scheduler = create_scheduler("torchx")
    assert scheduler.submit(AppDef("a", roles[:1]), {}) == "7"
    if not message:
        assert scheduler.submit(AppDef("a", roles), options) == "7"
        return
    with pytest.raises(UsageError, match=f"^{message}: Slurm starts each role on nodes of its own"):
        scheduler.submit(AppDef("a", roles), options)


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({}, "1,000 replicas on 1 node, but Slurm starts at most 300 on each", "nodes=4"),
        ({"nodes": "3-9"}, "1,000 replicas on 3 nodes, but Slurm starts at most 300 on each", "nodes=4"),
        ({"nodes": "4"}, "", ""),
        ({"ntasks-per-node": "100"}, "", ""),
        ({"nodelist": "node[1-4]"}, "", ""),
    ],
)
def test_more_replicas_than_slurm_starts_on_node_are_rejected(
    programs: Path, options: dict[str, CfgVal], message: str, hint: str
) -> None:
    config = "#!/bin/sh\necho 'MaxTasksPerNode         = 300'\n"
    (programs / "scontrol").write_text(config)
    (programs / "scontrol").chmod(0o755)
    header = "--help || exec echo --overcommit --nodes --nodelist"
    (programs / "sbatch").write_text((programs / "sbatch").read_text().replace("--help || exec echo", header))
    app = AppDef("a", [Role("r", "", entrypoint="true", num_replicas=1000)])
    scheduler = create_scheduler("torchx")
    if not message:
        assert scheduler.submit(app, {"overcommit": True, **options}) == "7"
        return
    with pytest.raises(UsageError) as error:
        scheduler.submit(app, {"overcommit": True, **options})
    assert error.value.message == f"overcommit: {message}"
    assert error.value.hint == f"use more nodes: -cfg {hint}"
    assert not list(Records("slurm").all())
