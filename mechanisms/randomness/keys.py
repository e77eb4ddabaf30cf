"""Where the secret key comes from, and what names a release. (How a step's own keys follow from both: `subkeys`.)

The key (256 bits) belongs to the owner of the data: whoever has it together with an output can take the
noise off. So it is guarded like the raw data and never travels: a pipeline carries a *key source*, which says
where the process that draws the noise finds the key. No key source holds key bytes, so none can be pickled or
printed.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import os
import re
import secrets
import stat
import tempfile
import threading
from typing import Protocol

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.subkeys import KEY_BYTES, subkey
from headcount.mechanisms.randomness.windows import SUFFIX, Windows, window_id

_HEX_KEY = re.compile(rb"[0-9a-fA-F]{64}")
_LONGEST_ID = 64
_RELEASE_ID = re.compile(rf"[A-Za-z0-9._-]{{1,{_LONGEST_ID}}}")
_SECRET = re.compile(r"(projects/[a-z0-9.:-]+/secrets/[A-Za-z0-9_-]{1,255}/versions/)([A-Za-z0-9_-]+)")
_LONGEST_FILE = 1024  # a key file has 65 bytes; white space around the key is allowed
_MAKE_ONE = "make a key file with `headcount key FILE`"


class KeySource(Protocol):
    """Says where the key is; picklable, and without the key itself."""

    def fetch(self) -> bytes:
        """The 32 bytes of the key, or a ParameterError that says how to provide it."""


def looks_like_key(text: str) -> bool:
    """Whether this is what a key looks like."""
    return _HEX_KEY.fullmatch(os.fsencode(text.strip())) is not None


def _refuse_key_as_name(name: str, what: str) -> None:
    """A key given in place of its location, or of an id, would travel with the pipeline and show up in messages and reports."""
    if looks_like_key(name):
        raise ParameterError(
            f"the {what} looks like a key itself (64 hexadecimal digits); give the {what}, not the key"
        )


def _parse_key(content: bytes, where: str) -> bytes:
    text = content.strip()
    if not _HEX_KEY.fullmatch(text):
        raise ParameterError(f"{where} does not hold a key: it must be exactly 64 hexadecimal digits; {_MAKE_ONE}")
    return bytes.fromhex(text.decode("ascii"))


@dataclasses.dataclass(frozen=True)
class KeyFile:
    """A file of 64 hexadecimal digits that only its owner can read."""

    path: str | os.PathLike[str]

    def __post_init__(self) -> None:
        _refuse_key_as_name(os.fspath(self.path), "path of the key file")

    def fetch(self) -> bytes:
        """The key; refuses a file that is missing, not regular, open to others, or not a key."""
        where = f"key file {os.fspath(self.path)!r}"
        _check_system()
        try:
            # O_NONBLOCK: opening a named pipe must fail the check below, not wait for a writer.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise ParameterError(f"{where} cannot be opened: {error.strerror}; {_MAKE_ONE}") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ParameterError(f"{where} is not a regular file; {_MAKE_ONE}")
            mode = stat.S_IMODE(status.st_mode)
            if mode & 0o077:
                raise ParameterError(
                    f"{where} is open to others than its owner (mode {mode:04o}); run `chmod 600` on it if"
                    f" nobody has read it yet, else {_MAKE_ONE}"
                )
            content = os.read(descriptor, _LONGEST_FILE) if status.st_size <= _LONGEST_FILE else b""
        finally:
            os.close(descriptor)
        return _parse_key(content, where)


@dataclasses.dataclass(frozen=True)
class KeyEnvironment:
    """An environment variable, of the process that draws the noise, which holds 64 hexadecimal digits."""

    name: str

    def __post_init__(self) -> None:
        _refuse_key_as_name(self.name, "name of the key's environment variable")
        if not self.name or "=" in self.name or "\0" in self.name:
            raise ParameterError(f"the key's environment variable needs a plain name, got {self.name!r}")

    def fetch(self) -> bytes:
        """The key; refuses a variable that is not set or does not hold a key."""
        value = os.environ.get(self.name)
        if value is None:
            raise ParameterError(
                f"environment variable {self.name} is not set where the noise is drawn; set it to a key of 64"
                " hexadecimal digits on every worker"
            )
        return _parse_key(os.fsencode(value), f"environment variable {self.name}")


@dataclasses.dataclass(frozen=True)
class KeySecret:
    """One version of a secret in Google's Secret Manager, named projects/P/secrets/S/versions/N, of 64 hexadecimal digits.

    The version is a number. Which one `latest` or an alias means changes when someone adds a version: a step that
    runs again would then draw other noise for the same count, and a release could not be repeated.
    """

    resource: str

    def __post_init__(self) -> None:
        for part in self.resource.split("/"):
            _refuse_key_as_name(part, "resource name of the key's secret")
        found = _SECRET.fullmatch(self.resource)
        if not found:
            raise ParameterError(
                f"the key's secret must be named as in projects/P/secrets/S/versions/N, got {self.resource!r}"
            )
        if not re.fullmatch(r"[1-9][0-9]*", found[2]):
            raise ParameterError(
                f"the key's secret needs a version by its number, as in {found[1]}1, got {found[2]!r}: another key could "
                "come under that name while the job runs, and then one count would get two different noises"
            )

    def fetch(self) -> bytes:
        """The key, by the rights of this process; refuses a secret that it cannot read or that is not a key."""
        return _parse_key(_secret_payload(self.resource), f"secret {self.resource!r}")


@functools.cache  # a version never changes, and a worker has many steps and threads that ask
def _secret_payload(resource: str) -> bytes:
    """The content of a secret's version, as it was when it was stored."""
    # Imported only here: it takes a second, and only the extra brings it.
    try:
        import google_crc32c
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError
        from google.cloud import secretmanager_v1
    except ImportError:
        raise ParameterError(
            f"secret {resource!r} cannot be read: Google's libraries are not installed where the noise is drawn; "
            "install headcount[gcp] there"
        ) from None
    try:
        with secretmanager_v1.SecretManagerServiceClient() as client:
            payload = client.access_secret_version(name=resource).payload
    except (GoogleAPIError, GoogleAuthError) as error:
        raise ParameterError(
            f"secret {resource!r} cannot be read: {error}; the account that draws the noise needs the role "
            "roles/secretmanager.secretAccessor on it"
        ) from None
    if google_crc32c.value(payload.data) != payload.data_crc32c:
        raise ParameterError(f"secret {resource!r} arrived damaged: its content does not match its checksum; try again")
    return bytes(payload.data)


