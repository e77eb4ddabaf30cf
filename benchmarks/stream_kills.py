"""Streams that are killed again and again: each window must have the bytes of its batch job, once, and be paid for.

    python benchmarks/stream_kills.py --runner flink --kills 10
    python benchmarks/stream_kills.py --runner prism --kills 10 --prism build/prism

On Flink a task manager is killed with its workers, as when a machine is lost, and the script of deploy/flink replaces it. On
Prism either `headcount stream` is killed, or Prism, or both, and the same command is started again. A kill comes at a random
moment after a window was published. Files arrive while the stream runs, with rows out of order; one window has no users.
A second process looks all the time whether a published file changes, and whether a published window has no entry in the ledger.
Prints a table (Markdown), and ends with status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _shared import HERE, OUT, write_csv

from headcount.mechanisms.randomness.keys import write_key_file
from headcount.mechanisms.randomness.windows import window_id
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.records import SPENT, make_dataset
from headcount.pipelines.main import main as headcount

DEPLOY = HERE.parent / "deploy" / "flink"
JOBS = {
    "histogram, one stage": "histogram --item item --method one-stage --bound 3 --epsilon 1 --delta 1e-6",
    "histogram": "histogram --item item --epsilon 1 --delta 1e-6",
    "aggregate": "aggregate --item item --users --sum number:0:9 --epsilon 1 --delta 1e-6",
    "partitions": "partitions --item item --epsilon 1 --delta 1e-6 --output-files 2",
    "total": "total --epsilon 1",
}
QUIET, ROWS, WAIT = 3, 3000, 10  # the window without users, the rows of a file, and seconds
_PUBLISHED = "????-??-??T??????Z"  # the folder of a window, and none that lies aside
_AHEAD, _LONGEST = 30, 300  # seconds: until the first window begins, and for anything to happen


class Arriving:
    """Rows of windows, each with two files: one comes when it begins, with rows of the next two as well, and one shortly before
    it ends."""

    def __init__(self, folder: Path, size: int, number: int) -> None:
        self.folder, self.size, self.number = folder, size, number
        self.start = int(time.time()) + _AHEAD
        (folder / "in").mkdir(parents=True)
        write_key_file(str(folder / "key"))
        generator = np.random.default_rng(number)
        self._files = []
        for file in range(2 * number):
            window = file // 2
            last = window + 1 if file % 2 else window + 3
            at = generator.integers(self.start + (window - 1) * size, self.start + last * size, ROWS)
            at = np.maximum(at, self.start + window * size)  # what is over must not come any more
            at[(at - self.start) // size == QUIET] = self.start - 1
            columns = {
                "user": pa.array([f"u{u}" for u in generator.integers(0, 600, ROWS)]),
                "item": pa.array([f"i{i}" for i in generator.geometric(0.15, ROWS)]),
                "number": pa.array(generator.integers(0, 10, ROWS)),
                "at": pa.array(at, pa.timestamp("s")),
            }
            due = self.start + (window + (0.7 if file % 2 else 0)) * size
            self._files.append((due, pa.table(columns)))
        self._put(0)
        threading.Thread(target=self._arrive, daemon=True).start()

    def _arrive(self) -> None:
        for file in range(1, len(self._files)):
            time.sleep(max(0.0, self._files[file][0] - time.time()))
            self._put(file)

    def _put(self, file: int) -> None:
        aside = self.folder / "in" / f".{file}"
        pq.write_table(self._files[file][1], aside)
        os.rename(aside, self.folder / "in" / f"{file}.parquet")

    def name(self, window: int) -> str:
        """The folder of a window."""
        begin = datetime.datetime.fromtimestamp(self.start + window * self.size, datetime.UTC)
        return f"{begin:%Y-%m-%dT%H%M%SZ}"

    def words(self, job: str, ledger: str) -> list[str]:
        """The command line of the stream, all but the runner."""
        command, *flags = JOBS[job].split()
        begin = datetime.datetime.fromtimestamp(self.start, datetime.UTC).isoformat()
        words = ["stream", command, *flags, "--input", f"{self.folder}/in", "--time", "at", "--every", f"{self.size}s"]
        words += ["--from", begin, "--windows", str(self.number), "--wait", f"{WAIT}s"]
        return [*words, *self._common(f"{self.folder}/out", "s", ledger)]

    def batch(self, job: str, ledger: str) -> dict[str, dict[str, bytes]]:
        """The files of a job of its own for each window."""
        command, *flags = JOBS[job].split()
        table, found = pa.concat_tables(table for _, table in self._files), {}
        number = (table.column("at").cast(pa.int64()).to_numpy() - self.start) // self.size
        for window in range(self.number):
            file, out = f"{self.folder}/window.parquet", self.folder / "batch" / self.name(window)
            pq.write_table(table.filter(pa.array(number == window)), file)
            own = window_id("s", self.start + (window + 1) * self.size)
            words = [command, *flags, "--input", file, "--period", self.name(window)]
            with contextlib.redirect_stdout(io.StringIO()):
                status = headcount([*words, *self._common(str(out), own, ledger)])
            assert status == 0, f"the batch job of the window {window} failed"
            found[self.name(window)] = _files(out)
        return found

    def _common(self, out: str, release: str, ledger: str) -> list[str]:
        words = ["--user", "user", "--format", "csv", "--key-file", f"{self.folder}/key", "--release-id", release]
        return [*words, "--output", out, "--ledger", ledger, "--dataset", "visits"]


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class Witness:
    """Looks all the time at what is published: `wrong` are the changes of a file, and windows that the ledger does not know."""

    def __init__(self, out: Path, ledger: str) -> None:
        self._out, self._ledger = out, open_ledger(ledger)
        self._first: dict[str, bytes] = {}
        self._ended = threading.Event()
        self.wrong: set[str] = set()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def published(self) -> set[str]:
        """The names of the windows that are."""
        return {path.parent.name for path in self._out.glob(f"{_PUBLISHED}/report.json")}

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            while not self._ended.wait(0.2):
                self._look()
        except BaseException as error:
            self.wrong.add(f"the witness has ended: {error}")
            raise

    def _look(self) -> None:
        for name in self.published():
            window = self._out / name
            for path in [*window.glob("*.csv"), window / "report.json"]:
                content = path.read_bytes()
                if content != self._first.setdefault(f"{name}/{path.name}", content):
                    self.wrong.add(f"{name}/{path.name} changed after it was published")
            release = json.loads((window / "report.json").read_text())["release_id"]
            if not self._ledger.entries("visits", release, SPENT):
                self.wrong.add(f"{name} is published and not in the ledger")


def _group(leader: int) -> list[int]:
    """The processes of a group that still run."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True, text=True).stdout
    found = [line.split() for line in listed.splitlines()]
    return [int(pid) for pid, group, stat in found if int(group) == leader and not stat.startswith("Z")]


