"""The servers of a cluster on this machine: their jars, their processes, and the file that says what runs."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

_START_SECONDS, _STOP_SECONDS = 300, 15


class Problem(Exception):
    """What went wrong and what to do, in one line."""


class Engine(NamedTuple):
    """What a cluster runs: its name, and the folder with its script and its pom."""

    name: str
    folder: Path

    @property
    def word(self) -> str:
        """The name in file names, and that of the script."""
        return self.name.lower()


def jars(engine: Engine) -> Path:
    """The directory with all jars of the pom, fetched by Maven unless an earlier call did; it is there whole or not at all."""
    pom = engine.folder / "pom.xml"
    digest = hashlib.blake2b(pom.read_bytes(), digest_size=8).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headcount" / f"{engine.word}-{digest}"
    if cache.is_dir():
        return cache
    maven = program("mvn", f"Maven (mvn), which fetches the jars of {engine.name} and Beam, is not installed")
    cache.parent.mkdir(parents=True, exist_ok=True)
    with open(cache.with_name(f"{cache.name}.lock"), "w") as lock:  # who comes second waits, and finds them
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cache.is_dir():
            _fetch(engine, maven, pom, cache)
    return cache


def _fetch(engine: Engine, maven: str, pom: Path, cache: Path) -> None:
    partial = Path(tempfile.mkdtemp(prefix=f"{cache.name}.", dir=cache.parent))
    print(f"fetching the jars of {engine.name} and Beam into {cache}: some minutes, once", flush=True)
    try:
        command = [maven, "-B", "-q", "-Dstyle.color=never", "-f", str(pom), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
        if subprocess.run(command, cwd=partial).returncode != 0:
            raise Problem("Maven could not fetch the jars; what it said stands above")
        partial.chmod(0o755)
        partial.rename(cache)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def program(name: str, missing: str) -> str:
    home = os.environ.get("JAVA_HOME")
    if name == "java" and home and os.access(f"{home}/bin/java", os.X_OK):
        return f"{home}/bin/java"
    found = shutil.which(name)
    if found is None:
        raise Problem(f"{missing}: install it, and put it on the PATH")
    return found


def birth(pid: int) -> str | None:
    """When this process was started, by which it is told from a later one of the same number; None if there is none."""
    found = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True).stdout.split()
    return " ".join(found[1:]) if found and not found[0].startswith("Z") else None


def group(leader: int) -> list[int]:
    """The processes of a group that still run: a server of ours and the workers that it started."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True, text=True).stdout.splitlines()
    found = [line.split() for line in listed]
    return [int(pid) for pid, group, stat in found if int(group) == leader and not stat.startswith("Z")]


def is_alive(process: dict[str, Any]) -> bool:
    return birth(process["pid"]) == process["birth"]


def end(processes: Sequence[dict[str, Any]]) -> None:
    """End these servers and their workers, first politely. A process number that is another's by now is left alone."""
    leaders = [p["pid"] for p in processes if birth(p["pid"]) in (p["birth"], None)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for leader in leaders:
            if group(leader):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(leader, number)
        if wait(lambda: not any(group(leader) for leader in leaders), _STOP_SECONDS):
            return


def wait(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_open(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2):
            return True
    except OSError:
        return False


class State:
    """What was started, in one file of the state directory; changed by one call at a time.

    Each checkout has a directory of its own by default, so that one does not use, and stop, the cluster of another.
    """

    def __init__(self, engine: Engine, directory: str | None) -> None:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        checkout = hashlib.blake2b(os.fsencode(engine.folder), digest_size=4).hexdigest()
        self.engine = engine
        self.directory = Path(directory).absolute() if directory else base / "headcount" / f"{engine.word}-{checkout}"
        self._file = self.directory / "state.json"
        self.content: dict[str, Any] = json.loads(self._file.read_text()) if self._file.exists() else {}

    @contextlib.contextmanager
    def alone(self, name: str, others: str, say: TextIO) -> Iterator[None]:
        """While the block runs, no other call has the lock of this name; if one has, that is said, and waited for."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.directory / name, "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting for {others}", file=say, flush=True)
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """While the block runs, no other call starts or stops anything here."""
        with self.alone("lock", f"another call of {self.engine.word}.sh that uses {self.directory}", sys.stdout):
            self.__init__(self.engine, str(self.directory))  # type: ignore[misc]  # another call may have changed it meanwhile
            yield

    def save(self) -> None:
        """Write the file, whole or not at all."""
        draft = self._file.with_suffix(".new")
        draft.write_text(json.dumps(self.content, indent=1))
        draft.replace(self._file)

    def remove(self) -> None:
        """Nothing runs any more: leave only the logs."""
        self._file.unlink(missing_ok=True)
        shutil.rmtree(self.directory / "tmp", ignore_errors=True)

    @property
    def processes(self) -> dict[str, dict[str, Any]]:
        """The processes by name."""
        found: dict[str, dict[str, Any]] = self.content.setdefault("processes", {})
        return found

    def launch(self, name: str, command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
        """Start one server in a group of its own, with a log, and write it down."""
        (self.directory / "logs").mkdir(exist_ok=True)
        with open(self.directory / "logs" / f"{name}.log", "ab") as log:
            started = subprocess.Popen(
                command,
                cwd=self.directory,
                env={**os.environ, **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes[name] = {"pid": started.pid, "birth": birth(started.pid)}
        self.save()

    def lost(self) -> list[str]:
        """The names of those that have ended by themselves."""
        return [name for name, process in self.processes.items() if not is_alive(process)]

    def require_answer(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds, and say so; a server that ends meanwhile is told with the end of its log."""
        if not condition():
            print(f"waiting for {what} to answer, up to {_START_SECONDS // 60} minutes", flush=True)
        if wait(lambda: condition() or bool(self.lost()), _START_SECONDS) and not self.lost():
            return
        for name in self.lost() or list(self.processes):
            log = (self.directory / "logs" / f"{name}.log").read_text(errors="replace").splitlines()
            print("\n".join([f"--- the end of the log of the {name}", *log[-15:]]), file=sys.stderr)
        raise Problem(f"{what} did not start; all logs are in {self.directory / 'logs'}")
