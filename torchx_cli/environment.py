"""The flags `--env`, `--env-file` and `--secret`: variables for all roles of an application."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from torchx.errors import UsageError
from torchx.machine.files import expanded, unreadable
from torchx.masking import SecretValue, add_references, add_values, secrets_in_environment

if TYPE_CHECKING:
    from torchx.specs.app import AppDef

LARGEST = 1 << 20
"""Maximum bytes of a file with variables or a secret."""

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_QUOTED = r"""(?P<quote>["'])(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)\s*(?:#.*)?"""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class Environment(NamedTuple):
    """Variables for all roles, as given on the command line.

    Attributes:
        env: values of `--env`; macros in them are replaced, as in the variables of a component.
        files: values of `--env-file`.
        secrets: values of `--secret`.
    """

    env: Sequence[str] = ()
    files: Sequence[str] = ()
    secrets: Sequence[str] = ()

    def apply(self, app: AppDef) -> None:
        """Sets the variables in all roles; they override those of the component.

        Raises:
            UsageError: a variable or a file is invalid or missing.
        """
        variables = dict(self._variables())
        for role in app.roles:
            role.env.update(variables)
        own = secrets_in_environment(os.environ)  # arguments may contain them
        add_values(value for value in own if not os.path.exists(value))  # noqa: PTH110  # a file is no secret

    def _variables(self) -> Iterator[tuple[str, str]]:
        """Yields the variables; later ones override earlier ones."""
        for path in self.files:
            for name, value in read_env_file(path):
                yield name, value.replace("$", "$$")  # a file is literal: no macros
        for text in self.env:
            name, equals, value = text.partition("=")
            _check_name("--env", name)
            yield name, value if equals else _own_variable("--env", name).replace("$", "$$")
        for text in self.secrets:
            name, equals, source = text.partition("=")
            _check_name("--secret", name)
            add_references([name])
            if equals and not source.startswith("@"):
                raise UsageError(
                    "--secret takes NAME or NAME=@FILE, as other users can see a value in an argument",
                    hint=f"export {name}=..., then give its name alone: --secret {name}",
                )
            add_references([text, source])  # neither is secret
            if equals:
                value = _read("--secret", source[1:])
            else:
                value = _own_variable("--secret", name)
            yield name, SecretValue(value.removesuffix("\n").removesuffix("\r") if equals else value)


def read_env_file(path: str) -> Iterator[tuple[str, str]]:
    """Yields the variables of a file with lines `NAME=VALUE`.

    Blank lines and those that begin with `#` are ignored, as is `export` before a name. A value may be
    quoted; double quotes allow `\\n`. A line `NAME` takes the value of this process, if it has one.

    Raises:
        UsageError: the file cannot be read, or a line is invalid.
    """
    for number, line in enumerate(_read("--env-file", path).removeprefix("\ufeff").split("\n"), start=1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = (part.strip() for part in text.partition("="))
        if not re.fullmatch(_NAME, name):
            raise UsageError(f"{path} line {number}: expected NAME=VALUE")
        if equals:
            yield name, _unquoted(value)
        elif name in os.environ:
            yield name, os.environ[name]


def _unquoted(value: str) -> str:
    quoted = re.fullmatch(_QUOTED, value)
    if quoted is None:
        return re.split(r"\s+#", value, maxsplit=1)[0].rstrip()
    if quoted["quote"] == "'":
        return quoted["text"]
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), quoted["text"])


def _check_name(flag: str, name: str) -> None:
    if not re.fullmatch(_NAME, name):
        raise UsageError(
            f"{flag} takes the name of a variable, got `{name}`",
            hint="a letter or _, then letters, digits and _",
        )


def _own_variable(flag: str, name: str) -> str:
    if name not in os.environ:
        other = "@FILE" if flag == "--secret" else "VALUE"
        raise UsageError(
            f"the variable {name} of {flag} is not set here", hint=f"set it, or give NAME={other}"
        )
    return os.environ[name]


def _read(flag: str, path: str) -> str:
    try:
        with expanded(path).open("rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise UsageError(f"{path} (from {flag}) is larger than {LARGEST >> 20} MB")
        text = data.decode()
    except OSError as error:
        raise unreadable(f"{path} (from {flag})", path, error) from error
    except UnicodeDecodeError:
        raise UsageError(f"{path} (from {flag}) is not UTF-8") from None
    if "\0" in text:
        raise UsageError(f"{path} (from {flag}) contains a zero byte")
    return text
