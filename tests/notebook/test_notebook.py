"""Notebooks: the cell magic, and how applications are shown, in a real Jupyter kernel."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from project.sources import ROOT

from torchx.errors import UsageError
from torchx.notebook import app, get_workspace, status_html, workspacefile
from torchx.runner import get_runner
from torchx.scheduling.responses import AppList, ListAppResponse
from torchx.specs.app import AppDef, Role
from torchx.specs.status import AppState

CELLS = [
    f"import sys; sys.path.insert(0, {str(ROOT)!r})",
    "%load_ext torchx.notebook",
    "%%workspacefile pkg/train.py\nimport os\nprint('trained on <two> GPUs in', os.getcwd())\n",
    "%%workspacefile ../out.py\nx = 1\n",
    """
from torchx.errors import UsageError
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
    "app('@last').watch(interval=0.1)",
    """
from torchx.specs import AppDef, Role
slow = app(runner.run(AppDef('slow', [Role('w', '', entrypoint='sleep', args=['1'])]), 'local_cwd'))
slow.watch(interval=0.1)
""",
    "runner.list('local_cwd')",
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
def test_notebook_from_its_cells_to_job_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = [name for name in ("nbclient", "ipykernel") if importlib.util.find_spec(name) is None]
    if lacking:
        pytest.skip(f"needs {', '.join(lacking)}: pip install 'torchx-cli[dev]'")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    outputs = run_cells(tmp_path)
    assert outputs[2][0]["text"] == "wrote pkg/train.py, 2 lines\n"
    (error,) = outputs[3]
    assert error["traceback"] == [
        "UsageError: %%workspacefile takes one path in the workspace, without blanks, got `../out.py`",
        "  %%workspacefile train.py",
    ]
    page = outputs[5][0]["data"]["text/html"]
    assert "SUCCEEDED" in page and "python/0" in page and "local_cwd://torchx/train-" in page
    assert "trained on &lt;two&gt; GPUs" in page, "what a job prints is no HTML"
    text = "".join(part["text"] for part in outputs[6])  # the kernel sends it in parts if it takes long
    assert "SUCCEEDED\n" in text and "python/0 │ trained on <two> GPUs" in text
    assert not text.rstrip().endswith(f"in {tmp_path}"), "it ran in the workspace"
    assert "<table>" in outputs[7][0]["data"]["text/html"]
    assert outputs[8][0]["data"]["text/plain"] == "True"
    (view,) = outputs[9]
    assert "SUCCEEDED" in view["data"]["text/html"] and "trained on &lt;two&gt;" in view["data"]["text/html"]
    (view,) = outputs[10]
    assert "SUCCEEDED" in view["data"]["text/html"], "it was updated in place"
    assert "<td>train</td>" in re.sub(" style=[^>]*", "", outputs[11][0]["data"]["text/html"])


def test_the_workspace_is_a_folder_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    import fsspec

    assert get_workspace() == "memory://torchx-workspace/"
    workspacefile("a/b.txt", "1\n2\n")
    assert capsys.readouterr().out == "wrote a/b.txt, 2 lines\n"
    assert fsspec.filesystem("memory").cat_file("/torchx-workspace/a/b.txt") == b"1\n2\n"
    fsspec.filesystem("memory").rm("/torchx-workspace", recursive=True)


@pytest.mark.parametrize("line", ["train.py --append", "-a train.py", "a b", "", "/a", "--append"])
def test_a_file_of_the_workspace_is_one_path(line: str) -> None:
    with pytest.raises(UsageError, match="takes one path in the workspace"):
        workspacefile(line, "1\n")


def test_a_failure_is_shown_with_its_reason() -> None:
    from torchx.specs.status import AppState, AppStatus, FirstFailure

    failure = FirstFailure("trainer", 1, 1, signal="SIGKILL")
    page = status_html(AppStatus(AppState.FAILED, first_failure=failure))
    assert "trainer/1 failed first: SIGKILL" in page


