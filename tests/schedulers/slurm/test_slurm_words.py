"""Texts as a shell and as sbatch read them, at their edges."""

from __future__ import annotations

import subprocess

import pytest

from torchx.schedulers.shared.batch.quoting import APP_ID, IMG_ROOT, REPLICA_ID, quote
from torchx.schedulers.slurm.directives import directive

ODD = "a 'b' \"c\" $HOME `id` \\ # ;"


def read_by_sh(text: str, **variables: str) -> str:
    """The arguments that a shell makes of a text, a line each."""
    script = f'for each in {text}; do printf "%s\\n" "$each"; done'
    done = subprocess.run(["sh", "-c", script], env=variables, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(
    ("mark", "variable"),
    [(APP_ID, "torchx_app"), (REPLICA_ID, "torchx_replica"), (IMG_ROOT, "torchx_root")],
)
def test_mark_is_variable_of_script_wherever_it_stands(mark: str, variable: str) -> None:
    value = {variable: "5 * $HOME"}
    for text in (mark, f"{mark}{ODD}", f"{ODD}{mark}", f"{ODD}{mark}{mark}{ODD}", f"x{mark}y{mark}"):
        assert read_by_sh(quote(text), **value) == text.replace(mark, "5 * $HOME") + "\n"


def test_several_marks_in_one_text() -> None:
    text = f"{APP_ID}/{ODD}/{REPLICA_ID}"
    assert read_by_sh(quote(text), torchx_app="1", torchx_replica="2") == f"1/{ODD}/2\n"


def test_a_plain_text_is_left_as_it_is() -> None:
    assert quote("plain") == "plain"
    assert quote("") == "''"
    assert quote(f"a{APP_ID}") == 'a"$torchx_app"'


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (True, "#SBATCH --name"),
        (False, "#SBATCH --name=False"),
        (1, "#SBATCH --name=1"),
        ("", '#SBATCH --name=""'),
        ("a-Z_9./:,=@%+[]&|*~", "#SBATCH --name=a-Z_9./:,=@%+[]&|*~"),
        ("a b", '#SBATCH --name="a b"'),
        ("$x", '#SBATCH --name="$x"'),
        ("x#", '#SBATCH --name="x#"'),
        ("a\\b", '#SBATCH --name="a\\\\b"'),
        ('\\"', '#SBATCH --name="\\\\\\""'),
    ],
)
def test_a_directive(value: object, line: str) -> None:
    assert directive("name", value) == line
