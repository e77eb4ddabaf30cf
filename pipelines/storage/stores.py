"""The few file operations of sources and sinks, over local disks and every filesystem that Beam knows.

Local files are the operating system's business: what stays on this machine needs no Beam, whose own listing walks the whole
tree and takes names for patterns.
Object stores have no directories; there a directory is the set of files under its name. Their objects appear whole or
not at all, when they are closed; a move is a copy and a delete.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.errors import ParameterError

if TYPE_CHECKING:
    from apache_beam.io.filesystem import FileSystem

_RANGE_BYTES = 1 << 16
_SCHEME = re.compile("([a-zA-Z][-a-zA-Z0-9+.]*)://")

# The extra that brings a scheme, and the module by which we see that it is installed.
_EXTRAS = {"gs": ("gcp", "google.cloud.storage"), "s3": ("aws", "boto3"), "hdfs": ("hadoop", "hdfs")}


def scheme_of(path: str) -> str | None:
    """What a path begins with, such as gs; None for one on this machine's disks."""
    found = _SCHEME.match(path)
    return None if found is None else found.group(1)


def is_local(path: str) -> bool:
    """Whether a path lies on this machine's disks."""
    return scheme_of(path) is None


def _beam() -> Any:
    """Beam's filesystems, for what is not on this machine."""
    from apache_beam.io.filesystems import FileSystems

    return FileSystems


def require_extra(path: str, extra: str, module: str) -> None:
    """Refuse a path whose libraries are not installed."""
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        raise ParameterError(f"{path!r} needs the extra headcount[{extra}]: pip install '.[{extra}]' in its checkout")


def filesystem(path: str) -> FileSystem:
    """Beam's filesystem of a path that is not local; refuses one that is not known, not installed or not set up."""
    from apache_beam.io.filesystem import BeamIOError, FileSystem

    filesystems = _beam()  # whose module also tells Beam of them
    scheme = scheme_of(path)
    if scheme in _EXTRAS:
        require_extra(path, *_EXTRAS[scheme])
    elif all(known.scheme() != scheme for known in FileSystem.get_all_subclasses()):
        raise ParameterError(
            f"no filesystem is known for {scheme}://, got {path!r}; there are gs://, s3:// and hdfs://"
        )
    try:
        found: FileSystem = filesystems.get_filesystem(path)
        return found
    except (ValueError, BeamIOError) as error:  # a flag of Beam that is missing, such as --hdfs_host
        raise ParameterError(f"{path!r} cannot be reached: {reason(error)}") from None


def reason(error: BaseException) -> str:
    """What a storage library says, as one line. All it can tell is about a place, not about content."""
    words = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
    return " ".join(words.split())[:300]


def normal(path: str, given: str = "--output") -> str:
    """The one spelling of the output directory, given by this name: absolute if local, without a slash at the end."""
    if is_local(path):
        return os.path.abspath(path)
    filesystem(path)
    if re.search(r"[*?\[\]]", path):
        raise ParameterError(f"{given} must be a plain path without wildcards, got {path!r}")
    directory = path.rstrip("/")
    if not re.fullmatch(r"[^:]+://[^/]+/.+", directory):
        raise ParameterError(f"{given} must name a directory, such as {directory}/out, got {path!r}")
    return directory


def join(directory: str, name: str) -> str:
    """The path of a file in a directory."""
    return os.path.join(directory, name) if is_local(directory) else f"{directory}/{name}"


def names(directory: str) -> list[str]:
    """What lies in a directory, sorted; nothing if there is none. Deeper names keep their path."""
    if is_local(directory):
        return sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    if filesystem(directory).has_dirs() and not exists(directory):
        return []  # where there are directories, to list one that is missing is an error
    prefix = f"{directory}/"
    found = _beam().match([f"{prefix}**"])[0].metadata_list
    return sorted(file.path.removeprefix(prefix) for file in found)


def is_folder(path: str) -> bool:
    """Whether a path is known for a folder; an object store knows that of its buckets alone."""
    if is_local(path):
        return os.path.isdir(path)
    if scheme_of(path) != "hdfs":
        return re.fullmatch(r"[^:]+://[^/]+/?", path) is not None
    found = filesystem(path)
    return _exists_hdfs(path) and found._hdfs_client.status(found._parse_url(path)[1])["type"] == "DIRECTORY"


def files_below(folder: str, is_hidden: Callable[[str], bool]) -> list[tuple[str, int]]:
    """All files, with their sizes, of a folder and of the folders in it, but for hidden names; none if it is not there.

    An object store is asked by one listing.
    """
    folder = folder.rstrip("/") or "/"
    if is_local(folder):
        return [*_local_files(folder, is_hidden, set())] if os.path.isdir(folder) else []
    if scheme_of(folder) == "hdfs":
        return [*_hdfs_files(folder, is_hidden)] if is_folder(folder) else []
    found = matched(f"{folder}/**")
    below = len(folder) + 1
    return [
        (path, size)
        for path, size in found
        if not path.endswith("/") and not any(map(is_hidden, path[below:].split("/")))
    ]


def matched(pattern: str) -> list[tuple[str, int]]:
    """The files, with their sizes, that match a pattern that is not local, by Beam's rules and one listing."""
    return [(file.path, file.size_in_bytes) for file in _beam().match([pattern])[0].metadata_list]


