"""The distribution `torchx` beside `torchx-cli`: detection, and an empty placeholder that replaces it.

Both distributions have a package `torchx`. This module imports nothing of it: its files may be of
either. `python -m torchx_cli.placeholder [FOLDER]` writes the placeholders: wheels without files that satisfy
packages that require `torchx` or `torchx-nightly`, and require `torchx-cli`.
"""

from __future__ import annotations

import os
import sys

MARK = "+cli"
"""The local part of the version of a placeholder."""

VERSIONS = {"torchx": "0.7.0", "torchx-nightly": "2026.10.26"}
"""The versions of the distributions that the placeholders replace."""

BROUGHT = "docker docstring-parser filelock fsspec importlib-metadata pyre-extensions pyyaml tabulate urllib3"
"""The packages that the placeholders bring, as 0.7.0 did: dependents import some that they do not require."""

REPAIR = (
    "pip uninstall -y torchx torchx-nightly && pip install --force-reinstall --no-deps torchx_cli-*.whl"
    "   see also: docs/moving.md"
)


def foreign_distributions() -> list[str]:
    """Returns the distributions with a package `torchx` in this one's folder, or before it in the path."""
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - quicker
    found: dict[str, None] = {}
    for folder in sys.path:
        try:
            names = os.listdir(folder) if folder.endswith("-packages") else ()  # noqa: PTH208 - quicker
        except OSError:
            continue
        infos = [name for name in names if name[:7] in ("torchx-", "torchx_") and name.endswith(".dist-info")]
        for name in infos:
            if name.startswith(("torchx-", "torchx_nightly-")) and MARK not in name:
                found[name.removesuffix(".dist-info")] = None
        if folder == own:
            break
    return list(found)


def warn() -> None:
    """Prints one line if another distribution has a package `torchx` too."""
    if others := foreign_distributions():
        sys.stderr.write(
            f"warning: {' and '.join(others)} and torchx-cli overwrite each other's files; to repair it: "
            "torchx doctor\n"
        )


def write(folder: str) -> list[str]:
    """Writes the placeholders into a folder.

    Args:
        folder: the folder; created if it does not exist.

    Returns:
        The paths of the wheels.
    """
    import zipfile

    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    requires = "".join(f"Requires-Dist: {each}\n" for each in ("torchx-cli", *BROUGHT.split()))
    paths = []
    for name, version in VERSIONS.items():
        stem = f"{name.replace('-', '_')}-{version}{MARK}"
        files = {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}{MARK}\n"
            f"Summary: Placeholder: the package torchx is that of torchx-cli\n{requires}",
            "WHEEL": "Wheel-Version: 1.0\nGenerator: torchx-cli\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        lines = [f"{stem}.dist-info/{each},,\n" for each in (*files, "RECORD")]
        files["RECORD"] = "".join(lines)
        paths.append(os.path.join(folder, f"{stem}-py3-none-any.whl"))  # noqa: PTH118
        with zipfile.ZipFile(paths[-1], "w") as wheel:
            for each, text in files.items():
                wheel.writestr(f"{stem}.dist-info/{each}", text)
    return paths


if __name__ == "__main__":
    sys.stdout.writelines(f"{path}\n" for path in write(sys.argv[1] if len(sys.argv) > 1 else "."))
