"""A program that prints the version, the path and the packages of a Python as JSON.

Any Python from 3.8 runs it, by its text: it imports nothing of this package.
"""

from __future__ import annotations

import json
import platform
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse


def main() -> None:
    """Prints the version, the path, the packages by name, and the folders of editable ones."""
    sys.path[:] = [path for path in sys.path if path]
    packages, editable = {}, {}
    for found in metadata.distributions():
        try:
            name, version = found.metadata["Name"], found.version
            if not isinstance(name, str) or not isinstance(version, str) or name in packages:
                continue  # damaged, or hidden by an earlier folder of the path
            packages[name] = version
            folder = editable_folder(found)
        except Exception:  # noqa: S112  # each damaged package has errors of its own
            continue
        if folder:
            editable[name] = folder
    version = platform.python_version()
    data = {"version": version, "executable": sys.executable, "packages": packages, "editable": editable}
    sys.stdout.write(json.dumps(data))


def editable_folder(found: metadata.Distribution) -> str:
    """Returns the folder that a package is installed from in place, or an empty string."""
    text = found.read_text("direct_url.json")
    if text:
        data = json.loads(text)
        in_place = data.get("dir_info", {}).get("editable")
        if in_place:
            return unquote(urlparse(data["url"]).path)
        return ""
    path = getattr(found, "_path", None)
    if path is None or not str(path).endswith(".egg-info"):
        return ""
    folder = Path(str(path)).parent
    if folder.name in ("site-packages", "dist-packages"):
        return ""
    return str(folder)


if __name__ == "__main__":
    main()
