"""What a machine shows to its network: the sockets on which processes listen, and a stranger who tries them from outside.

The stranger lives in a network namespace of its own, which a test makes and joins to this machine by one wire, with addresses
that belong to nobody (198.18.0.0/15). It never calls any other.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

_LISTENS = "0A"  # the state of a socket, in /proc/net/tcp
_INTERVAL = 0.2  # seconds between two looks
ROOT = Path(__file__).resolve().parents[1]


class Socket(NamedTuple):
    """Where a process listens."""

    address: str
    port: int
    program: str

    @property
    def is_reached_from_outside(self) -> bool:
        return not ipaddress.ip_address(self.address).is_loopback


def family(leader: int) -> set[int]:
    """A process, what it started, and what belongs to its group."""
    found, parents, groups = {leader}, {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # a process that ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parts[2])], groups[int(stat.parts[2])] = int(fields[1]), int(fields[2])
    found |= {pid for pid, group in groups.items() if group == leader}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def listening(*leaders: int) -> set[Socket]:
    """The sockets on which these processes and their families listen now."""
    found = set()
    for pid in {each for leader in leaders for each in family(leader)}:
        with contextlib.suppress(OSError):
            inodes = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
            program = Path(f"/proc/{pid}/comm").read_text().strip()
            for table in ("tcp", "tcp6"):  # of the namespace that the process lives in
                for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[3] == _LISTENS and f"socket:[{fields[9]}]" in inodes:
                        found.add(Socket(*_address(fields[1]), program))
    return found


def _address(text: str) -> tuple[str, int]:
    """An address of the kernel's tables, which are of words in the order of this machine."""
    host, _, port = text.partition(":")
    words = [bytes.fromhex(host[at : at + 8]) for at in range(0, len(host), 8)]
    raw = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    there = ipaddress.ip_address(raw)
    mapped = getattr(there, "ipv4_mapped", None)
    return str(mapped or there), int(port, 16)


@contextlib.contextmanager
def watched(leaders: Callable[[], Iterable[int]]) -> Iterator[set[Socket]]:
    """All sockets on which these processes, and what they start, listen while the block runs."""
    seen: set[Socket] = set()
    end = threading.Event()

    def look() -> None:
        while not end.wait(_INTERVAL):
            with contextlib.suppress(OSError):  # nothing tells the leaders before a cluster starts, and after its stop
                seen.update(listening(*leaders()))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        end.set()
        thread.join()


class Stranger(NamedTuple):
    """Somebody on the network: the name of the namespace, its address there, and that of this machine on the same wire."""

    name: str
    address: str
    victim: str

    def reaches(self, ports: set[int]) -> set[int]:
        """Those of these ports of this machine that answer."""
        return set(json.loads(self._run("reach", *sorted(ports)).stdout))

    def attack(self, how: str, port: int, *what: object) -> str:
        """Try one of the attacks of tests/attacks.py; what it told."""
        done = self._run(how, port, *what)
        return f"{done.stdout}{done.stderr}"

    def _run(self, *words: object) -> subprocess.CompletedProcess[str]:
        command = ["ip", "netns", "exec", self.name, sys.executable, "-m", "tests.attacks", self.address, self.victim]
        return subprocess.run([*command, *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=300)


@contextlib.contextmanager
def stranger() -> Iterator[Stranger]:
    """One on a wire of its own; the test is skipped where this machine allows none."""
    high, low = divmod(os.getpid() % (1 << 15), 64)
    here, there = (f"198.18.{high % 256}.{4 * low % 256 + at}" for at in (1, 2))
    name, wire = f"headcount-{os.getpid()}", f"hc{os.getpid()}"
    try:
        try:
            _ip("netns", "add", name)
            _ip("link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("address", "add", f"{here}/30", "dev", wire)
            _ip("link", "set", wire, "up")
            _ip("-n", name, "address", "add", f"{there}/30", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            told = str(getattr(error, "stderr", error)).strip()
            pytest.skip(
                f"nobody can stand outside, since this machine makes no network namespace ({told}): run as root"
            )
        yield Stranger(name, there, here)
    finally:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            _ip("netns", "delete", name)  # and the wire with it


def _ip(*words: str) -> None:
    program = shutil.which("ip") or "/sbin/ip"
    subprocess.run([program, *words], check=True, capture_output=True, text=True)
