"""Texts as a shell and as sbatch read them, at their edges."""

from __future__ import annotations

import subprocess

import pytest

from torchx.schedulers.slurm.quoting import APP_ID, IMG_ROOT, REPLICA_ID, directive, heredoc, quote

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
def test_a_mark_is_a_variable_of_the_script_wherever_it_stands(mark: str, variable: str) -> None:
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


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a\n",
        "\n",
        "\n\na\n\n",
        "a\r\nb\r",
        "EMPTY\n\nEMPTY_",
        "CR\rCR_\r\n\n",
        "END\nEND_\n\nEND__",
        ODD,
    ],
)
def test_a_text_comes_out_of_the_script_as_it_was(text: str) -> None:
    lines = heredoc("variable", text)
    assert "" not in lines
    assert not any("\r" in line or "\n" in line for line in lines)
    script = "\n".join([*lines, 'printf %s "$variable"'])
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode() == text + "\n"


def test_the_marks_of_a_text_are_words_that_it_lacks() -> None:
    assert heredoc("x", "a") == ["IFS= read -r -d '' x <<'END'", "a", "END"]
    assert heredoc("x", "END")[-1] == "END_"
    assert heredoc("x", "EMPTY\n\nb")[1:] == ["EMPTY", "EMPTY_", "b", "END", "x=${x//EMPTY_/}"]
    assert heredoc("x", "CR\r") == ["IFS= read -r -d '' x <<'END'", "CRCR_", "END", "x=${x//CR_/$'\\r'}"]
    # empty lines are taken out first: a carriage return can stand for no part of their mark
    assert heredoc("x", "\r\n\n")[-2:] == ["x=${x//EMPTY/}", "x=${x//CR/$'\\r'}"]
