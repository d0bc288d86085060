"""Reports: `torchx report`."""

from __future__ import annotations

import copy
import json
import os
import re
import stat
from base64 import b64encode
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import browser as chromium
import fsspec
import pytest
from program import torchx

from torchx.runner import get_runner
from torchx.specs.app import AppDef, Resource, Role
from torchx.tracker.backend.fsspec import FsspecTracker
from torchx_cli.applications import find
from torchx_cli.report.collect import collect
from torchx_cli.report.html import escape
from torchx_cli.report.page import MOST_SHOWN, page
from torchx_cli.report.series import BINS, MOST_LINES, fill, outliers, plot_of
from torchx_cli.report.timeline import MOST_ROWS

HOSTILE = "</style><script>alert(1)</script><img src=http://evil.example/x>\x1b]0;t\x07\u202e"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The data of a job that failed, with names and lines that try to be markup."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("report")
        patch.setenv("TORCHX_HOME", str(folder / "home"))
        script = 'printf \'%s\\n\' "$HOSTILE" "token=$API_TOKEN"; test $0 != 1 || exit 3'
        role = Role(
            "w", image="", entrypoint="sh", args=["-c", script, "${replica_id}"], num_replicas=2,
            env={"HOSTILE": HOSTILE, "API_TOKEN": "canary-4711"},
            resource=Resource(cpu=2, gpu=0, memMB=2000), metadata={"note": HOSTILE},
        )  # fmt: skip
        with get_runner("torchx") as runner:
            handle = runner.run(AppDef("job", [role]), "local_cwd")
            runner.wait(handle)
            return collect(runner, *find(runner, handle, full=True))


def sample(time: float, **values: float) -> dict[str, Any]:
    empty = dict.fromkeys(("cpu", "memory", "gpu", "gpu_memory", "output", "read", "write"))
    return {"time": time, "span": 1.0, **empty, **values}


def crowd(data: Mapping[str, Any], count: int) -> dict[str, Any]:
    """The same job with many replicas and measurements: one of them uses more memory, one has failed."""
    made = copy.deepcopy(dict(data))
    good, bad = ({**replica} for replica in made["roles"][0]["replicas"][:2])
    replicas = [{**(bad if number == 7 else good), "id": number} for number in range(count)]
    made["roles"] = [{**made["roles"][0], "replicas": replicas}]
    measured = [
        {
            "role": "w", "replica": number, "attempt": 1, "running": False, "seconds": 40.0, "mean_cpu": 1.0,
            "peak_memory": 2**30 * (9 if number == 5 else 1), "mean_gpu": 0.5, "peak_gpu_memory": 2**30,
            "samples": [
                sample(
                    1000.0 + at, cpu=1 + number % 10 / 10, memory=2**30 * (9 if number == 5 else 1),
                    gpu=0.5, gpu_memory=2**30, output=100 + number % 7,
                )
                for at in range(40)
            ],
        }
        for number in range(count)
    ]  # fmt: skip
    summary = {"w": "peak memory 9.0 GiB of 2.0 GiB (w/5)"}
    made["usage"] = {"source": "/proc", "interval": 1.0, "replicas": measured, "summary": summary}
    return made


def test_text_is_never_markup_and_never_a_control_character(data: dict[str, Any]) -> None:
    made = page(data)
    assert made.count("&lt;script&gt;") >= 3  # the line, the variable, the metadata
    assert not re.search(r"<script|<img|<link|<iframe|\son\w+=|url\(|@import", made)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", made)
    assert str(escape("\ud800\ufffe")) == "\\ud800\\ufffe"


def test_the_page_may_load_nothing(data: dict[str, Any]) -> None:
    made = page(data)
    style = re.search(r"<style>(.*)</style>", made, re.DOTALL)
    assert style is not None
    digest = b64encode(sha256(style[1].encode()).digest()).decode()
    assert (
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'\">" in made
    )
    assert " style=" not in made


def test_secrets_are_masked(data: dict[str, Any]) -> None:
    assert "token=********" in page(data)
    assert "canary-4711" not in page(data) + json.dumps(data)


def test_the_page_has_the_failure_and_the_commands(data: dict[str, Any]) -> None:
    made = page(data)
    assert "w/1 failed first: exit 3 (attempt 1 of 1)" in made
    assert re.search(
        r"<code>torchx rerun local_cwd://torchx/job-\w+</code>|<code>torchx rerun job-\w+<", made
    )
    assert re.search(r"torchx log \S+/w/1<", made)
    assert made.count('class="bar failed"') == 1


def test_only_an_engine_with_images_names_them(data: dict[str, Any]) -> None:
    made = {**data, "app": copy.deepcopy(data["app"])}
    made["app"]["roles"][0]["image"] = "python:3.12-slim"
    assert "python:3.12-slim" in page(made)
    assert "python:3.12-slim" not in page(made, images=False)