def siblings(path: str, infix: str) -> list[str]:
    """The directories whose name is that of `path` followed by `infix` and more."""
    if is_local(path):
        parent, name = os.path.split(path)
        if not os.path.isdir(parent):
            return []
        found = [other for other in os.listdir(parent) if other.startswith(name + infix)]
        paths = sorted(os.path.join(parent, other) for other in found)
        return [other for other in paths if os.path.isdir(other) and not os.path.islink(other)]
    if filesystem(path).has_dirs():
        if not exists(path.rpartition("/")[0]):
            return []
        return sorted(entry.path for entry in _beam().match([f"{path}{infix}*"])[0].metadata_list)
    files = _beam().match([f"{path}{infix}**"])[0].metadata_list
    start = len(path) + len(infix)
    return sorted({file.path[: file.path.index("/", start)] for file in files if "/" in file.path[start:]})


def exists(path: str) -> bool:
    """Whether there is a file (locally also: a directory) at this path."""
    if is_local(path):
        return os.path.exists(path)
    return _exists_hdfs(path) if scheme_of(path) == "hdfs" else bool(_beam().exists(path))


def read(path: str) -> bytes:
    """The content of one small file."""
    with open(path, "rb") if is_local(path) else opened(path) as file:
        return bytes(file.read())


def open_ranges(path: str) -> io.BufferedIOBase:
    """A file that is not local, for reads here and there: little more is fetched than what is asked for.

    Beam's own buffers fetch 16 MiB at a time; of a Parquet file with many columns that is most of it.
    """
    if scheme_of(path) == "gs":
        from apache_beam.io.gcp import gcsio

        client = gcsio.GcsIO(pipeline_options=filesystem(path)._pipeline_options)
        return client.open(path, "rb", read_buffer_size=_RANGE_BYTES)
    file = opened(path)
    if isinstance(file, io.BufferedReader):
        return io.BufferedReader(file.detach(), _RANGE_BYTES)
    return file


def write(path: str, content: bytes) -> None:
    """Write one file; local parent directories are made."""
    if is_local(path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        return
    if not content and scheme_of(path) == "s3":
        _write_empty_s3(path)
        return
    from apache_beam.io.filesystem import CompressionTypes

    with _beam().create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(content)


def make_directory(path: str) -> None:
    """Make a directory and its parents unless it is there; no more than a name on an object store."""
    if is_local(path):
        os.makedirs(path, exist_ok=True)
    else:
        try:
            _beam().mkdirs(path)
        except OSError:
            if not exists(path):
                raise


def move(source: str, target: str) -> None:
    """Move one file, replacing the target."""
    if is_local(source):
        os.rename(source, target)
        return
    from apache_beam.io.filesystem import BeamIOError

    try:
        _beam().rename([source], [target])
    except BeamIOError:
        # HDFS alone does not replace. Nowhere else may a target go before the source is in its place.
        if not filesystem(source).has_dirs() or not (exists(source) and exists(target)):
            raise
        remove(target)
        _beam().rename([source], [target])


def remove(path: str) -> None:
    """Remove one file; none there is fine."""
    if is_local(path):
        try:
            os.remove(path)
        except FileNotFoundError:
            pass
    else:
        from apache_beam.io.filesystem import BeamIOError

        try:
            _beam().delete([path])
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
    elif filesystem(directory).has_dirs() and exists(directory) and not names(directory):
        _beam().delete([directory])


def opened(path: str) -> Any:
    """A file that is not local, as it lies there."""
    from apache_beam.io.filesystem import CompressionTypes

    return _beam().open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def _local_files(folder: str, is_hidden: Callable[[str], bool], seen: set[str]) -> Iterator[tuple[str, int]]:
    """Each folder once, whatever links lead to it, and by a link only if there is no other way in the same folder."""
    real = os.path.realpath(folder)
    if real in seen:
        return
    seen.add(real)
    with os.scandir(folder) as scan:
        entries = sorted(scan, key=lambda entry: (entry.is_symlink(), entry.name))
    for entry in entries:
        if is_hidden(entry.name):
            continue
        path = os.path.join(folder, entry.name)
        if entry.is_dir():
            yield from _local_files(path, is_hidden, seen)
        else:
            yield path, entry.stat().st_size


def _hdfs_files(folder: str, is_hidden: Callable[[str], bool]) -> Iterator[tuple[str, int]]:
    """By one listing for each folder: Beam's own stops at the first."""
    found = filesystem(folder)
    for name, status in found._hdfs_client.list(found._parse_url(folder)[1], status=True):
        if is_hidden(name):
            continue
        path = f"{folder}/{name}"
        if status["type"] == "DIRECTORY":
            yield from _hdfs_files(path, is_hidden)
        else:
            yield path, status["length"]


def _exists_hdfs(path: str) -> bool:
    """Whether HDFS has this file or directory; Beam's own answer is no where the server failed to answer."""
    from hdfs import HdfsError

    found = filesystem(path)
    try:
        found._hdfs_client.status(found._parse_url(path)[1])
    except HdfsError as error:
        if error.exception == "FileNotFoundException":
            return False
        raise
    return True


def _write_empty_s3(path: str) -> None:
    """An object of no bytes, which Beam's own uploads cannot make: S3 refuses an upload of no parts."""
    from apache_beam.io.aws import s3io

    bucket, key = s3io.parse_s3_path(path)
    s3io.S3IO(options=filesystem(path)._options).client.client.put_object(Bucket=bucket, Key=key, Body=b"")
