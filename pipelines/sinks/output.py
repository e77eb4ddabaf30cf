"""Where a result goes: files of rows and report.json, all or nothing.

An output is complete if and only if report.json is there. Files are written under `<output>.tmp-<release id>` with names unique
to the attempt, and one last step beyond a GroupByKey moves them into place and writes report.json at the end. So the commit
needs no driver that waits, and any step may run twice, also at the same time: a commit never removes what another attempt of it
put in place. The number of files and their names follow from public options alone, and the bytes from the rows alone.

The protocol is one and the same on disks and object stores. It needs of a storage that a file once written is found, that a
move puts the whole file in place or none, and nothing of locks or listings. A listing that lags behind can only leave files of
an earlier run.

Whoever waits for a job may then put a page beside its files, report.html, which is made from them and of which nothing depends:
an output is complete without it. It goes before the report that it was made from, so that it never stands beside another one.

Files are known for ours by their names: those that our report.json lists, whichever command wrote them, its page, and those
that a job like this one writes. So that the list outlives the report, a report that must go is set aside under the temporary
names first; whoever comes later, another attempt or the next job, still finds what it lists.

One job at a time may write to an output: a second one takes the first one's temporary files for leftovers,
and the first then fails without output.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa

from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.sinks.finished import finished, summary
from headcount.pipelines.sinks.formats import encode
from headcount.pipelines.sinks.meanings import key_meanings
from headcount.pipelines.sinks.repeated import REPORT_MARK, changed, is_of, is_same
from headcount.pipelines.storage import stores

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

REPORT = "report.json"
PAGE = "report.html"
COMPLETE = f"{REPORT} is there"
_LOOKS = 3  # at a file that attempts take away and put back
_EXTENSIONS = "parquet|avro|csv|jsonl"
DATA_FILE = re.compile(rf"[a-z-]+-[0-9]{{5}}-of-[0-9]{{5}}\.(?:{_EXTENSIONS})")
_ATTEMPT = re.compile(
    rf"(?:[a-z-]+-[0-9]{{5}}-of-[0-9]{{5}}|report|staged|page|probe)\.[0-9a-f]{{32}}\.(?:{_EXTENSIONS}|json|html)"
)


class Written(NamedTuple):
    """One file under the temporary name of the attempt that wrote it, and its rows summed up for the report."""

    k: int
    name: str
    digest: bytes
    summary: str


@dataclasses.dataclass(frozen=True)
class Target:
    """One output: its directory (in normal form), and what is public about its files."""

    directory: str
    release_id: str
    files: int
    format: str
    overwrite: bool
    prefix: str = "counts"
    keys: tuple[tuple[str, str], ...] = ()  # the columns of what is counted, and what each means
    expected: str | None = None  # the digest of a release that is only written once more (`repeated`)

    @property
    def place_of_report(self) -> str:
        """Where the output is, for whoever looks for it later."""
        return self.directory

    def of_keys(self, keys: Keys | None) -> Self:
        """The same for a job that counts these."""
        return dataclasses.replace(self, keys=() if keys is None else key_meanings(keys))

    def content(self, batch: pa.RecordBatch) -> bytes:
        """The bytes of one file."""
        return encode(batch, self.format)

    @property
    def temporary(self) -> str:
        """Where the files of this release lie before the commit."""
        return f"{self.directory}.tmp-{self.release_id}"

    def stem(self, k: int) -> str:
        """The name of file k without its extension."""
        return f"{self.prefix}-{k:05d}-of-{self.files:05d}"

    def name(self, k: int) -> str:
        """The name of file k."""
        return f"{self.stem(k)}.{self.format}"

    def place(self, k: int) -> str:
        """Where file k lies after the commit."""
        return stores.join(self.directory, self.name(k))

    def keep(self, name: str, content: bytes) -> None:
        """Write a file of an attempt."""
        stores.write(stores.join(self.temporary, name), content)

    def finished(self, report: bytes, files: Sequence[Written]) -> bytes:
        """The report with what is known of the files that were written."""
        names = [self.name(file.k) for file in files]
        return finished(report, names, [file.digest for file in files], [file.summary for file in files], self.keys)

    def is_ours(self, name: str) -> bool:
        """Whether a file of the output directory can be of a job like this one."""
        return re.fullmatch(rf"{self.prefix}-[0-9]{{5}}-of-[0-9]{{5}}\.(?:{_EXTENSIONS})", name) is not None

    def checked(self, written: Iterable[Written]) -> list[Written]:
        """The files of a job in their order, if they are all there."""
        files = sorted(written)
        if [file.k for file in files] != list(range(self.files)):
            raise RuntimeError(f"expected the {self.files} files of the output once each, got {len(files)}")
        return files


def make_target(
    output: str, release_id: str, files: int, format: str, overwrite: bool, prefix: str, options: PipelineOptions | None
) -> Target:
    """The target of a command line. The modules of other sinks have the same functions as this one."""
    return Target(stores.normal(output), release_id, files, format, overwrite, prefix)


def refuse(target: Target) -> bool:
    """Before anything else: refuse an output that exists, and change nothing: another job may be writing there.

    True if there is an earlier output, which this one replaces; or one of this very release, with all files: it is only made
    once more.
    """
    with _writing(target):
        present = _refuse_existing(target)
        return REPORT in present and (target.overwrite or {target.name(k) for k in range(target.files)} <= {*present})


def prepare(target: Target) -> None:
    """Before the run: refuse an output that exists or cannot be written, and remove what killed runs left."""
    with _writing(target):
        present = _refuse_existing(target)
        if REPORT not in present:
            stores.remove_files(target.directory, present)
        prepare_temporary(target)


@contextmanager
def _writing(target: Target) -> Iterator[None]:
    """Turns what a storage raises before the run into one line."""
    try:
        yield
    except ParameterError:
        raise
    except Exception as error:  # every storage has its own
        raise ParameterError(f"cannot write to --output {target.directory!r}: {stores.reason(error)}") from error


def prepare_temporary(target: Target) -> None:
    """Remove the temporary files of earlier runs, and see that there can be new ones."""
    for other in stores.siblings(target.directory, ".tmp-"):
        left = stores.names(other)
        if all(_ATTEMPT.fullmatch(name) for name in left):
            stores.remove_files(other, left)
    _probe(target)


def commit(target: Target, written: Iterable[Written], report: bytes) -> None:
    """The last step of a job: move the files into place, then report.json. It may run again, or twice at once.

    The report of an old output goes first and the new one comes last, so that no report ever stands beside a part of
    the files. Between the two, files are only put in place: of the attempts of one commit, whose bytes are the same,
    none undoes what another one did.
    """
    files = target.checked(written)
    places = {target.place(file.k): file for file in files}
    if _make_way(target, places, report):
        stores.make_directory(target.directory)
        for place, file in places.items():
            _put(target, file.name, place, file.digest)
        # The draft is written before the last look at the files: who removes files of a job that failed removes its
        # drafts before and after, and so no report can come behind.
        draft = f"report.{uuid.uuid4().hex}.json"
        stores.write(stores.join(target.temporary, draft), report)
        for place, file in places.items():
            if not _holds(place, file.digest):
                raise _removed_by_another(target)
        _put(target, draft, stores.join(target.directory, REPORT), _digest(report))
    discard(target)


def discard(target: Target) -> None:
    """Remove the temporary files of this release."""
    present = stores.names(target.temporary)
    stores.remove_files(target.temporary, [name for name in present if _ATTEMPT.fullmatch(name)])


def abandon(target: Target) -> None:
    """After a failure: remove the temporary files, and what an interrupted commit had moved.

    An attempt that is still running somewhere then finds its files gone, and fails.
    """
    replaced = _set_aside_files(target.temporary)
    discard(target)
    present = stores.names(target.directory)
    if REPORT not in present and present and all(target.is_ours(name) or name in replaced for name in present):
        stores.remove_files(target.directory, present)
        discard(target)  # a draft that came since: see `commit`
        stores.remove_files(target.directory, [name for name in stores.names(target.directory) if name == REPORT])


def read_report(target: Target) -> bytes:
    """The report of a complete output."""
    return stores.read(stores.join(target.directory, REPORT))


def written(target: Target) -> list[str]:
    """The files of a complete output that hold its rows."""
    return [target.place(k) for k in range(target.files)]


def listed_files(report: bytes) -> list[str] | None:
    """The names of the files that belong to a report of ours: those that it lists, and its page; None if this is another's."""
    try:
        content = json.loads(report)
    except ValueError:
        return None
    if not isinstance(content, Mapping) or REPORT_MARK not in content:
        return None
    files = content.get("files")
    names = [file.get("name") for file in (files if isinstance(files, list) else ()) if isinstance(file, Mapping)]
    return [*(name for name in names if isinstance(name, str) and DATA_FILE.fullmatch(name)), PAGE]


