"""``utils.*``: the programs that the small components start; they are really run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import torchx.specs as specs
from torchx.components import utils
from torchx.specs import macros


def run(app: specs.AppDef, cwd: Path | None = None) -> str:
    """Starts the program of the only role as a scheduler would, and returns its output."""
    role = macros.Values(img_root="", app_id="app-x1", replica_id="0", rank0_env="RANK0").apply(app.roles[0])
    program = sys.executable if role.entrypoint == "python" else role.entrypoint
    done = subprocess.run(
        [program, *role.args],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**role.env, "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_echo_prints_its_message() -> None:
    assert run(utils.echo()) == "hello world\n"
    assert run(utils.echo("it's $HOME")) == "it's $HOME\n"
    assert utils.echo(num_replicas=3).roles[0].num_replicas == 3


def test_touch_makes_a_file(tmp_path: Path) -> None:
    run(utils.touch("a b"), cwd=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a b"]


@pytest.mark.parametrize(
    ("args", "output"),
    [
        (["echo a; echo b | tr b c"], "a\nc\n"),
        (["A=1; echo $A"], "1\n"),
        (["echo", "a;", "$A", "|", "it's"], "a; $A | it's\n"),
        (["echo ${app_id}"], "app-x1\n"),
        (["echo", "${app_id}"], "app-x1\n"),
    ],
)
def test_sh_takes_a_command_line_or_words(args: list[str], output: str) -> None:
    assert run(utils.sh(*args)) == output


def test_sh_hands_words_to_another_entrypoint_as_they_are() -> None:
    assert run(utils.sh("-c", "print('a b')", entrypoint=sys.executable)) == "a b\n"


def test_sh_carries_what_it_is_given() -> None:
    (role,) = utils.sh(
        "true",
        num_replicas=2,
        cpu=2,
        gpu=1,
        memMB=7,
        env={"A": "1"},
        max_retries=3,
        mounts=["type=bind", "src=/a", "dst=/b"],
    ).roles
    assert (role.num_replicas, role.max_retries) == (2, 3)
    assert role.env == {"LOGLEVEL": "WARNING", "A": "1"}
    assert role.resource == specs.Resource(cpu=2, gpu=1, memMB=7)
    assert role.mounts == [specs.BindMount(src_path="/a", dst_path="/b", read_only=False)]
    assert utils.sh("true", h="cpu.medium").roles[0].resource == specs.resource(h="cpu.medium")


def test_python_runs_a_module_a_text_or_a_script(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text("import sys; print(sys.argv[1:])")
    assert run(utils.python("a", "b c", script="prog.py"), cwd=tmp_path) == "['a', 'b c']\n"
    assert run(utils.python("a", m="prog"), cwd=tmp_path) == "['a']\n"
    assert run(utils.python(c="print(1)"), cwd=tmp_path) == "1\n"
    assert utils.python(c="print(1)").name == "python"


@pytest.mark.parametrize("options", [{}, {"m": "a", "c": "b"}, {"m": "a", "script": "b"}])
def test_python_takes_exactly_one_program(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="one of -m MODULE, -c TEXT and --script PATH"):
        utils.python(**options)  # type: ignore[arg-type]


def test_binary_runs_a_program() -> None:
    assert run(utils.binary("a", "b", entrypoint="echo")) == "a b\n"


def test_copy_copies_a_file(tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    (tmp_path / "a").write_bytes(data)
    run(utils.copy(str(tmp_path / "a"), f"file://{tmp_path}/new/b"))
    assert (tmp_path / "new" / "b").read_bytes() == data


def test_booth_writes_its_result(tmp_path: Path) -> None:
    assert json.loads(run(utils.booth(1, 3, trial_idx=4, tracker_base=str(tmp_path / "t")))) == {
        "booth_eval": 0.0
    }
    assert json.loads((tmp_path / "t" / "4").read_text()) == {"booth_eval": 0.0}
    run(utils.booth(1, 2, tracker_base=str(tmp_path / "t")))
    assert json.loads((tmp_path / "t" / "0").read_text()) == {"booth_eval": 5.0}


HYDRA = """
role:
  _target_: torchx.specs.Role
  name: trainer
  image: img
  entrypoint: python
  args: [train.py]
  num_replicas: 1
app:
  _target_: torchx.specs.AppDef
  name: job
  roles:
    - ${role}
"""


def test_hydra_describes_an_application(tmp_path: Path) -> None:
    pytest.importorskip("hydra", reason="no hydra: .venv/bin/pip install hydra-core")
    (tmp_path / "job.yaml").write_text(HYDRA)
    app = utils.hydra("role.num_replicas=3", "app.name=other", config_name="job", config_dir=str(tmp_path))
    assert app.name == "other"
    assert app.roles[0].num_replicas == 3
    assert app.roles[0].args == ["train.py"]
    (tmp_path / "bad.yaml").write_text("a: 1")
    with pytest.raises(ValueError, match="no key `app`"):
        utils.hydra(config_name="bad", config_dir=str(tmp_path))
    with pytest.raises(ValueError, match="no folder"):
        utils.hydra(config_name="bad", config_dir=str(tmp_path / "none"))


def test_hydra_knows_macros(tmp_path: Path) -> None:
    pytest.importorskip("hydra", reason="no hydra: .venv/bin/pip install hydra-core")
    text = HYDRA.replace(
        "args: [train.py]", 'args: ["${torchx.app_id:}/${torchx.replica_id:}", "${torchx.img_root:}"]'
    )
    (tmp_path / "job.yaml").write_text(text.replace("name: trainer", 'name: "${torchx.rank0_env:}"'))
    role = utils.hydra(config_name="job", config_dir=str(tmp_path)).roles[0]
    assert role.args == ["${app_id}/${replica_id}", "${img_root}"]
    assert role.name == "${rank0_env}"
