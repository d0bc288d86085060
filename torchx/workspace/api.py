"""The workspace API for plugins: a base class for schedulers that build workspaces, and a folder walk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torchx.errors import RunOptionError
from torchx.json_limits import Data
from torchx.lazy import lazy_imports
from torchx.workspace.ignore import Rules, State, parse

with lazy_imports:
    from torchx.specs import run_options

if TYPE_CHECKING:
    from torchx.specs.app import AppDef, Role
    from torchx.specs.run_options import RunOptions
    from torchx.specs.workspace import Workspace

T = TypeVar("T")
Walk = Iterator[tuple[str, list[str], dict[str, Data]]]

TORCHX_IGNORE = ".torchxignore"
TYPE = "workspace_type"


def __getattr__(name: str) -> Any:
    if name not in ("PkgInfo", "WorkspaceBuilder"):
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    import warnings

    from torchx.workspace import deprecated

    warnings.warn(f"torchx.workspace.{name} is deprecated and unused", DeprecationWarning, stacklevel=2)
    return getattr(deprecated, name)


class WorkspaceMixin(Generic[T]):
    """Adds workspaces to a scheduler that builds them on a dry-run.

    ``T`` is the return type of :meth:`dryrun_push_images`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def workspace_opts(self) -> run_options.runopts:
        """Returns the run options that workspaces add to the scheduler's."""
        return run_options.runopts()

    def build_workspaces(self, roles: Iterable[Role], cfg: RunOptions) -> None:
        """Builds the workspace of each role that has one; equal workspaces of equal images only once."""
        built: dict[object, object] = {}
        for role in roles:
            if role.workspace:
                self.caching_build_workspace_and_update_role(role, cfg, built)

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: RunOptions, build_cache: dict[object, object]
    ) -> None:
        """Builds the workspace of a role, unless an equal one over the same image was built before.

        Args:
            role: its image is set to the result.
            cfg: the run options.
            build_cache: the images built so far, passed to each call.
        """
        assert role.workspace is not None
        key = (role.image, tuple(role.workspace.projects.items()))
        if key not in build_cache:
            self.build_workspace_and_update_role(role, role.workspace, cfg)
            build_cache[key] = role.image
        role.image = str(build_cache[key])

    def build_workspace_and_update_role(
        self, role: Role, workspace: str | Workspace, cfg: RunOptions
    ) -> None:
        """Builds a workspace on top of a role's image, and sets ``role.image`` to the result."""
        raise NotImplementedError(f"{type(self).__name__} does not build workspaces")

    def dryrun_push_images(self, app: AppDef, cfg: RunOptions) -> T:
        """Returns the images for :meth:`push_images`, and sets the roles' images to their new names."""
        raise NotImplementedError(f"{type(self).__name__} does not push images")

    def push_images(self, images_to_push: T) -> None:
        """Pushes the images returned by :meth:`dryrun_push_images`."""
        raise NotImplementedError(f"{type(self).__name__} does not push images")


class MultiWorkspaceMixin(WorkspaceMixin[tuple[str, Any]]):
    """Adds several ways to build workspaces to a scheduler; the run option ``workspace_type`` selects one."""

    def workspace_builders(self) -> Mapping[str, WorkspaceMixin[Any]]:
        """Returns the builders by name; the first is the default."""
        raise NotImplementedError

    def workspace_builder(self, cfg: RunOptions) -> tuple[str, WorkspaceMixin[Any]]:
        """Returns the name of the selected builder, and the builder.

        Raises:
            UsageError: none has this name.
        """
        builders = self.workspace_builders()
        name = str(cfg.get(TYPE) or next(iter(builders)))
        if name not in builders:
            raise RunOptionError(TYPE, f"is `{name}`, expected one of {', '.join(builders)}")
        return name, builders[name]

    def workspace_opts(self) -> run_options.runopts:
        """Returns the run options of all builders, and the option that selects one."""
        opts, names = run_options.runopts(), list(self.workspace_builders())
        opts.add(TYPE, str, f"how to send a workspace: {', '.join(names)}", names[0])
        for builder in self.workspace_builders().values():
            opts |= builder.workspace_opts()
        return opts

    def build_workspace_and_update_role(
        self, role: Role, workspace: str | Workspace, cfg: RunOptions
    ) -> None:
        """Builds a workspace with the selected builder."""
        self.workspace_builder(cfg)[1].build_workspace_and_update_role(role, workspace, cfg)

    def dryrun_push_images(self, app: AppDef, cfg: RunOptions) -> tuple[str, Any]:
        """Returns the name of the selected builder and its images."""
        name, builder = self.workspace_builder(cfg)
        return name, builder.dryrun_push_images(app, cfg)

    def push_images(self, images_to_push: tuple[str, Any]) -> None:
        """Pushes the images with their builder."""
        name, images = images_to_push
        self.workspace_builders()[name].push_images(images)


def pin_workspace_images(app: AppDef, images: AppDef) -> None:
    """Sets the images of workspaces that were built, so that a submission does not build them.

    Args:
        app: the application; changed.
        images: the result of ``Runner.build_workspace`` for this application.
    """
    for role, built in zip(app.roles, images.roles, strict=True):
        role.image, role.workspace = built.image, built.workspace


def walk_workspace(fs: Any, path: str, ignore_name: str = TORCHX_IGNORE) -> Walk:
    """Walks through a folder, without the paths excluded by its ignore file.

    Args:
        fs: an fsspec file system.
        path: the folder.
        ignore_name: the name of the ignore file at its top.

    Yields:
        A folder, the names of its subfolders, and its files: name -> fsspec's info.
    """
    root = fs._strip_protocol(path).rstrip("/")
    ignore = f"{root}/{ignore_name}"
    text = ""
    if fs.exists(ignore):
        text = fs.cat_file(ignore).decode()
    rules = Rules(parse(text, ignore_name), unfiltered=True)

    def below(folder: str, inside: str, state: State) -> Walk:
        dirs: dict[str, tuple[str, State, bool]] = {}
        files: dict[str, Data] = {}
        for info in sorted(fs.ls(folder, detail=True), key=lambda info: str(info["name"])):
            name = info["name"].rstrip("/").rpartition("/")[2]
            at = f"{inside}/{name}" if inside else name
            is_dir = info["type"] == "directory"
            why, inner = rules.match(at, name, state, is_dir=is_dir)
            if is_dir and (why is None or rules.may_include_below(at, inner)):
                dirs[name] = (at, inner, why is None)
            elif not is_dir and why is None:
                files[name] = info
        # an excluded folder may contain included files
        yield folder, [name for name, (_, _, included) in dirs.items() if included], files
        for name, (at, inner, _) in dirs.items():
            yield from below(f"{folder}/{name}", at, inner)

    yield from below(root, "", rules.top)
