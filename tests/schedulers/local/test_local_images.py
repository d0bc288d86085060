"""The scheduler local_dir: the image is a folder, or an archive that becomes one."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest
from local import scheduler as cwd

from torchx.errors import UsageError
from torchx.schedulers.local.scheduler import LocalScheduler, create_dir_scheduler
from torchx.specs.app import AppDef, Role


@pytest.fixture
def image(tmp_path: Path) -> Path:
    folder = tmp_path / "image"
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "hello"
    program.write_text("#!/bin/sh\necho $1 $(cat data) $(pwd)\n")
    program.chmod(0o755)
    (folder / "main").symlink_to("bin/hello")
    (folder / "data").write_text("one")
    return folder


def run(image: str, entrypoint: str = "bin/hello", *args: str) -> tuple[LocalScheduler, str]:
    scheduler = create_dir_scheduler("torchx")
    role = Role("w", image=image, entrypoint=entrypoint, args=list(args) or ["${img_root}"])
    app_id = scheduler.submit(AppDef("job", [role]), {})
    assert scheduler.wait(app_id, 60)
    return scheduler, app_id


def output(scheduler: LocalScheduler, app_id: str) -> str:
    return "".join(scheduler.log_iter(app_id, "w"))


def test_a_folder_is_an_image(image: Path) -> None:
    scheduler, app_id = run(str(image))
    assert output(scheduler, app_id) == f"{image} one {image}\n"
    assert scheduler.describe(app_id) is not None


def test_program_that_image_lacks_is_found_on_path(image: Path) -> None:
    scheduler, app_id = run(str(image), "cat", "data")
    assert output(scheduler, app_id) == "one"
    scheduler, app_id = run(str(image), "main", "x")
    assert output(scheduler, app_id) == f"x one {image}\n"


@pytest.mark.parametrize("kind", [".tar", ".tar.gz", ".zip"])
@pytest.mark.parametrize("prefix", ["", "file://"])
def test_an_archive_is_unpacked_once_for_each_version(
    image: Path, tmp_path: Path, kind: str, prefix: str
) -> None:
    archive = tmp_path / f"app{kind}"

    def pack() -> None:
        if kind == ".zip":
            with zipfile.ZipFile(archive, "w") as zipped:
                zipped.write(image / "bin/hello", "bin/hello")
                zipped.write(image / "data", "data")
        else:
            with tarfile.open(archive, "w:gz" if kind.endswith("gz") else "w") as tar:
                tar.add(image, ".")

    pack()
    (scheduler, one), (_, two) = run(prefix + str(archive)), run(prefix + str(archive))
    root, data, cwd = output(scheduler, one).split()
    assert (data, cwd) == ("one", root)
    assert output(scheduler, two).split() == [root, data, cwd]
    (image / "data").write_text("another")
    pack()
    _, three = run(prefix + str(archive))
    assert output(scheduler, three).split()[1] == "another"
    assert output(scheduler, three).split()[0] != root


def test_a_dry_run_unpacks_nothing(image: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "app.tar", "w") as tar:
        tar.add(image, ".")
    role = Role("w", image=str(tmp_path / "app.tar"), entrypoint="bin/hello", args=["${img_root}"])
    info = create_dir_scheduler("torchx").submit_dryrun(AppDef("job", [role]), {})
    (root,) = info.request.role_params["w"][0].args[1:]
    assert not Path(root).exists()


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("no-such-folder", "neither a folder nor an archive"),
        ("no-such.tar", "does not exist"),
        ("nope://bucket/app.zip", "cannot be opened"),
    ],
)
def test_an_image_that_is_none_is_refused(image: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(image)


def test_archive_that_is_damaged_or_reaches_out_is_refused(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(b"PK no zip")
    with pytest.raises(UsageError, match="not a valid archive"):
        run(str(damaged))
    (tmp_path / "none.tar").write_bytes(b"no tar")
    with pytest.raises(UsageError) as none:
        run(str(tmp_path / "none.tar"))
    assert none.value.message.endswith("not a valid archive: file could not be opened successfully")
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as tar:
        tar.add(damaged, "../../evil")
    with pytest.raises(UsageError, match="not a valid archive"):
        run(str(evil))
    assert not list(tmp_path.rglob("evil"))


def test_jobs_of_the_two_local_schedulers_are_kept_apart(image: Path) -> None:
    scheduler, app_id = run(str(image), "cat", "data")
    assert cwd().describe(app_id) is None
    assert list(cwd().list()) == []
    assert [line.app_id for line in scheduler.list()] == [app_id]
