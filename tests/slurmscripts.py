"""Scripts of Slurm jobs, made and run on this machine without Slurm."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchx.schedulers.shared.batch.node.files import node_file
from torchx.schedulers.shared.batch.quoting import packed, quote
from torchx.schedulers.shared.batch.script import ScriptContext, files_of, script_by_hand, script_of
from torchx.schedulers.slurm.directives import DIALECT
from torchx.specs import AppDef

SH = shutil.which("sh") or "sh"


def context(folder: str, fallback: str = "") -> ScriptContext:
    return ScriptContext(DIALECT, "name", folder, "s", "torchx:t:/f", {}, fallback)


def made(given: AppDef, folder: str = "/f o", **cfg: Any) -> str:
    """Returns the script that can be submitted by hand."""
    return script_by_hand(script_of(given, cfg, context(folder)), files_of(given, cfg, context(folder)))


def write_files(files: Mapping[str, str], folder: Path) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))


def run_task(
    given: AppDef,
    tmp_path: Path,
    replica: int = 0,
    path: str = os.environ["PATH"],
    retries: int = 0,
    cfg: Mapping[str, Any] | None = None,
    variables: Mapping[str, str] | None = None,
    disk: str = "",
) -> Path:
    """Runs what a replica runs, as srun would have it started; returns the folder of its first attempt.

    With ``disk``, the nodes do not share `job_dir`, which is this folder.
    """
    fallback = str(tmp_path) if disk else ""
    write_files(files_of(given, cfg or {}, context(str(tmp_path), fallback)), tmp_path)
    env = {"TORCHX_FOLDER": str(tmp_path), "TORCHX_APP_ID": "77", "TORCHX_JOB_ATTEMPT": "1"}
    env |= {"TORCHX_NODE_LOGS": disk} if disk else {}
    env |= {"SLURM_PROCID": str(replica), "TORCHX_RETRIES": str(retries), "PATH": path, **(variables or {})}
    subprocess.run([SH, tmp_path / "role-0.sh", "role"], env=env, check=False, timeout=240)
    (found,) = tmp_path.glob("*/*/attempt-1")
    return found


def unpacked(files: Mapping[str, str], folder: Path) -> dict[str, bytes]:
    """Returns the files that the end of a script becomes."""
    script = folder.with_name("packed.sh")
    lines = [f"first={quote(str(folder))}", node_file("unpack.sh"), *packed(files)]
    script.write_bytes("\n".join([*lines, ""]).encode("utf-8", "surrogateescape"))
    subprocess.run(["bash", script], env={**os.environ, "SLURM_JOB_ID": "7"}, check=True, timeout=60)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_script(script: str, folder: Path, programs: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Runs a whole script, with a `srun` that starts one task on this machine."""
    programs.mkdir(exist_ok=True)
    srun = f'#!{SH}\nwhile [ "${{1#--}}" != "$1" ]; do shift; done\nSLURM_PROCID=0 exec "$@"\n'
    for name, text in {"srun": srun, "scontrol": f"#!{SH}\necho node1\n", "scancel": f"#!{SH}\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (programs / "job.sh").write_text(script)
    given = {"SLURM_JOB_ID": "77", "PATH": f"{programs}:{os.environ['PATH']}", "SLURMD_NODENAME": "n", **env}
    return subprocess.run(["bash", programs / "job.sh"], env=given, timeout=240, check=False, umask=0)
