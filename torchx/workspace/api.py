"""What plugins for TorchX know of workspaces: a base class for schedulers that build them, and a walk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torchx.workspace.ignore import Rules, State, parse

if TYPE_CHECKING:
    from torchx.specs.app import AppDef, Role
    from torchx.specs.run_options import CfgVal, runopts
    from torchx.specs.workspace import Workspace

T = TypeVar("T")
Walk = Iterator[tuple[str, list[str], dict[str, Mapping[str, Any]]]]

TORCHX_IGNORE = ".torchxignore"


def __getattr__(name: str) -> Any:
    if name not in ("PkgInfo", "WorkspaceBuilder"):
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    import warnings

    from torchx.workspace import deprecated

    warnings.warn(f"torchx.workspace.{name} has no use any more", DeprecationWarning, stacklevel=2)
    return getattr(deprecated, name)


class WorkspaceMixin(Generic[T]):
    """Lets a scheduler take workspaces; a base class beside its own, for those who build at the dry-run.

    ``T`` is the type of what :meth:`dryrun_push_images` returns.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def workspace_opts(self) -> runopts:
        """Returns the run options that workspaces add to those of the scheduler."""
        from torchx.specs.run_options import runopts

        return runopts()

    def build_workspaces(self, roles: Iterable[Role], cfg: Mapping[str, CfgVal]) -> None:
        """Builds the workspace of each role that has one; equal ones over equal images once."""
        built: dict[object, object] = {}
        for role in roles:
            if role.workspace:
                self.caching_build_workspace_and_update_role(role, cfg, built)

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Builds the workspace of a role, unless an equal one over the same image was built before.

        Args:
            role: its image is set to the result.
            cfg: the run options.
            build_cache: what was built, kept from one call to the next.
        """
        assert role.workspace is not None
        key = (role.image, tuple(role.workspace.projects.items()))
        if key not in build_cache:
            self.build_workspace_and_update_role(role, role.workspace, cfg)
            build_cache[key] = role.image
        role.image = str(build_cache[key])

    def build_workspace_and_update_role(
        self, role: Role, workspace: str | Workspace, cfg: Mapping[str, CfgVal]
    ) -> None:
        """Builds a workspace over the image of a role, and sets ``role.image`` to the result."""
        raise NotImplementedError(f"{type(self).__name__} builds no workspaces")

    def dryrun_push_images(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> T:
        """Names the images that :meth:`push_images` will push, and gives the roles their new names."""
        raise NotImplementedError(f"{type(self).__name__} pushes no images")

    def push_images(self, images_to_push: T) -> None:
        """Pushes images, as :meth:`dryrun_push_images` has named them."""
        raise NotImplementedError(f"{type(self).__name__} pushes no images")


def walk_workspace(fs: Any, path: str, ignore_name: str = TORCHX_IGNORE) -> Walk:
    """Walks through a folder, without what its ignore file leaves behind.

    Args:
        fs: a file system of fsspec.
        path: the folder there.
        ignore_name: the name of the ignore file at its top.

    Yields:
        A folder, the names of the folders in it, and its files by name with what is known of each.
    """
    root = fs._strip_protocol(path).rstrip("/")
    ignore = f"{root}/{ignore_name}"
    text = fs.cat_file(ignore).decode() if fs.exists(ignore) else ""
    rules = Rules(parse(text, ignore_name), whole=True)

    def below(folder: str, inside: str, state: State) -> Walk:
        dirs: dict[str, tuple[str, State, bool]] = {}
        files: dict[str, Mapping[str, Any]] = {}
        for info in sorted(fs.ls(folder, detail=True), key=lambda info: str(info["name"])):
            name = info["name"].rstrip("/").rpartition("/")[2]
            at = f"{inside}/{name}" if inside else name
            is_dir = info["type"] == "directory"
            why, found = rules.look(at, name, state, is_dir=is_dir)
            if is_dir and (why is None or rules.may_take_below(at, found)):
                dirs[name] = (at, found, why is None)
            elif not is_dir and why is None:
                files[name] = info
        # what stays behind itself may hold something that comes along
        yield folder, [name for name, (_, _, comes) in dirs.items() if comes], files
        for name, (at, found, _) in dirs.items():
            yield from below(f"{folder}/{name}", at, found)

    yield from below(root, "", rules.top)