@dataclasses.dataclass(frozen=True)
class RowsKey:
    """The key of releases of rows that are read in one way (`keys.reading`): it follows from another one, where that is."""

    source: KeySource
    reading: str

    derived = True

    def fetch(self) -> bytes:
        """The key that follows."""
        return subkey(self.source.fetch(), "", "Rows", {"reading": self.reading})

    def of_window(self, end: int) -> RowsKey:
        """The same of what it follows from."""
        follow = getattr(self.source, "of_window", None)
        return self if follow is None else RowsKey(follow(end), self.reading)


def _check_system() -> None:
    """Refuse a system that does not tell who may read a file."""
    if os.name != "posix":
        raise ParameterError(
            f"a key must be in a file that only its owner can read, and this system ({os.name}) does not tell who can; "
            "on Windows run Headcount in WSL, which is Linux: wsl --install"
        )


def _write_fresh_key(descriptor: int) -> None:
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        os.fchmod(descriptor, 0o600)
        file.write(secrets.token_hex(KEY_BYTES) + "\n")


def write_key_file(path: str | os.PathLike[str]) -> KeyFile:
    """Make a fresh key in a new file that only its owner can read; an existing file is never touched."""
    source = KeyFile(path)
    _check_system()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ParameterError(
            f"key file {os.fspath(path)!r} exists already and is never overwritten; give another path"
        ) from None
    except OSError as error:
        raise ParameterError(f"key file {os.fspath(path)!r} cannot be made: {error.strerror}") from None
    try:
        _write_fresh_key(descriptor)
    except OSError as error:
        os.unlink(path)
        raise ParameterError(f"key file {os.fspath(path)!r} cannot be written: {error.strerror}") from None
    return source


