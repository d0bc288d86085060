"""Program for the Python of the ranks: compares dumps of the flight recorder with PyTorch's own ``fr_trace``.

It is passed on a command line, with a folder for copies, the beginning of the names of the dumps, and the
dumps. Gloo dumps its first group under an empty name, which ``fr_trace`` does not accept: the copies have the
name that the collectives of the group have.
"""

from __future__ import annotations

import importlib
import pickle
import shutil
import sys
import tempfile
from pathlib import Path

from torchx.json_limits import Object


def repaired(dump: Object) -> Object:
    """Returns a dump whose groups have the names that its collectives have."""
    groups = dict(dump["pg_config"])
    unnamed = groups.pop("", None)
    for entry in dump["entries"]:
        name, description = entry["process_group"]
        if unnamed is not None and name not in groups:
            groups[name] = {**unnamed, "name": name, "desc": description}
    return {**dump, "pg_config": groups}


def main(folder: str, prefix: str, paths: list[str]) -> None:
    """Prints the differences between dumps."""
    copies = tempfile.mkdtemp(dir=folder)
    try:
        for path in paths:
            with open(path, "rb") as file:
                dump = pickle.load(file)  # noqa: S301  # the job of this user has written it
            Path(copies, Path(path).name).write_bytes(pickle.dumps(repaired(dump)))
        fr_trace = importlib.import_module("torch.distributed.flight_recorder.fr_trace")
        fr_trace.main([copies, "-p", prefix, "--allow-incomplete-ranks"])
    finally:
        shutil.rmtree(copies, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
