"""The few file operations of the sink, over local disks and every filesystem that Beam knows.

Local directories are listed with `os`: Beam's own listing walks the whole tree and takes names for patterns.
Object stores have no directories; there a directory is the set of files under its name.
"""

from __future__ import annotations

import os
import re

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from headcount.mechanisms.errors import ParameterError


def is_local(path: str) -> bool:
    """Whether a path lies on this machine's disks."""
    return FileSystems.get_scheme(path) is None


def normal(path: str) -> str:
    """The one spelling of the output directory: absolute if local, without a slash at the end."""
    if is_local(path):
        return os.path.abspath(path)
    try:
        FileSystems.get_filesystem(path)
    except ValueError:
        raise ParameterError(
            f"no filesystem is known for --output {path!r}; the extras headcount[gcp], headcount[aws] and "
            "headcount[hadoop] bring gs://, s3:// and hdfs://"
        ) from None
    if re.search(r"[*?\[\]]", path):
        raise ParameterError(f"--output must be a plain path without wildcards, got {path!r}")
    return path.rstrip("/")


def join(directory: str, name: str) -> str:
    """The path of a file in a directory."""
    return os.path.join(directory, name) if is_local(directory) else f"{directory}/{name}"


def names(directory: str) -> list[str]:
    """What lies in a directory, sorted; nothing if there is none. Deeper names keep their path."""
    if is_local(directory):
        return sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    prefix = f"{directory}/"
    found = FileSystems.match([f"{prefix}**"])[0].metadata_list
    return sorted(file.path.removeprefix(prefix) for file in found)


def siblings(path: str, infix: str) -> list[str]:
    """The directories whose name is that of `path` followed by `infix` and more."""
    if is_local(path):
        parent, name = os.path.split(path)
        if not os.path.isdir(parent):
            return []
        found = [other for other in os.listdir(parent) if other.startswith(name + infix)]
        paths = sorted(os.path.join(parent, other) for other in found)
        return [other for other in paths if os.path.isdir(other) and not os.path.islink(other)]
    files = FileSystems.match([f"{path}{infix}**"])[0].metadata_list
    start = len(path) + len(infix)
    return sorted({file.path[: file.path.index("/", start)] for file in files if "/" in file.path[start:]})


def exists(path: str) -> bool:
    """Whether there is a file (locally also: a directory) at this path."""
    return bool(FileSystems.exists(path))


def read(path: str) -> bytes:
    """The content of one small file."""
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        return bytes(file.read())


def write(path: str, content: bytes) -> None:
    """Write one file; local parent directories are made."""
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(content)


def make_directory(path: str) -> None:
    """Make a directory and its parents unless it is there; no more than a name on an object store."""
    if is_local(path):
        os.makedirs(path, exist_ok=True)
    else:
        try:
            FileSystems.mkdirs(path)
        except OSError:
            if not exists(path):
                raise


def move(source: str, target: str) -> None:
    """Move one file, replacing the target."""
    try:
        FileSystems.rename([source], [target])
    except BeamIOError:
        # Some filesystems do not replace; a target that was there must go first.
        if not (exists(source) and exists(target)):
            raise
        remove(target)
        FileSystems.rename([source], [target])


def remove(path: str) -> None:
    """Remove one file; none there is fine."""
    if is_local(path):
        try:
            os.remove(path)
        except FileNotFoundError:
            pass
    elif exists(path):
        try:
            FileSystems.delete([path])
        except BeamIOError:
            if exists(path):
                raise


def remove_files(directory: str, files: list[str]) -> None:
    """Remove these files of a directory, and the directory if it is empty then."""
    for name in files:
        remove(join(directory, name))
    if is_local(directory):
        if os.path.isdir(directory) and not os.listdir(directory):
            os.rmdir(directory)
    elif FileSystems.get_filesystem(directory).has_dirs() and exists(directory) and not names(directory):
        FileSystems.delete([directory])