_ephemeral: KeyFile | None = None
_ephemeral_lock = threading.Lock()


def _remove_ephemeral(path: str, owner: int) -> None:
    # A forked worker inherits the exit handler but not the file.
    if os.getpid() == owner and os.path.exists(path):
        os.unlink(path)


def ephemeral_key() -> KeyFile:
    """The key of this process: a temporary file, made once, readable by its owner only, removed at exit.

    Worker processes on the same machine reach it; a release made with it cannot be repeated after the exit.
    """
    _check_system()
    global _ephemeral
    with _ephemeral_lock:
        if _ephemeral is None:
            descriptor, path = tempfile.mkstemp(prefix="headcount-key-")
            atexit.register(_remove_ephemeral, path, os.getpid())
            _write_fresh_key(descriptor)
            _ephemeral = KeyFile(path)
        return _ephemeral


@dataclasses.dataclass(frozen=True, init=False)
class Release:
    """One release of one input: the key source, and a public id (128 fresh random bits unless given).

    The same key, id, parameters and data repeat the same noise; give an id only to repeat that release. With `windows` it is
    one release for each of them, of the rows in that window, with the id `<id>.<end of the window>` (`of_window`).
    """

    key_source: KeySource
    id: str
    windows: Windows | None = None

    def __init__(self, key_source: KeySource, id: str | None = None, *, windows: Windows | None = None) -> None:
        if not callable(getattr(key_source, "fetch", None)):
            # The value is not echoed: it may be the key.
            raise ParameterError(
                f"a release takes a key source such as KeyFile, KeyEnvironment or KeySecret, got a {type(key_source).__name__}"
            )
        if id is None:
            id = secrets.token_hex(16)
        if isinstance(id, str):
            _refuse_key_as_name(id, "id of the release")
        if not isinstance(id, str) or not _RELEASE_ID.fullmatch(id):
            raise ParameterError(f"a release id is 1 to 64 letters, digits, dots, dashes or underscores, got {id!r}")
        if windows is not None and not isinstance(windows, Windows):
            raise ParameterError(f"windows of a release are Windows(start, size, number), got {windows!r}", "windows")
        if windows is not None and len(id) > _LONGEST_ID - SUFFIX:
            raise ParameterError(
                f"the id of a release in windows has at most {_LONGEST_ID - SUFFIX} characters, since each window's id has its "
                f"end as well, got {id!r}"
            )
        object.__setattr__(self, "key_source", key_source)
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "windows", windows)

    def of_rows(self, reading: str) -> Release:
        """The same release, with the key for rows that are read in this way.

        Itself for rows that are read plainly, and where that was done: a step inside another one has the key of the latter.
        """
        if not reading or getattr(self.key_source, "derived", False):
            return self
        return self.of_part(reading)

    def of_part(self, what: str) -> Release:
        """The same release, with a key for what it draws that depends on this public text, too.

        For draws whose other parameters do not tell what their rows were made of. Two such texts under one id would else repeat
        a draw if and only if no row makes a difference.
        """
        return Release(RowsKey(self.key_source, what), self.id, windows=self.windows)

    def of_window(self, end: int) -> Release:
        """The release of the window that ends then, in seconds since 1970: a plain one, as that of a job of its own.

        A key source that itself depends on the release's id has `of_window` too.
        """
        follow = getattr(self.key_source, "of_window", None)
        return Release(self.key_source if follow is None else follow(end), window_id(self.id, end))
