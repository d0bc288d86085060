"""What each field of a role means on a scheduler: declared by its tests, held, and read from its page."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from torchx.errors import TorchxError, UsageError
from torchx.scheduling.base import Scheduler
from torchx.specs.app import AppDef, RetryPolicy, Role
from torchx.specs.dryrun import AppDryRunInfo
from torchx.specs.macro import macros
from torchx.specs.mounts import BindMount
from torchx.specs.resources import Resource
from torchx.specs.workspace import Workspace
from torchx.testing.harness import Harness
from torchx.testing.harness import Meaning as Meaning


def _sized(**changes: Any) -> dict[str, Any]:
    return {"resource": Resource(**{"cpu": 1, "gpu": 0, "memMB": 256, **changes})}


PROBES: Mapping[str, Mapping[str, Any]] = {
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
"""Changes of a role that ask for what no machine has, or for what would show in a request, by field."""

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
"""Fields that every scheduler honours: tests of what runs hold them."""

FIELDS = (*ALWAYS, *PROBES)
"""All that a scheduler's page has to tell of, as it is called there."""

RUNS = tuple(name for name in PROBES if name.startswith("retry_policy"))
"""Fields that show in what runs, and not always in a request."""


def meanings_of_page(text: str, scheduler: str) -> dict[str, Meaning]:
    """Returns what a page says of each field: its first table with the head ``field of Role``.

    A row may name several fields. A cell begins with ``told``, ``refused`` or ``not used``, or else says how
    the field is honoured; ``the same`` repeats the cell before it.

    Args:
        text: the page, in Markdown.
        scheduler: the name at the head of the column.

    Raises:
        AssertionError: there is no such table or column, or a row is short of a cell.

    >>> page = "| field of Role | mine |\\n|---|---|\\n| `args`, `env` | as they are |\\n| `mounts` | told |"
    >>> {name: str(meaning) for name, meaning in meanings_of_page(page, "mine").items()}
    {'args': 'honoured', 'env': 'honoured', 'mounts': 'told'}
    """
    lines = iter(text.splitlines())
    heads = next((_cells(line) for line in lines if line.startswith("| field of Role |")), None)
    assert heads is not None, "the page has no table that begins with `| field of Role |`"
    assert scheduler in heads, f"the table has no column `{scheduler}`, but {', '.join(heads[1:])}"
    found: dict[str, Meaning] = {}
    for line in lines:
        if not line.startswith("|"):
            break
        cells = _cells(line)
        if set(cells[0]) <= set("-: "):
            continue
        assert len(cells) == len(heads), f"{len(cells)} cells in place of {len(heads)}: {line}"
        at = heads.index(scheduler)
        while cells[at] == "the same" and at > 1:
            at -= 1
        says = next((m for m in Meaning if cells[at].startswith(m.value)), Meaning.HONOURED)
        found.update((name, says) for name in re.findall(r"`([^`]+)`", cells[0]))
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


