"""The stable codes of errors: every code in the source is in the table of the page, and the reverse."""

from __future__ import annotations

import ast
import importlib
import re

from program import ROOT

from torchx.errors import TorchxError
from torchx_cli.schemas.errors import CODES

CODE = re.compile(r"""\bcode ?= ?["']|\bcode = \{""")
FOLDERS = ("torchx", "torchx_cli", "schedulers", "components")


def used() -> set[str]:
    """The codes that the source gives to classes, and to single errors by an argument."""
    found = set()
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not CODE.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            values: list[ast.expr | None] = []
            if isinstance(node, ast.Call):
                values = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            elif isinstance(node, ast.ClassDef):
                values = [
                    part.value
                    for part in node.body
                    if isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "code"
                ]
            found |= {value.value for value in values if isinstance(value, ast.Constant)}
    return {code for code in found if isinstance(code, str)}


def test_every_code_is_described() -> None:
    assert used() <= set(CODES), "describe new codes in torchx_cli/schemas/errors.py"


def test_every_code_is_used() -> None:
    texts = [
        path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "errors.py" or path.parent.name != "schemas"
    ]
    assert [code for code in CODES if not any(f'"{code}"' in text for text in texts)] == []


def test_every_class_of_errors_has_a_described_code() -> None:
    for name in (
        "torchx.runner",
        "torchx.tsm",
        "torchx.discovery.errors",
        "torchx.schedulers.slurm.commands",
    ):
        importlib.import_module(name)
    pending, codes = [TorchxError], set()
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if kind.__module__.startswith("torchx"):
            codes.add(kind.code)
    assert {"unknown_application", "engine_error", "not_owner"} <= codes <= set(CODES)


def test_argument_replaces_code_of_class_and_adds_facts() -> None:
    error = TorchxError("no", code="ambiguous_name", facts={"given": "a"})
    assert (error.code, error.facts, TorchxError("no").code) == ("ambiguous_name", {"given": "a"}, "error")
