"""Notebooks: the cell magic, and how applications are shown, in a real Jupyter kernel."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from project.sources import ROOT

from torchx.notebook import get_workspace, status_html, workspacefile

CELLS = [
    f"import sys; sys.path.insert(0, {str(ROOT)!r})",
    "%load_ext torchx.notebook",
    "%%workspacefile pkg/train.py\nimport os\nprint('trained on <two> GPUs in', os.getcwd())\n",
    "%%workspacefile ../out.py\nx = 1\n",
    """
from torchx.notebook import app, get_workspace
from torchx.runner import get_runner
from torchx.components import utils
runner = get_runner()
job = utils.python(script="pkg/train.py", name="train")
job.roles[0].entrypoint = sys.executable
handle = runner.run(job, "local_cwd", workspace=get_workspace())
shown = app(handle)
shown.wait(timeout=60)
""",
    "shown",
    "print(repr(shown)); shown.log(follow=True)",
    "shown.status()",
    "app('@last').handle == handle",
]


def run_cells(folder: Path) -> list[list[Any]]:
    """Returns what each cell has put out, by a kernel of this Python."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    client = NotebookClient(notebook, timeout=90, allow_errors=True, resources={"metadata": {"path": folder}})
    client.execute()
    return [cell["outputs"] for cell in notebook["cells"]]


@pytest.mark.filterwarnings("ignore")  # those of Jupyter's own packages
def test_a_notebook_from_its_cells_to_a_job_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = [name for name in ("nbclient", "ipykernel") if importlib.util.find_spec(name) is None]
    if lacking:
        pytest.skip(f"needs {', '.join(lacking)}: pip install 'torchx-cli[dev]'")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    outputs = run_cells(tmp_path)
    assert outputs[2][0]["text"] == "wrote pkg/train.py, 2 lines\n"
    assert "%%workspacefile takes a path within the workspace" in str(outputs[3])
    page = outputs[5][0]["data"]["text/html"]
    assert "SUCCEEDED" in page and "python/0" in page and "local_cwd://torchx/train-" in page
    assert "trained on &lt;two&gt; GPUs" in page, "what a job prints is no HTML"
    text = outputs[6][0]["text"]
    assert "SUCCEEDED\n" in text and "python/0 trained on <two> GPUs" in text
    assert not text.rstrip().endswith(f"in {tmp_path}"), "it ran in the workspace"
    assert "<table>" in outputs[7][0]["data"]["text/html"]
    assert outputs[8][0]["data"]["text/plain"] == "True"


def test_the_workspace_is_a_folder_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    import fsspec

    assert get_workspace() == "memory://torchx-workspace/"
    workspacefile("a/b.txt", "1\n2\n")
    assert capsys.readouterr().out == "wrote a/b.txt, 2 lines\n"
    assert fsspec.filesystem("memory").cat_file("/torchx-workspace/a/b.txt") == b"1\n2\n"
    fsspec.filesystem("memory").rm("/torchx-workspace", recursive=True)


def test_a_failure_is_shown_with_its_reason() -> None:
    from torchx.specs.status import AppState, AppStatus, FirstFailure

    failure = FirstFailure("trainer", 1, 1, signal="SIGKILL")
    page = status_html(AppStatus(AppState.FAILED, first_failure=failure))
    assert "trainer/1 failed first: SIGKILL" in page