def test_a_view_elsewhere_prints_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    role = Role("w", image="", entrypoint="echo", args=["hi"])
    with get_runner() as runner:
        handle = runner.run(AppDef("job", [role]), "local_cwd")
        app(handle, runner).watch()
    assert capsys.readouterr().out.splitlines() == ["w/0 │ hi", f"{handle} SUCCEEDED"]


def test_the_last_display_shows_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    displays: list[str] = []
    shown = SimpleNamespace(update=lambda job: displays.append(repr(job)))
    ipython = SimpleNamespace(display=SimpleNamespace(display=lambda job, display_id: shown))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setattr("torchx.notebook._shell", lambda: SimpleNamespace(kernel=True))
    with get_runner() as runner:
        handle = runner.run(AppDef("job", [Role("w", image="", entrypoint="true")]), "local_cwd")
        runner.wait(handle)  # between the first display and the first query
        app(handle, runner).watch()
    assert displays == [f"{handle} SUCCEEDED"]


def test_a_display_of_the_end_has_all_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"until test -e {tmp_path}/go; do sleep 0.05; done; echo done"
    with get_runner() as runner:
        handle = runner.run(
            AppDef("job", [Role("w", image="", entrypoint="sh", args=["-c", script])]), "local_cwd"
        )
        read = runner.log_chunks

        def end_after(*args: Any) -> list[Any]:
            chunks = list(read(*args))
            (tmp_path / "go").touch()
            runner.wait(handle)
            return chunks

        monkeypatch.setattr(runner, "log_chunks", end_after)
        job = app(handle, runner)
        assert "SUCCEEDED" not in job._repr_html_(), "its log was read before its end"
        page = job._repr_html_()
        assert "SUCCEEDED" in page and "done" in page


def test_lines_of_all_replicas_have_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    role = Role("w", image="", entrypoint="printf", args=["a\\nb"], num_replicas=2)
    with get_runner() as runner:
        handle = runner.run(AppDef("job", [role]), "local_cwd")
        runner.wait(handle)
        app(handle, runner).log()
    assert sorted(capsys.readouterr().out.splitlines()) == ["w/0 │ a", "w/0 │ b", "w/1 │ a", "w/1 │ b"]


def test_a_list_is_a_table_whose_text_is_escaped() -> None:
    evil = "<script>\x1b[31m"
    rows = AppList([ListAppResponse(evil, AppState.FAILED, name=evil, msg=evil, exit_code=0)])
    page = rows._repr_html_()
    assert "<script" not in page and "\x1b" not in page
    assert page.count("&lt;script&gt;\\x1b[31m") == 3
    assert '<td style="color:#c62828">FAILED</td>' in page and ">0</td>" in page


def test_the_runner_lists_applications_as_a_table() -> None:
    with get_runner() as runner:
        found = runner.list("local_cwd")
        assert "<table>" in found._repr_html_()
        assert "<table>" in found[:1]._repr_html_()  # type: ignore[attr-defined]


def test_a_sweep_shows_the_parameters_of_its_runs() -> None:
    with get_runner() as runner:
        handle = runner.sweep("utils.echo", {"msg": ["loss=2 <b>", "loss=1"]}, "local_cwd")
        runner.wait(handle)
        page = app(handle, runner)._repr_html_()
        assert "<th>run</th><th>msg</th><th>state</th>" in page
        assert ">loss=2 &lt;b&gt;</td>" in page and "<b>" not in page
        found = runner.results(handle)
        assert [result.metrics for result in found] == [{"loss": 2}, {"loss": 1}]
        assert min(found, key=lambda result: result.metrics["loss"]).run.number == 2
        assert "<th>loss</th>" in found[1:]._repr_html_()  # type: ignore[attr-defined]
        assert [result.metrics for result in runner.results(handle, metrics=["msg=(.)"])] == [{}, {}]