def test_an_engine_without_measurements(data: dict[str, Any]) -> None:
    for usage, error, text in (
        (None, None, "local_cwd does not measure"),
        (None, "the engine is down", "the engine is down"),
        ({"source": "x", "interval": None, "replicas": []}, None, "the run was too short"),
    ):
        made = page({**data, "usage": usage, "usage_error": error})
        assert f"No measurements over time: {text}" in made


def test_the_failure_precedes_the_options(data: dict[str, Any]) -> None:
    made = page(data)
    assert made.index("<h2>First failure") < made.index("<dt>options") < made.index("<h2>Timeline")


def test_metrics_use_all_of_their_plot(data: dict[str, Any]) -> None:
    loss = [[1000.0 + step, 1 - step / 1000] for step in range(11)]
    made = page({**data, "metrics": {"loss": loss[::-1], HOSTILE: loss, "epochs": [[1000.0, 15]]}})
    figures = made.split("<figure>")[1:]
    assert [figure.count("<path") for figure in figures] == [2, 2]
    assert "<figcaption>loss</figcaption>" in figures[0]
    assert '<div class="axis"><span>1</span><span>0.99</span></div>' in figures[0]
    assert 'd="M0 0L100 14L200 28' in figures[0]
    assert "L1000 140" in figures[0]
    assert "last 0.99, at most 1" in figures[0]
    assert "<dt>epochs</dt><dd>15</dd>" in made
    assert "<script" not in made


def test_reports_of_trackers_become_metrics(data: dict[str, Any], tmp_path: Path) -> None:
    tracker = FsspecTracker(fsspec.filesystem("file"), str(tmp_path))
    with get_runner("torchx") as runner:
        handle = runner.run(AppDef("job", [Role("w", image="", entrypoint="true")]), "local_cwd")
        runner.wait(handle)
        for step in range(3):
            tracker.add_metadata(handle, loss=1 / (step + 1), name="n", bad=float("nan"), flag=True)
        collected = collect(runner, *find(runner, handle, full=True), [tracker])
    assert list(collected["metrics"]) == ["loss"]
    assert [value for _, value in collected["metrics"]["loss"]] == [1.0, 0.5, 1 / 3]
    assert collected["runs"] == []


def test_a_sweep_has_a_table_and_plots_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torchx("run", "--each", "lr=1,2,3", "utils.sh", "test {lr} -lt 3 # run {run}")
    data = json.loads(torchx("report", "@last", "--json").stdout)
    (role,) = data["app"]["roles"]
    assert role["args"] == ["-c", "test 1 -lt 3 # run 1"]
    assert "TORCHX_JOB_ID" not in role["env"], "each run has another one"
    assert data["runs"][0][:3] == ["RUN", "lr", "STATE"]
    assert [row[:3] for row in data["runs"][1:]] == [
        ["1", "1", "SUCCEEDED"], ["2", "2", "SUCCEEDED"], ["3", "3", "FAILED"],
    ]  # fmt: skip
    made = page({**data, "metrics": {"loss": [[1, 0.3], [2, 0.2], [3, 0.1]]}})
    assert "3 runs, 1 failed" in made
    assert '<td data-head="STATE">FAILED</td>' in made
    assert 'd="M0 0L500 70L1000 140"' in made
    assert "<span>run 1</span><span>run 3</span>" in made
    assert all(f"attempts of run {number}" in made for number in (1, 2, 3))


def test_a_thousand_replicas_are_summarized(data: dict[str, Any]) -> None:
    made = page(crowd(data, 1000))
    assert len(made.encode()) < 3_000_000
    assert made.count('<path class="band"') == 5 + 1  # the measurements, and the running replicas
    assert "1000 replicas: range and median" in made
    assert "w/5, at most 9.0 GiB" in made
    assert "<dt>w</dt><dd>peak memory 9.0 GiB of 2.0 GiB (w/5)</dd>" in made
    assert made.count('class="row"') == 1, "only the failed replica has a row of its own"
    assert "<summary>All 1000 replicas" in made
    assert "<summary>All" not in page(crowd(data, MOST_SHOWN))
    assert page(crowd(data, MOST_ROWS)).count('class="row"') == MOST_ROWS


def test_values_fill_the_time_that_they_cover() -> None:
    grid: list[float | None] = [None] * 10
    fill(grid, [sample(2.0, cpu=1.0), sample(2.0, cpu=3.0), sample(9.5, cpu=2.0)], "cpu", 0.0, 10.0)
    assert grid == [None, 3.0, None, None, None, None, None, None, 2.0, 2.0]


