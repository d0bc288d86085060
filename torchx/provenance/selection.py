"""The files whose content is kept: those that a workspace would include, so that no secret is recorded."""

from __future__ import annotations

from collections.abc import Iterable

from torchx.errors import TorchxError
from torchx.workspace.ignore import BUILT_IN, PRIVATE, Rules, State, is_built_in, maybe_key
from torchx.workspace.private import holds_private_key
from torchx.workspace.projects import Folder

LISTED = "it is on the list of private and generated files"
PRIVATE_KEY = "it has a private key"
VIRTUAL_ENVIRONMENT = "it is part of a virtual environment"


class Selection:
    """Decides on the files of a working tree.

    Args:
        top: the root of the working tree.
        untracked: the paths of all untracked files.

    Attributes:
        note: the reason why the ignore files of the tree are not applied; empty if they are.
    """

    def __init__(self, top: str, untracked: Iterable[str]) -> None:
        self.note = ""
        self._venvs = tuple(
            path.removesuffix("pyvenv.cfg") for path in untracked if path.endswith("/pyvenv.cfg")
        )
        try:
            self._rules = Folder(top, top).rules()
        except TorchxError as error:
            self.note = f"no untracked file is kept: {error.message}"
            self._rules = Rules([])
        self._folders: dict[str, tuple[str | None, State]] = {"": (None, self._rules.top)}

    def reason_against(self, path: str, *, tracked: bool) -> str:
        """Returns the reason why the content of a file is not kept, or an empty string.

        Args:
            path: the file.
            tracked: git knows it, so that only the built-in list counts.
        """
        if tracked:
            if any(map(is_built_in, path.split("/"))):
                return LISTED
            return ""
        if self.note:
            return self.note
        if path.startswith(self._venvs):
            return VIRTUAL_ENVIRONMENT
        source = self._state(path, is_dir=False)[0]
        if source in (BUILT_IN, PRIVATE):
            return LISTED
        if source is not None:
            return f"excluded by {source}"
        return ""

    def reason_against_content(self, path: str, content: bytes) -> str:
        """Returns the reason why the content of a file is not kept, or an empty string."""
        private = maybe_key(path) and not self._rules.names_key(path) and holds_private_key(content)
        if private:
            return PRIVATE_KEY
        return ""

    def _state(self, path: str, *, is_dir: bool) -> tuple[str | None, State]:
        known = self._folders.get(path) if is_dir else None
        if known is not None:
            return known
        above, _, name = path.rpartition("/")
        _, state = self._state(above, is_dir=True)
        found = self._rules.match(path, name, state, is_dir=is_dir)
        if is_dir:
            self._folders[path] = found
        return found
