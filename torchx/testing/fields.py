"""Conformance tests of the fields of a role: their effect on a scheduler, and its page about them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from torchx.errors import TorchxError, UsageError
from torchx.json_limits import Data, Object
from torchx.scheduling.base import AnyScheduler
from torchx.specs.app import AnyDryRunInfo, AppDef, RetryPolicy, Role
from torchx.specs.macro import macros
from torchx.specs.mounts import BindMount
from torchx.specs.resources import Resource
from torchx.specs.workspace import Workspace
from torchx.testing.harness import FORMER_VALUES, Harness
from torchx.testing.harness import Meaning as Meaning


def _sized(**changes: Any) -> Object:
    return {"resource": Resource(**{"cpu": 1, "gpu": 0, "memMB": 256, **changes})}


PROBES: Mapping[str, Data] = {
    "image": {"image": "no-such-image.example/conformance"},
    "min_replicas": {"min_replicas": 1, "num_replicas": 2},
    "resource.cpu": _sized(cpu=100_000),
    "resource.memMB": _sized(memMB=1_000_000_000),
    "resource.gpu": _sized(gpu=1000),
    "resource.devices": _sized(devices={"vpc.amazonaws.com/efa": 1}),
    "resource.capabilities": _sized(capabilities={"node.kubernetes.io/instance-type": "conformance"}),
    "resource.tags": _sized(tags={"conformance": 1}),
    "retry_policy=APPLICATION": {"max_retries": 1, "num_replicas": 2},
    "retry_policy=ROLE": {"max_retries": 1, "num_replicas": 2, "retry_policy": RetryPolicy.ROLE},
    "retry_policy=REPLICA": {"max_retries": 1, "num_replicas": 2, "retry_policy": RetryPolicy.REPLICA},
    "mounts": {"mounts": [BindMount("/tmp", "/conformance", read_only=True)]},  # noqa: S108
    "metadata": {"metadata": {"conformance": {"conformance": "yes"}}},
    "workspace": {"workspace": Workspace({"memory://conformance": ""})},
}
"""Changes of a role by field that no machine can satisfy, or that are visible in a request."""

ALWAYS = (
    "name",
    "entrypoint",
    "args",
    "env",
    "num_replicas",
    "max_retries",
    "port_map",
    "overrides",
)
"""Fields that every scheduler honours, covered by the other tests."""

FIELDS = (*ALWAYS, *PROBES)
"""The fields that a scheduler's page has to cover, by their names there."""

RUNS = tuple(name for name in PROBES if name.startswith("retry_policy"))
"""Fields that affect running replicas, and not always the request."""


_CELLS = {**{meaning.value: meaning for meaning in Meaning}, **FORMER_VALUES}
"""Meanings by the start of a cell; includes former values for one release."""


def meanings_of_page(text: str, scheduler: str) -> dict[str, Meaning]:
    """Returns the meanings of fields in the first table of a page with the head ``field of Role``.

    A row may name several fields. A cell begins with ``warned``, ``rejected`` or ``ignored``, or describes
    how the field is honoured; ``the same`` repeats the cell before it.

    Args:
        text: the page, in Markdown.
        scheduler: the name at the head of the column.

    Raises:
        AssertionError: the table, the column or a cell is missing.

    >>> page = "| field of Role | mine |\\n|---|---|\\n| `args`, `env` | unchanged |\\n| `mounts` | warned |"
    >>> {name: str(meaning) for name, meaning in meanings_of_page(page, "mine").items()}
    {'args': 'honoured', 'env': 'honoured', 'mounts': 'warned'}
    """
    lines = iter(text.splitlines())
    heads = next((_cells(line) for line in lines if line.startswith("| field of Role |")), None)
    assert heads is not None, "the page has no table that begins with `| field of Role |`"
    assert scheduler in heads, f"the table has no column `{scheduler}`, but {', '.join(heads[1:])}"
    meanings: dict[str, Meaning] = {}
    for line in lines:
        if not line.startswith("|"):
            break
        cells = _cells(line)
        if set(cells[0]) <= set("-: "):
            continue
        assert len(cells) == len(heads), f"{len(cells)} cells instead of {len(heads)}: {line}"
        at = heads.index(scheduler)
        while cells[at] == "the same" and at > 1:
            at -= 1
        meaning = next((m for start, m in _CELLS.items() if cells[at].startswith(start)), Meaning.HONOURED)
        meanings.update((name, meaning) for name in re.findall(r"`([^`]+)`", cells[0]))
    return meanings


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