def test_few_replicas_have_lines_and_many_a_range() -> None:
    def replicas(count: int) -> list[dict[str, Any]]:
        return [
            {"role": "w", "replica": k, "samples": [sample(1.0, cpu=float(k))]} for k in range(count)
        ]  # fmt: skip

    few, many = (plot_of("cpu", replicas(count), 0.0, 1.0) for count in (MOST_LINES, MOST_LINES + 1))
    assert few is not None
    assert many is not None
    assert (len(few.lines), few.high) == (MOST_LINES, ())
    assert (many.low, many.middle, many.high) == ([0.0] * BINS, [4.0] * BINS, [8.0] * BINS)
    assert plot_of("gpu", replicas(3), 0.0, 1.0) is None
    assert outliers({str(k): [1.0, 100.0 if k == 3 else 1.0] for k in range(9)}, [1.0, 1.0]) == ["3"]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = torchx("run", "utils.echo", "--msg", "hi")
    app_id = done.stdout.strip().rpartition("/")[2]
    before = os.umask(0)
    try:
        done = torchx("report", "@last")
    finally:
        os.umask(before)
    assert (done.stdout, done.stderr) == (f"{app_id}.html\n", "")
    written = Path(f"{app_id}.html")
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    text = written.read_text(encoding="utf-8")
    assert f"<title>{app_id} SUCCEEDED</title>" in text
    assert torchx("report", app_id, "-o", "x.json", "--json").stdout == "x.json\n"
    assert json.loads(Path("x.json").read_text())["app_id"] == app_id
    assert json.loads(torchx("report", app_id, "--json").stdout)["failure"] is None
    assert torchx("report", app_id, "-o", "-").stdout.endswith("</html>\n")
    os.mkfifo("pipe")
    Path("link").symlink_to("/dev/stdout")
    for name in ("/dev/stdout", "link"):
        assert torchx("report", app_id, "-o", name).stdout.endswith(f"</html>\n{name}\n")
    assert Path("link").is_symlink()
    with ThreadPoolExecutor() as pool:
        page = pool.submit(Path("pipe").read_text)
        assert torchx("report", app_id, "-o", "pipe").stdout == "pipe\n"
        assert page.result().endswith("</html>\n")
    wrong = torchx("report", app_id, "-o", "json")
    assert (wrong.returncode, wrong.stderr) == (2, "")
    assert json.loads(wrong.stdout)["error"]["message"] == "-o takes a file, got `json`"
    absent = torchx("report", app_id, "-o", "absent/x.html")
    assert (absent.returncode, absent.stderr) == (
        1,
        "error: cannot write `absent/x.html`: No such file or directory\n",
    )


CONTRAST = """[...document.querySelectorAll('h1,h2,p,dd,dt,pre,td,li,figcaption')].filter(shown => {
  const light = text => {
    const [r, g, b] = text.match(/[0-9.]+/g).slice(0, 3).map(part => part / 255).map(
      part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let back = shown;
  while (back && getComputedStyle(back).backgroundColor === 'rgba(0, 0, 0, 0)') back = back.parentElement;
  const text = light(getComputedStyle(shown).color);
  const behind = light(back ? getComputedStyle(back).backgroundColor : 'rgb(255, 255, 255)');
  return (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05) < 4.5;
}).map(shown => shown.className + ' ' + shown.textContent.slice(0, 40))
"""
"""The texts whose contrast is less than 4.5."""


FILLED = """[...document.querySelectorAll('.plots')].every(plots => {
  const right = shown => shown.getBoundingClientRect().right;
  return !plots.lastElementChild || Math.abs(right(plots) - right(plots.lastElementChild)) < 2;
})
"""
"""Whether the last plots fill their row."""


def test_the_page_in_a_browser(data: dict[str, Any], tmp_path: Path) -> None:
    """No request, no message, no overflow; readable in light, dark and on paper."""
    if chromium.program() is None:
        message = "needs a browser: apt install chromium"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    made = crowd(data, 100)
    made["roles"][0]["replicas"][0]["hostname"] = "host" * 30
    made["app"]["roles"][0]["args"] = ["-c", "two\n  lines"]
    path = tmp_path / "run.html"
    path.write_text(page(made), encoding="utf-8")
    with chromium.browser() as shown:
        shown.open(path)
        for media, scheme, width in (
            ("screen", "light", 1400), ("screen", "light", 400), ("screen", "dark", 1400),
            ("screen", "dark", 400), ("print", "dark", 700),
        ):  # fmt: skip
            shown.resize(width, 900, scheme=scheme, media=media)
            assert shown.evaluate("document.documentElement.scrollWidth") <= width, (media, width)
            assert shown.evaluate(CONTRAST) == [], (media, scheme)
            assert shown.evaluate(FILLED) is True, (media, width)
        backs = []
        for media, scheme in (("screen", "light"), ("screen", "dark"), ("print", "dark")):
            shown.resize(1400, 900, scheme=scheme, media=media)
            backs.append(shown.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert backs == ["rgb(255, 255, 255)", "rgb(22, 24, 28)", "rgb(255, 255, 255)"]
        assert shown.evaluate("document.querySelectorAll('figure svg path.middle').length") == 5
        assert shown.evaluate("document.querySelector('pre').textContent").startswith("</style><script>")
        shown.resize(400, 900)
        cut = "[...document.querySelectorAll('td')].filter(td => td.scrollWidth > td.clientWidth).length"
        assert shown.evaluate(cut) == 0
        codes = shown.evaluate("[...document.querySelectorAll('code')].map(code => code.innerText)")
        assert "sh -c 'two\n  lines'" in codes
        assert shown.problems == []