def write_file(target: Target, k: int, batch: pa.RecordBatch) -> Written:
    """Write the rows of file k under a name that is unique to this attempt."""
    content, written = encoded(target, k, batch)
    target.keep(written.name, content)
    return written


def encoded(target: Target, k: int, batch: pa.RecordBatch) -> tuple[bytes, Written]:
    """The bytes of file k, and what is known of it once they are written."""
    content = target.content(batch)
    name = f"{target.stem(k)}.{uuid.uuid4().hex}.{target.format}"
    return content, Written(k, name, _digest(content), summary(batch, [key for key, _ in target.keys]))


def _refuse_existing(target: Target) -> list[str]:
    """What lies in the output directory, if it is all ours and may be replaced."""
    where = f"--output {target.directory!r}"
    if stores.is_local(target.directory):
        if os.path.dirname(target.directory) == target.directory:
            raise ParameterError(f"{where} must be a directory of its own")
        if os.path.lexists(target.directory) and not os.path.isdir(target.directory):
            raise ParameterError(f"{where} is there and is not a directory")
    present = stores.names(target.directory)
    report = read_report(target) if REPORT in present else b""
    listed = listed_files(report) if report else []
    ours = {REPORT, *listed} if listed is not None else set()
    for temporary in stores.siblings(target.directory, ".tmp-"):
        ours |= _set_aside_files(temporary)
    foreign = [name for name in present if name not in ours and not target.is_ours(name)]
    if foreign:
        raise ParameterError(
            f"{where} holds other files ({foreign[0]!r}), which are never touched: give another directory"
        )
    if REPORT in present and not target.overwrite and not is_of(target.release_id, report):
        raise ParameterError(f"{where} holds an output already: give another directory, or --overwrite")
    return present