class FieldConformance(Harness):
    """Tests of each field of a role; see :class:`Harness` for the other attributes to set.

    Attributes:
        probes: changes of a role by field, for those of PROBES that have no effect on this scheduler.
        page: a Markdown file with a table of the fields, to compare with ``fields``.
        column: the head of this scheduler's column there.
    """

    probes: ClassVar[Mapping[str, Data]] = {}
    page: ClassVar[Path | None] = None
    column: ClassVar[str] = ""

    def request_text(self, info: AnyDryRunInfo) -> str:
        """Returns the text of a request, without a copy of the whole application in it."""
        return repr(info)

    def probe(self, field: str) -> Role:
        """Returns a role that uses a field."""
        return self.role("true", **{**PROBES[field], **self.probes.get(field, {})})

    def test_declarations_name_known_fields(self) -> None:
        for name, meaning in {**self.fields, **self.probes}.items():
            assert name in PROBES, f"`{name}` cannot be declared, only: {', '.join(PROBES)}"
            assert name in self.probes or isinstance(meaning, Meaning), f"`{name}` is declared as {meaning!r}"

    def test_the_page_agrees_with_the_declarations(self) -> None:
        if self.page is None:
            return
        meanings = meanings_of_page(self.page.read_text(encoding="utf-8"), self.column)
        expected = {name: self.meaning(name) for name in FIELDS}
        wrong = {
            name: f"the page says {meanings.get(name, 'nothing')}, expected {meaning}"
            for name, meaning in expected.items()
            if meanings.get(name) is not meaning
        }
        assert not wrong, f"{self.page.name}, column {self.column}: {wrong}"

    @pytest.mark.parametrize("field", PROBES)
    def test_a_field_means_what_is_declared(self, scheduler: AnyScheduler, field: str) -> None:
        plain = self.app(self.role("true", num_replicas=self.probe(field).num_replicas))
        using = self.app(self.probe(field))
        meaning = self.meaning(field)
        if meaning is Meaning.REJECTED:
            self._check_rejected(scheduler, field, using)
        elif meaning is Meaning.WARNED:
            self._check_warned(scheduler, field, plain, using)
        elif meaning is Meaning.IGNORED:
            before = self._text(scheduler, plain).splitlines()
            fresh = [line for line in self._text(scheduler, using).splitlines() if line not in before]
            assert not fresh, f"`{field}` is declared as ignored, but adds lines to the request: {fresh}"
        else:
            self._check_honoured(scheduler, field, plain, using)

    def _check_rejected(self, scheduler: AnyScheduler, field: str, using: AppDef) -> None:
        try:
            scheduler.submit_dryrun(using, self.cfg)
        except UsageError:
            return
        raise AssertionError(f"`{field}` is declared as rejected, but a dry-run accepts it")

    def _check_warned(self, scheduler: AnyScheduler, field: str, plain: AppDef, using: AppDef) -> None:
        known = set(self._notes(scheduler, plain, submit=False))
        if not set(self._notes(scheduler, using, submit=False)) - known:
            # leases and queries of the engine happen at submission
            known |= set(self._notes(scheduler, plain, submit=True))
            fresh = set(self._notes(scheduler, using, submit=True)) - known
            assert fresh, f"`{field}` is declared as warned, but no note mentions it"

    def _check_honoured(self, scheduler: AnyScheduler, field: str, plain: AppDef, using: AppDef) -> None:
        notes = self._notes(scheduler, plain, submit=False)
        try:
            fresh = [n for n in self._notes(scheduler, using, submit=False) if n not in notes]
            if field in RUNS:
                assert not fresh, f"`{field}` is declared as honoured, but a note says otherwise: {fresh}"
                return  # covered by the tests of retries
            if self._text(scheduler, plain) != self._text(scheduler, using):
                return
            self.submit(scheduler, using)
        except TorchxError:
            return  # the field was read, and cannot be satisfied
        raise AssertionError(
            f"`{field}` is silently ignored: it changes no request, and causes no note and no error; "
            f"declare it as {Meaning.IGNORED}, or set a visible change in `probes`"
        )

    def _notes(self, scheduler: AnyScheduler, app: AppDef, *, submit: bool) -> list[str]:
        info = scheduler.submit_dryrun(app, self.cfg)
        if submit:
            self._submitted.append(scheduler.schedule(info))
        return info.notes

    def _text(self, scheduler: AnyScheduler, app: AppDef) -> str:
        """Returns a request without the id that each dry-run generates."""
        roles = [dataclasses.replace(role, env={"ID": f"<<{macros.app_id}>>"}) for role in app.roles]
        text = self.request_text(scheduler.submit_dryrun(dataclasses.replace(app, roles=roles), self.cfg))
        unique = re.search("<<([^>]+)>>", text)
        for part in re.split(r"[^\w.-]", unique[1]) if unique else ():
            # one part of the id is unique, others such as a namespace are not
            if len(part) > len(app.name):
                text = text.replace(part, "ID")
        return text

    # --- fields that every scheduler honours -----------------------------------------------------

    def test_lazy_values_are_resolved(self, scheduler: AnyScheduler) -> None:
        role = self.role("echo never", overrides={"args": lambda: ["-c", "echo late"]})
        status = self.run(scheduler, role)
        assert self.log(scheduler, status.app_id) == ["late\n"]

    def test_each_port_has_a_number_in_the_environment(self, scheduler: AnyScheduler) -> None:
        status = self.run(scheduler, self.role("echo port $$TORCHX_PORT_WEB.", port_map={"web": 18080}))
        (line,) = self.log(scheduler, status.app_id)
        assert re.fullmatch(r"port \d+\.\n", line), f"TORCHX_PORT_WEB is not set: {line!r}"

    def test_a_workspace_arrives(self, scheduler: AnyScheduler, tmp_path: Path) -> None:
        if self.meaning("workspace") is not Meaning.HONOURED:
            return  # covered by the test of the field
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "héllo.txt").write_text("from the workspace\n")
        role = self.role("cat folder/h*.txt", workspace=Workspace({str(tmp_path): ""}))
        status = self.run(scheduler, role)
        assert self.log(scheduler, status.app_id) == ["from the workspace\n"]