def wait(condition: Callable[[], Any], what: str, seconds: float = _LONGEST) -> Any:
    """What the condition gives once it is true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise SystemExit(f"{what} did not happen in {seconds:.0f} s")
        time.sleep(0.1)
    return found


class OnFlink:
    """A stream on a cluster of its own, of which a task manager is killed; a client of deploy/flink waits for it."""

    kinds = ("task manager",)

    def __init__(self, folder: Path, words: list[str], args: argparse.Namespace) -> None:
        self._script = [str(DEPLOY / "flink.sh"), "--state", str(folder / "flink")]
        self._state, self._parallelism, self._turn = folder / "flink" / "state.json", args.parallelism, 0
        self._call("start", "--task-managers", str(args.parallelism), "--restarts", "1000")
        checkpoints = ["--max_bundle_time_mills=50", f"--checkpointing_interval={args.checkpoint}"]
        self._command = [*self._script, "submit", *words, "--", *checkpoints]
        self.log = open(folder / "client.log", "ab")
        self.client = subprocess.Popen(self._command, stdout=self.log, stderr=self.log, start_new_session=True)

    def kill(self, kind: str) -> None:
        """Kill one, and let the script replace it."""
        server = f"task-manager-{self._turn % self._parallelism}"
        self._turn += 1
        leader = json.loads(self._state.read_text())["processes"][server]["pid"]
        os.killpg(leader, signal.SIGKILL)
        wait(lambda: not _group(leader), "the end of a task manager")
        self._call("start")

    def close(self) -> None:
        self._call("stop")

    def _call(self, *words: str) -> None:
        subprocess.run([*self._script, *words], check=True, stdout=subprocess.DEVNULL)


class OnPrism:
    """A stream on Prism, of which a process is killed; then the same command is started again."""

    kinds = ("headcount stream", "Prism", "both")

    def __init__(self, folder: Path, words: list[str], args: argparse.Namespace) -> None:
        self._command = [sys.executable, "-m", "headcount.pipelines.main", *words, "--runner=PrismRunner"]
        self._command += ["--behind-firewall", *([f"--prism_location={args.prism}"] if args.prism else [])]
        self.log = open(folder / "client.log", "ab")
        self._start()

    def _start(self) -> None:
        self.client = subprocess.Popen(self._command, stdout=self.log, stderr=self.log, start_new_session=True)

    def _prisms(self) -> list[int]:
        """The processes of the client's group but itself, also after its end."""
        return [pid for pid in _group(self.client.pid) if pid != self.client.pid]

    def kill(self, kind: str) -> None:
        """Kill, see that nothing is left, and start again."""
        (prism,) = self._prisms()
        if kind != "Prism":
            self.client.kill()
        if kind != "headcount stream":
            os.kill(prism, signal.SIGKILL)
        wait(lambda: self.client.poll() is not None, "the end of headcount stream")
        wait(lambda: not self._prisms(), "the end of Prism", 30)
        assert self.client.returncode != 0
        self._start()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.client.pid, signal.SIGKILL)