def _probe(target: Target) -> None:
    """Fail with the reason if the temporary or the output directory cannot be written.

    Nothing is written to an output that is there: whoever kills the job meanwhile must find it as it was.
    """
    if stores.is_local(target.directory) and os.path.isdir(target.directory):
        if not os.access(target.directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    name = f"probe.{uuid.uuid4().hex}.json"
    try:
        stores.write(stores.join(target.temporary, name), b"{}\n")
    finally:
        stores.remove_files(target.temporary, [name])


def _is_committed(target: Target, places: Mapping[str, Written], report: bytes) -> bool:
    """Whether another attempt has ended this very commit: its report and its bytes are there."""
    return _holds(stores.join(target.directory, REPORT), _digest(report)) and all(
        _holds(place, file.digest) for place, file in places.items()
    )


def _is_there(target: Target, places: Mapping[str, Written], report: bytes, there: bytes) -> bool:
    """Whether the report that is there is of this release, and all of its files are too; refuses what may not be replaced.

    Files that are missing are put back.
    """
    if not is_of(target.release_id, there):
        raise ParameterError(f"another job wrote to --output {target.directory!r} meanwhile")
    found = {place: _content(place) for place in places}
    same = all(content is None or _digest(content) == places[place].digest for place, content in found.items())
    if not same or not is_same(there, report):
        raise changed(target.release_id, repr(target.directory))
    return None not in found.values()


def _make_way(target: Target, places: Mapping[str, Written], report: bytes) -> bool:
    """Remove the page and the report of an old output, then those of its files that the new one does not replace.

    False if another attempt has ended this very commit. One that does so between the last look and the removal loses
    its report until this attempt writes the same one.
    """
    old = stores.join(target.directory, REPORT)
    if stores.exists(old):
        if _is_committed(target, places, report):
            return False
        if not target.overwrite and _is_there(target, places, report, _content(old) or b""):
            return False
        stores.remove(stores.join(target.directory, PAGE))
        _set_aside(target, old)
    replaced = _set_aside_files(target.temporary)
    for name in stores.names(target.directory):
        known = target.is_ours(name) or name in replaced
        if known and stores.join(target.directory, name) not in places:
            stores.remove(stores.join(target.directory, name))
    return True


def _set_aside(target: Target, report: str) -> None:
    """Remove the report of an old output, once a copy lies under a temporary name. Another attempt may do so at once."""
    content = _content(report)
    if content is not None:
        stores.write(stores.join(target.temporary, f"report.{uuid.uuid4().hex}.json"), content)
        stores.remove(report)


def _set_aside_files(temporary: str) -> set[str]:
    """What the reports list that lie under temporary names: drafts, and those of outputs that are being replaced."""
    reports = [name for name in stores.names(temporary) if name.startswith("report.") and _ATTEMPT.fullmatch(name)]
    contents = [_content(stores.join(temporary, name)) for name in reports]
    return {name for content in contents if content is not None for name in listed_files(content) or ()}


def _put(target: Target, name: str, place: str, digest: bytes) -> None:
    """Move a temporary file to its place; it is as good if another attempt has put the same bytes there."""
    source = stores.join(target.temporary, name)
    if stores.exists(source):
        try:
            stores.move(source, place)
            return
        except OSError:
            if stores.exists(source):
                raise
    if not _holds(place, digest):
        raise _removed_by_another(target)


def _removed_by_another(target: Target) -> ParameterError:
    return ParameterError(f"another job removed the files of this one: let one at a time write to {target.directory!r}")


def _holds(path: str, digest: bytes) -> bool:
    """Whether there is a file of these bytes at this path."""
    content = _content(path)
    return content is not None and _digest(content) == digest


def _content(path: str) -> bytes | None:
    """The content of a file, if it is there."""
    for left in reversed(range(_LOOKS)):
        try:
            return stores.read(path)
        except Exception:  # every storage has its own for a file that is missing
            if not stores.exists(path):
                return None
            if not left:  # it is there and cannot be read; else another attempt may have put it there just now
                raise
    raise AssertionError("the last look returns or raises")


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
