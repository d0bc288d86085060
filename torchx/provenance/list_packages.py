"""A program that prints the version, the path and the packages of a Python as JSON.

Any Python from 3.8 runs it, by its text: it imports nothing of this package. It reads the files of packages
itself, since `importlib.metadata` takes four times as long.
"""

from __future__ import annotations

import json
import os
import sys
from urllib.parse import unquote, urlparse


def main() -> None:
    """Prints the version, the path, the packages by name, and the folders of editable ones."""
    packages, editable = {}, {}
    for folder in filter(os.path.isdir, sys.path):
        for entry in os.scandir(folder):
            if not entry.name.lower().endswith((".dist-info", "egg-info")):
                continue
            try:
                name, version = name_and_version(entry)
                if name in packages:
                    continue  # hidden by an earlier folder of the path
                packages[name] = version
                source = editable_folder(entry)
            except Exception:  # noqa: S112  # each damaged package has errors of its own
                continue
            if source:
                editable[name] = source
    version = sys.version.split()[0]
    data = {"version": version, "executable": sys.executable, "packages": packages, "editable": editable}
    sys.stdout.write(json.dumps(data))


def name_and_version(entry: os.DirEntry[str]) -> tuple[str, str]:
    """Returns the name and the version of a package, from its folder, or its file in old packages."""
    text = read(entry, "METADATA") or read(entry, "PKG-INFO") or read(entry, "")
    fields = dict(line.split(": ", 1) for line in text.split("\n\n")[0].splitlines() if line[0].isalpha())
    return fields["Name"].strip(), fields["Version"].strip()


def editable_folder(entry: os.DirEntry[str]) -> str:
    """Returns the folder that a package is installed from in place, or an empty string."""
    text = read(entry, "direct_url.json")
    if text:
        data = json.loads(text)
        if data.get("dir_info", {}).get("editable"):
            return unquote(urlparse(data["url"]).path)
        return ""
    folder = os.path.dirname(entry.path)  # noqa: PTH120  # `pathlib` takes longer than the rest
    if entry.name.endswith(".egg-info") and not folder.endswith(("site-packages", "dist-packages")):
        return folder
    return ""


def read(entry: os.DirEntry[str], name: str) -> str:
    """Returns the content of a file of a package, or an empty string."""
    try:
        with open(f"{entry.path}/{name}".rstrip("/"), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