@contextlib.contextmanager
def _running(folder: Path, words: list[str], args: argparse.Namespace) -> Iterator[OnFlink | OnPrism]:
    stream = (OnFlink if args.runner == "flink" else OnPrism)(folder, words, args)
    try:
        yield stream
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(stream.client.pid, signal.SIGKILL)
        stream.close()


def killed(folder: Path, job: str, args: argparse.Namespace, left: int) -> tuple[list[str], dict[str, object]]:
    """What is wrong with a stream that was killed at most `left` times, and its row of the table."""
    ledgers = {name: f"sqlite:///{folder}/{name}.db" for name in ("stream", "batch")}
    folder.mkdir(parents=True)
    for ledger in ledgers.values():
        open_ledger(ledger).create(make_dataset("visits", "user", "add-remove", 1e6, 0.1, None))
    arriving = Arriving(folder, args.size, args.windows)
    witness, moment, kills = Witness(folder / "out", ledgers["stream"]), random.Random(left), []
    try:
        with _running(folder, arriving.words(job, ledgers["stream"]), args) as stream:
            while len(kills) < left:
                before = len(witness.published())
                happened = lambda: stream.client.poll() is not None or len(witness.published()) > before  # noqa: B023, E731
                wait(happened, "another window")
                time.sleep(moment.uniform(0, args.size))
                if stream.client.poll() is not None or len(witness.published()) >= args.windows - 1:
                    break
                kinds = stream.kinds
                kills.append(kinds[len(kills) % len(kinds)])
                say(f"{job}: killing {kills[-1]} with {len(witness.published())} windows published")
                stream.kill(kills[-1])
            status = wait(lambda: None if stream.client.poll() is None else [stream.client.poll()], "the end", 600)[0]
    finally:
        time.sleep(0.5)
        witness.close()
    wrong = sorted(witness.wrong)
    if status:
        wrong.append(f"the stream ended with status {status}: {(folder / 'client.log').read_text()[-2000:]}")
    found = {path.name: _files(path) for path in sorted((folder / "out").iterdir())}
    expected = arriving.batch(job, ledgers["batch"])
    wrong += [f"{name} is no window" for name in found.keys() - expected.keys()]
    for name, files in expected.items():
        if found.get(name) != files:
            other = [file for file in files if found.get(name, {}).get(file) != files[file]]
            wrong.append(f"window {name}: {', '.join(other) or 'files beside its own'}")
    entries = open_ledger(ledgers["stream"]).entries("visits", None)
    committed = [entry.request.release_id for entry in entries if entry.state == "committed"]
    if sorted(committed) != sorted(window_id("s", arriving.start + (k + 1) * args.size) for k in range(args.windows)):
        wrong.append(f"the ledger has {len(committed)} committed entries of {len(set(committed))} windows")
    wrong += [f"an entry is {entry.state}" for entry in entries if entry.state not in ("committed", "given back")]
    twice = (folder / "client.log").read_text().count("a second result")
    told = {"runner": args.runner, "job": job, "windows": args.windows, "kills": len(kills)}
    return wrong, {**told, "made again and thrown away": twice, "wrong": len(wrong)}


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", choices=("flink", "prism"), required=True)
    parser.add_argument("--kills", type=int, default=10, help="in all (default: 10)")
    parser.add_argument(
        "--job", action="append", choices=JOBS, help="default: all in turns, until there were the kills"
    )
    parser.add_argument("--windows", type=int, default=24)
    parser.add_argument("--size", type=int, default=8, help="seconds of a window")
    parser.add_argument("--parallelism", type=int, default=1, help="on Flink")
    parser.add_argument("--checkpoint", type=int, default=2000, help="milliseconds between checkpoints of Flink")
    parser.add_argument("--prism", help="the program, if Beam shall not fetch it")
    parser.add_argument("--keep", type=Path, help="a folder for all that is written (default: a temporary one)")
    args = parser.parse_args()
    table: list[dict[str, str]] = []
    wrong: list[str] = []
    done = 0
    with tempfile.TemporaryDirectory(prefix="headcount-kills-") as temporary:
        while done < args.kills:
            job = (args.job or list(JOBS))[len(table) % len(args.job or JOBS)]
            folder = (args.keep or Path(temporary)) / str(len(table))
            found, row = killed(folder, job, args, args.kills - done)
            done += int(str(row["kills"]))
            wrong += found
            table.append({name: str(value) for name, value in row.items()})
            for line in found:
                say(f"WRONG: {line}")
    for row in (dict.fromkeys(table[0], ""), *table):
        print(f"| {' | '.join(row.values() if any(row.values()) else row)} |")
        if not any(row.values()):
            print(f"|{'---|' * len(row)}")
    write_csv(table, OUT / f"stream_kills_{args.runner}.csv")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