class FieldConformance(Harness):
    """What a scheduler does with each field of a role; see :class:`Harness` for what to fill in.

    Attributes:
        probes: changes of a role by field, where those of PROBES show nothing on this scheduler.
        page: a Markdown file with a table of what each field means, to be compared.
        column: the head of this scheduler's column there.
    """

    probes: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    page: ClassVar[Path | None] = None
    column: ClassVar[str] = ""

    def request_text(self, info: AppDryRunInfo[Any]) -> str:
        """Returns a request as people see it; where it carries the application as a whole, without that."""
        return repr(info)

    def probe(self, field: str) -> Role:
        """Returns a role that asks for something by a field."""
        return self.role("true", **{**PROBES[field], **self.probes.get(field, {})})

    def test_what_fields_mean_is_declared_by_their_names(self) -> None:
        for name, meaning in {**self.fields, **self.probes}.items():
            assert name in PROBES, f"`{name}` is no field that can be declared: {', '.join(PROBES)}"
            assert name in self.probes or isinstance(meaning, Meaning), f"`{name}` is declared as {meaning!r}"

    def test_the_page_says_what_each_field_means(self) -> None:
        if self.page is None:
            return  # none was named
        told = meanings_of_page(self.page.read_text(encoding="utf-8"), self.column)
        expected = {name: self.meaning(name) for name in FIELDS}
        wrong = {
            name: f"the page says {told.get(name, 'nothing')}, it is {meaning}"
            for name, meaning in expected.items()
            if told.get(name) is not meaning
        }
        assert not wrong, f"{self.page.name}, column {self.column}: {wrong}"

    @pytest.mark.parametrize("field", PROBES)
    def test_a_field_means_what_is_declared(self, scheduler: Scheduler[Any], field: str) -> None:
        plain = self.app(self.role("true", num_replicas=self.probe(field).num_replicas))
        asking = self.app(self.probe(field))
        how = {
            Meaning.REFUSED: self._refused,
            Meaning.TOLD: self._told,
            Meaning.UNUSED: self._unused,
            Meaning.HONOURED: self._honoured,
        }
        how[self.meaning(field)](scheduler, field, plain, asking)

    def _refused(self, scheduler: Scheduler[Any], field: str, plain: AppDef, asking: AppDef) -> None:
        try:
            scheduler.submit_dryrun(asking, self.cfg)
        except UsageError:
            return
        raise AssertionError(f"`{field}` is declared as refused, and a dry-run takes it")

    def _told(self, scheduler: Scheduler[Any], field: str, plain: AppDef, asking: AppDef) -> None:
        known = set(self._notes(scheduler, plain, submit=False))
        if not set(self._notes(scheduler, asking, submit=False)) - known:
            # what is leased or asked of the engine is found out when it is submitted
            known |= set(self._notes(scheduler, plain, submit=True))
            fresh = set(self._notes(scheduler, asking, submit=True)) - known
            assert fresh, f"`{field}` is declared as told, and no note says that it is not honoured"

    def _unused(self, scheduler: Scheduler[Any], field: str, plain: AppDef, asking: AppDef) -> None:
        before, after = self._text(scheduler, plain), self._text(scheduler, asking)
        fresh = [line for line in after.splitlines() if line not in before.splitlines()]
        assert not fresh, (
            f"`{field}` is declared as not used, but the request has these lines for it: {fresh}"
        )

    def _honoured(self, scheduler: Scheduler[Any], field: str, plain: AppDef, asking: AppDef) -> None:
        notes = self._notes(scheduler, plain, submit=False)
        try:
            told = [n for n in self._notes(scheduler, asking, submit=False) if n not in notes]
            if field in RUNS:
                assert not told, f"`{field}` is declared as honoured, but a note says otherwise: {told}"
                return  # the tests of retries look at what runs
            if self._text(scheduler, plain) != self._text(scheduler, asking):
                return
            self.submit(scheduler, asking)
        except TorchxError:
            return  # what is asked for cannot be, and was looked at
        raise AssertionError(
            f"`{field}` changes nothing in a request, no note tells of it and nothing refuses it: "
            f"ignored in silence; or declare it as {Meaning.UNUSED}, or give a change that shows in `probes`"
        )

    def _notes(self, scheduler: Scheduler[Any], app: AppDef, *, submit: bool) -> list[str]:
        info = scheduler.submit_dryrun(app, self.cfg)
        if submit:
            self._submitted.append(scheduler.schedule(info))
        return info.notes

    def _text(self, scheduler: Scheduler[Any], app: AppDef) -> str:
        """Returns a request without the id that each dry-run makes anew."""
        roles = [dataclasses.replace(role, env={"ID": f"<<{macros.app_id}>>"}) for role in app.roles]
        text = self.request_text(scheduler.submit_dryrun(dataclasses.replace(app, roles=roles), self.cfg))
        found = re.search("<<([^>]+)>>", text)
        for part in re.split(r"[^\w.-]", found[1]) if found else ():
            # an id may have parts, such as a namespace, of which one is unique
            text = text.replace(part, "ID") if len(part) > len(app.name) else text
        return text

    # --- fields that every scheduler honours -----------------------------------------------------

    def test_lazy_values_are_worked_out(self, scheduler: Scheduler[Any]) -> None:
        role = self.role("echo never", overrides={"args": lambda: ["-c", "echo late"]})
        told = self.run(scheduler, self.app(role))
        assert list(scheduler.log_iter(told.app_id, "worker", 0)) == ["late\n"]

    def test_each_port_has_a_number_in_the_environment(self, scheduler: Scheduler[Any]) -> None:
        told = self.run(
            scheduler, self.app(self.role("echo port $$TORCHX_PORT_WEB.", port_map={"web": 18080}))
        )
        (line,) = scheduler.log_iter(told.app_id, "worker", 0)
        assert re.fullmatch(r"port \d+\.\n", line), f"TORCHX_PORT_WEB is not set: {line!r}"

    def test_a_workspace_arrives(self, scheduler: Scheduler[Any], tmp_path: Path) -> None:
        if self.meaning("workspace") is not Meaning.HONOURED:
            return  # what happens in place of it is held above
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "héllo.txt").write_text("from the workspace\n")
        role = self.role("cat folder/h*.txt", workspace=Workspace({str(tmp_path): ""}))
        told = self.run(scheduler, self.app(role))
        assert list(scheduler.log_iter(told.app_id, "worker", 0)) == ["from the workspace\n"]
