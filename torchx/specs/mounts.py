"""Mounts of a replica's container, and their form on a command line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from torchx.errors import UsageError
from torchx.suggestions import did_you_mean


class MountType(str, Enum):
    """The kinds of mounts."""

    BIND = "bind"
    VOLUME = "volume"
    DEVICE = "device"
    TMPFS = "tmpfs"


@dataclass
class BindMount:
    """A file or folder of the host, visible in the container.

    Attributes:
        src_path: path on the host.
        dst_path: path in the container.
        read_only: whether the container may only read it.
    """

    src_path: str
    dst_path: str
    read_only: bool = False


@dataclass
class VolumeMount:
    """A named volume of the engine.

    Attributes:
        src: name or id of the volume.
        dst_path: path in the container.
        read_only: whether the container may only read it.
    """

    src: str
    dst_path: str
    read_only: bool = False


@dataclass
class DeviceMount:
    """A device of the host.

    Attributes:
        src_path: path on the host.
        dst_path: path in the container.
        permissions: some of ``r`` (read), ``w`` (write), ``m`` (make nodes).
    """

    src_path: str
    dst_path: str
    permissions: str = "rwm"


@dataclass
class TmpfsMount:
    """A folder in memory, empty at the start and removed with the container.

    Attributes:
        dst_path: path in the container.
        size_mb: its size in MB; None for the engine's limit.
    """

    dst_path: str
    size_mb: int | None = None


Mount = BindMount | VolumeMount | DeviceMount | TmpfsMount

_KEYS = {
    "type": "type",
    "destination": "dst",
    "dst": "dst",
    "target": "dst",
    "read_only": "readonly",
    "readonly": "readonly",
    "source": "src",
    "src": "src",
    "perm": "perm",
    "size": "size",
    "tmpfs-size": "size",
}
_DOCKER = r"([^:]+):(/[^:]*)(?::(ro|rw))?"
_UNITS = {"m": 1, "g": 1024}
_TRUE = ("", "true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")
_HINT = "e.g. type=bind,src=/data,dst=/data,readonly"


class MountError(UsageError, ValueError, KeyError):
    """The options of a mount are invalid (a UsageError, also a ValueError and a KeyError)."""

    code = "invalid_mount"


def parse_mounts(opts: Sequence[str]) -> list[Mount]:
    """Parses mounts from the arguments of a command line.

    Each mount begins with ``type=bind``, ``type=volume``, ``type=device`` or ``type=tmpfs``; its other
    options follow: ``src=`` (or ``source=``), ``dst=`` (or ``destination=``, ``target=``), ``readonly`` (or
    ``read_only``, optionally with true or false), ``perm=`` (only for devices: some of the letters r, w, m)
    and ``size=`` (only for tmpfs, which has no source: such as 512m or 2g).
    An argument with ``type=`` may contain the others too, joined by commas. The form of Docker,
    ``SRC:DST[:ro]``, is a bind mount if the source is a path, else a volume. The source of a bind mount is
    relative to the working directory, ``~`` is the home folder; the default destination of a device is its
    source.

    Raises:
        MountError: an option is unknown, repeated or missing (a UsageError, also a ValueError and KeyError).

    >>> parse_mounts(["type=bind", "src=/data", "dst=/in", "readonly"])
    [BindMount(src_path='/data', dst_path='/in', read_only=True)]
    >>> parse_mounts(["/data:/in:ro"])
    [BindMount(src_path='/data', dst_path='/in', read_only=True)]
    >>> parse_mounts(["type=device,src=/dev/fuse,perm=rw"])
    [DeviceMount(src_path='/dev/fuse', dst_path='/dev/fuse', permissions='rw')]
    >>> parse_mounts(["type=tmpfs,dst=/scratch,size=2g"])
    [TmpfsMount(dst_path='/scratch', size_mb=2048)]
    """
    groups: list[dict[str, str]] = []
    for option in _split(opts):
        name, _, value = option.partition("=")
        key = _KEYS.get(name)
        if key is None:
            raise MountError(
                f"unknown mount option `{name}`; options: type, src, dst, readonly, perm, size",
                hint=did_you_mean(name, _KEYS, _HINT),
            )
        if key == "type":
            groups.append({})
        elif not groups:
            raise MountError(f"a mount must begin with its type, got `{option}`", hint=_HINT)
        if key in groups[-1]:
            raise MountError(f"repeated mount option `{name}`", hint=_HINT)
        groups[-1][key] = value
    return [_mount(group) for group in groups]


def _split(opts: Sequence[str]) -> Iterator[str]:
    for opt in opts:
        docker = re.fullmatch(_DOCKER, opt.strip())
        if docker is not None and opt.strip().partition("=")[0] not in _KEYS:
            src, dst, readonly = docker.groups()
            kind = ("volume", "bind")[src[0] in "/.~"]
            yield from (f"type={kind}", f"src={src}", f"dst={dst}", f"readonly={readonly == 'ro'}")
            continue
        # a single option may be a path with a comma
        for option in opt.split(",") if opt.strip().startswith("type=") else [opt]:
            if option.strip():
                yield option.strip()


def _mount(group: dict[str, str]) -> Mount:
    kind = group["type"]
    if kind not in [t.value for t in MountType]:
        raise MountError(
            f"unknown mount type `{kind}`; types: bind, volume, device, tmpfs",
            hint=did_you_mean(kind, [t.value for t in MountType], _HINT),
        )
    if kind == MountType.TMPFS.value:
        for key in ("src", "readonly", "perm"):
            _refuse(group, key, hint="e.g. type=tmpfs,dst=/scratch,size=2g")
        return TmpfsMount(_needed(group, "dst"), _size_mb(group.get("size")))
    _refuse(group, "size", hint="size is only for type=tmpfs")
    src = _needed(group, "src")
    if kind == MountType.DEVICE.value:
        _refuse(group, "readonly", hint="perm=r makes a device read-only")
        return DeviceMount(src, group.get("dst") or src, _permissions(group.get("perm", "rwm")))
    _refuse(group, "perm", hint="readonly makes a bind or volume mount read-only")
    dst, read_only = _needed(group, "dst"), _read_only(group)
    if kind == MountType.VOLUME.value:
        return VolumeMount(src, dst, read_only)
    if src.startswith("~"):
        src = os.path.expanduser(src)  # noqa: PTH111 (text in, text out: a Path would rewrite it)
    elif not src.startswith(("/", "$", "{")):  # neither absolute nor a macro
        src = os.path.abspath(src)  # noqa: PTH100
    return BindMount(src, dst, read_only)


def _needed(group: dict[str, str], key: str) -> str:
    value = group.get(key)
    if not value:
        raise MountError(f"a {group['type']} mount needs `{key}=`", hint=_HINT)
    return value


def _refuse(group: dict[str, str], key: str, hint: str) -> None:
    if key in group:
        raise MountError(f"`{key}` is not an option of a {group['type']} mount", hint=hint)


def _read_only(group: dict[str, str]) -> bool:
    if "readonly" not in group:
        return False
    value = group["readonly"].lower()
    if value not in _TRUE + _FALSE:
        raise MountError(f"`readonly` of a mount must be true or false, got `{value}`", hint=_HINT)
    return value in _TRUE


def _size_mb(text: str | None) -> int | None:
    if text is None:
        return None
    number, unit = text[:-1], text[-1:].lower()
    if unit not in _UNITS or not number.isdecimal() or int(number) == 0:
        raise MountError(
            f"a tmpfs size is a number with m or g, such as 512m; got `{text}`", hint="size=512m"
        )
    return int(number) * _UNITS[unit]


def _permissions(text: str) -> str:
    wrong = [letter for letter in text if letter not in "rwm"]
    if wrong or not text:
        raise MountError(
            f"device permissions are letters of r, w and m; got `{text}`",
            hint="e.g. type=device,src=/dev/fuse,perm=rw",
        )
    return text
