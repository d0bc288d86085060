"""Runs command lines of other repositories with --dryrun, and compares this TorchX with another.

    python tests/tools/dryruns.py compare PYTHON [FILE...]  print the differences from the TorchX of PYTHON
    python tests/tools/dryruns.py record NAME=PYTHON...     record the results of other versions

`record` runs the files whose lines differ from the recorded ones; delete recorded.json to run all. Only names
that every TorchX has are imported, since the file also runs in environments of the original.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Result = dict[str, Any]
"""What a command line would submit, or `error` with the message."""

CORPUS = Path(__file__).parents[1] / "compat" / "corpus"
RECORDED = CORPUS / "recorded.json"
PART = re.compile(r"^-- (.+) --$", re.MULTILINE)
DEFAULT_IMAGES = re.compile(r"(ghcr\.io/pytorch/torchx:|pytorch/pytorch:\d|python:3\.12-slim$).*")
HERE_ONLY = {'OMP_NUM_THREADS="$${OMP_NUM_THREADS:-1}" ': "", "$${TORCHX_PORT_C10D:=29500}": "29500"}
"""Parts of the command of `dist.*` that only this TorchX has; the documentation gives the reasons."""
CLIENTS = {"docker", "kubernetes", "requests", "urllib3"}
"""Modules of errors about the connection to an engine: the original connects for a dry-run."""
OF_A_SESSION = {"TORCHX_INTERNAL_SESSION_ID", "TORCHX_TRACKING_RUN_NAME", "PATH"}
DEFAULTS: dict[str, Any] = {
    "args": [],
    "base_image": None,
    "env": {},
    "max_retries": 0,
    "metadata": {},
    "min_replicas": None,
    "mounts": [],
    "num_replicas": 1,
    "overrides": {},
    "port_map": {},
    "pre_proc": None,
    "retry_policy": "APPLICATION",
    "workspace": None,
}


@dataclasses.dataclass
class Case:
    """The use of TorchX by one repository.

    Attributes:
        repository: its name.
        files: texts by path.
        lines: command lines, each possibly with variables before it.
        reasons: for lines with another result here, the difference in docs/compatibility.md.
    """

    repository: str
    files: dict[str, str]
    lines: list[str]
    reasons: dict[str, str]

    @staticmethod
    def read(path: Path) -> Case:
        """Reads a file of the corpus: parts, each after a line `-- NAME --`; the last one has the lines."""
        head, *parts = PART.split(path.read_text(encoding="utf-8"))
        files = {name: text.lstrip("\n") for name, text in zip(parts[::2], parts[1::2])}  # noqa: B905
        lines, reasons, reason = [], {}, ""
        for line in files.pop("lines").splitlines():
            if line.startswith("# "):
                reason = line[2:]
                continue
            lines.append(line)
            if reason:
                reasons[line], reason = reason, ""
        return Case(head.removeprefix("repository:").strip(), files, lines, reasons)

    def write_to(self, folder: Path) -> None:
        for name, text in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def result(line: str, set_variable: Callable[[str, str], None] = os.environ.__setitem__) -> Result:
    """Runs a command line in the working directory as a dry-run.

    Args:
        line: the command line.
        set_variable: sets a variable of the environment.
    """
    from torchx.cli.main import main
    from torchx.runner.api import Runner

    words = shlex.split(line.replace("$PWD", str(Path.cwd())))
    program = words.index("torchx")
    for variable in words[:program]:
        set_variable(*variable.split("=", 1))
    command, *flags = words[program + 1 :]
    submitted: list[Result] = []
    dryrun = Runner.dryrun

    def keep(
        runner: Any,
        app: Any,
        scheduler: str,
        cfg: Any = None,
        workspace: Any = None,
        *more: Any,
        **named: Any,
    ) -> Any:
        made = plain(app, scheduler, cfg, workspace)
        try:
            request = dryrun(runner, app, scheduler, cfg, workspace, *more, **named)
        except Exception as error:
            if type(error).__module__.split(".")[0] not in CLIENTS:
                raise
            submitted.append(made)
            sys.exit(0)
        submitted.append(made)
        return request

    output = io.StringIO()
    code: object = 0
    Runner.dryrun = keep  # type: ignore[method-assign]
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            main([command, "--dryrun", *flags])
    except SystemExit as end:
        code = end.code
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        Runner.dryrun = dryrun  # type: ignore[method-assign]
    return {"error": output.getvalue().strip()[-400:]} if code or not submitted else submitted[-1]


def plain(app: Any, scheduler: str, cfg: Any, workspace: Any) -> Result:
    """Returns a request as data, without what belongs to a session or a machine."""
    here = str(Path.cwd())
    made = {
        "name": app.name,
        "scheduler": scheduler,
        "cfg": {name: value for name, value in (cfg or {}).items() if value not in (None, "", [])},
        "workspace": str(workspace) if workspace else None,
        "metadata": app.metadata,
        "roles": [of_role(role) for role in app.roles],
    }
    if made["workspace"] and made["workspace"].removeprefix("file://") == here:
        made["workspace"] = None  # the default of the original
    text = json.dumps(made, default=as_plain, sort_keys=True)
    return json.loads(text.replace(here, "<folder>"))  # type: ignore[no-any-return]


def of_role(role: Any) -> dict[str, Any]:
    made = {field.name: getattr(role, field.name) for field in dataclasses.fields(role)}
    made["retry_policy"] = role.retry_policy.name
    made["args"] = [common(value) for value in role.args]
    made["env"] = {name: value for name, value in role.env.items() if name not in OF_A_SESSION}
    made["image"] = DEFAULT_IMAGES.sub("<default>", role.image)
    made["metadata"] = {name: value for name, value in role.metadata.items() if name != "requires"}
    made["mounts"] = [{"kind": type(mount).__name__, **as_plain(mount)} for mount in role.mounts]
    return {name: value for name, value in made.items() if name not in DEFAULTS or value != DEFAULTS[name]}


def common(argument: Any) -> Any:
    for text, other in HERE_ONLY.items():
        argument = argument.replace(text, other) if isinstance(argument, str) else argument
    return argument


def as_plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: item for name, item in items.items() if name != "tags" and item not in ({}, [], None)}
    return str(value)


def differences(here: Result, there: Result) -> list[str]:
    """Returns the differences between two results, each with its place."""
    if "error" in here or "error" in there:
        states = [f"rejected: {each['error']}" if "error" in each else "accepted" for each in (here, there)]
        return [] if "error" in here and "error" in there else ["here {}, there {}".format(*states)]
    return list(unequal(here, there, ""))


def unequal(here: Any, there: Any, at: str) -> Iterator[str]:
    if isinstance(here, dict) and isinstance(there, dict):
        for name in sorted({*here, *there}):
            yield from unequal(here.get(name), there.get(name), f"{at}.{name}")
    elif isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        for number, pair in enumerate(zip(here, there)):  # noqa: B905
            yield from unequal(*pair, f"{at}[{number}]")
    elif here != there:
        yield f"{at}: here {json.dumps(here)}, there {json.dumps(there)}"


def results_with(python: str, paths: list[Path]) -> dict[str, list[Result]]:
    """Returns the results of files by name, from the TorchX of a Python."""
    made: dict[str, list[Result]] = {}
    for path in paths:
        with tempfile.TemporaryDirectory() as home:
            folder = Path(home, "folder")
            folder.mkdir()
            env = {
                "PATH": os.environ["PATH"],
                "HOME": home,
                "USER": "tester",
                "TORCHX_HOME": f"{home}/torchx",
            }
            command = [python, __file__, "show", str(path)]
            done = subprocess.run(command, env=env, cwd=folder, stdout=subprocess.PIPE, check=True)
            made[path.stem] = json.loads(done.stdout)
    return made


def show(case: Case) -> list[Result]:
    """Runs the lines of a case in the working directory, each in a process: the original keeps flags."""
    import torchx.cli.main  # noqa: F401  # once, for all children

    case.write_to(Path.cwd())
    made = []
    for line in case.lines:
        with tempfile.TemporaryFile("w+") as file:
            if not (child := os.fork()):
                json.dump(result(line), file)
                file.flush()
                os._exit(0)
            os.waitpid(child, 0)
            file.seek(0)
            made.append(json.load(file))
    return made


def compare(python: str, paths: list[Path]) -> Iterator[str]:
    ours, theirs = results_with(sys.executable, paths), results_with(python, paths)
    for path in paths:
        results = zip(Case.read(path).lines, ours[path.stem], theirs[path.stem])  # noqa: B905
        for line, here, there in results:
            for difference in differences(here, there):
                yield f"{path.stem}: {line}\n    {difference}\n"


def record(pythons: dict[str, str]) -> str:
    """Returns results by file, line and version as JSON; equal later results are omitted."""
    known = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    cases = {path.stem: Case.read(path) for path in sorted(CORPUS.glob("*.txt"))}
    stale = [
        CORPUS / f"{name}.txt" for name, case in cases.items() if list(known.get(name, {})) != case.lines
    ]
    versions = {name: results_with(python, stale) for name, python in pythons.items()}
    for path in stale:
        known[path.stem] = {line: {} for line in cases[path.stem].lines}
        for version, made in versions.items():
            for of_line, found in zip(known[path.stem].values(), made[path.stem]):  # noqa: B905
                found = {"error": "rejected"} if "error" in found else found
                if found not in of_line.values():
                    of_line[version] = found
    parts = []
    for name in cases:
        lines = [f"  {json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in known[name].items()]
        parts.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    what, *rest = sys.argv[1:]
    if what == "show":
        sys.stdout.write(json.dumps(show(Case.read(Path(rest[0])))))
    elif what == "compare":
        paths = [Path(name).resolve() for name in rest[1:]] or sorted(CORPUS.glob("*.txt"))
        sys.stdout.writelines(compare(rest[0], paths))
    elif what == "record":
        pythons = {name: python for name, _, python in (one.partition("=") for one in rest)}
        RECORDED.write_text(record(pythons), encoding="utf-8")


if __name__ == "__main__":
    main()
