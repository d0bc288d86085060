"""The differences between the recorded Python and the present one, which a restored source runs with."""

from __future__ import annotations

from collections.abc import Iterator

from torchx.printable import few
from torchx.provenance.model import Editable, Python


def differences(then: Python, now: Python) -> Iterator[str]:
    """Yields a sentence on each kind of difference: version, packages, editable installs.

    >>> list(differences(Python("3.11", "p", packages={"a": "1"}), Python("3.12", "p", packages={"b": "1"})))
    ['Python was 3.11, it is 3.12', '2 packages differ: a 1 -> none, b none -> 1']
    """
    if then.version != now.version:
        yield f"Python was {then.version}, it is {now.version}"
    packages = [
        f"{name} {then.packages.get(name, 'none')} -> {now.packages.get(name, 'none')}"
        for name in sorted({*then.packages, *now.packages})
        if then.packages.get(name) != now.packages.get(name)
    ]
    if packages:
        count = "one package differs"
        if len(packages) > 1:
            count = f"{len(packages):,} packages differ"
        yield f"{count}: {few(packages)}"
    for name, editable in then.editable.items():
        present = now.editable.get(name)
        if present != editable or editable.dirty is not False:
            yield (
                f"the editable install {name} is not restored: it was {_state(editable)}, "
                f"it is {'not installed' if present is None else _state(present)}"
            )


def _state(editable: Editable) -> str:
    if not editable.commit:
        return f"{editable.path} without a commit"
    changes = " with changes" if editable.dirty else ""
    return f"{editable.path} at commit {editable.commit[:12]}{changes}"
