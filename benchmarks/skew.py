"""Uneven data, and what it costs: time, peak memory and the largest group that a runner has to hold at once.

    python benchmarks/skew.py                       # on this machine
    python benchmarks/skew.py --flink               # and on a Flink cluster of two task managers, which is started for it
    python benchmarks/skew.py --cases "busy user"

Peak memory on this machine is that of the process; on Flink, that of the largest task manager and of the largest of
their workers. The groups are computed with the functions that the pipeline consists of. Both runs must give the same bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _shared import DATA, HERE, OUT, headcount, run, write_csv

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.contributions import MAX_ITEM_BYTES, contribution_batch
from headcount.mechanisms.batches.shards import gather
from headcount.mechanisms.batches.user_shards import HotShards, split_by_user
from headcount.mechanisms.bounding.steps import bound_shard, provenance, step_subkeys
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.noisy import add_noise, noise_subkey
from headcount.mechanisms.counting.released import by_file
from headcount.mechanisms.counting.sums import merge_sums, sum_items
from headcount.mechanisms.histogram.fixed import unbounded_histogram
from headcount.mechanisms.randomness.keys import write_key_file
from headcount.pipelines.jobs.on_beam import shards_for
from headcount.pipelines.sources.columns import columns_of
from headcount.pipelines.sources.events import column_types, expand_inputs, read_batches, split_file
from headcount.transforms.core.user_shards import item_shards

FLINK = HERE.parent / "deploy" / "flink" / "flink.sh"
MILLION = 1_000_000


@dataclasses.dataclass(frozen=True)
class Case:
    """A log, and how it is counted."""

    name: str
    file: str
    write: Callable[[np.random.Generator, Path], None]
    epsilon: float = 1.0
    delta: float = 1e-6
    bound: int = 10
    max_item_bytes: int = MAX_ITEM_BYTES

    def description(self, path: Path, key: Path, output: Path) -> list[str]:
        """The words after `headcount`, or after `flink.sh submit`."""
        words = [
            "histogram",
            "--input",
            path,
            "--user",
            "user",
            "--item",
            "item",
            "--of",
            "events",
            "--method",
            "one-stage",
            "--format",
            "csv",
        ]
        words += ["--epsilon", self.epsilon, "--delta", self.delta, "--bound", self.bound]
        words += [
            "--max-item-bytes",
            self.max_item_bytes,
            "--key-file",
            key,
            "--release-id",
            "skew",
            "--output",
            output,
        ]
        return [str(word) for word in words]


def _names(generator: np.random.Generator, count: int, size: int) -> pa.Array:
    """Names of this many random hexadecimal digits, which no compression can take to less than half."""
    text = generator.bytes(count * size // 2).hex().encode()
    return pa.StringArray.from_buffers(
        count, pa.py_buffer(np.arange(0, count * size + 1, size, dtype=np.int32)), pa.py_buffer(text)
    )


def _write(generator: np.random.Generator, path: Path, user: np.ndarray, item: np.ndarray, names: pa.Array) -> None:
    """The rows in random order, in row groups that can be read in parallel."""
    order = generator.permutation(len(user))
    users = pa.array([f"user{k:08d}" for k in range(int(user.max()) + 1)])
    with pq.ParquetWriter(path, pa.schema({"user": pa.string(), "item": pa.string()})) as writer:
        size = MILLION if names.nbytes < 100 * MILLION else MILLION // 10
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            columns = [users.take(pa.array(user[rows])), names.take(pa.array(item[rows]))]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, ["user", "item"]))


def _ordinary(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A million rows of a hundred thousand users on some thousand items."""
    return generator.integers(1, 100_001, MILLION), generator.geometric(0.001, MILLION) % MILLION


def busy_user(generator: np.random.Generator, path: Path) -> None:
    """One user with 5,000,000 rows over 1,000,000 items, among ordinary ones."""
    user, item = _ordinary(generator)
    more = np.concatenate([np.arange(MILLION), generator.integers(0, MILLION, 4 * MILLION)])
    user = np.concatenate([np.zeros(5 * MILLION, np.int64), user])
    _write(generator, path, user, np.concatenate([more, item]), _names(generator, MILLION, 20))


def popular_item(generator: np.random.Generator, path: Path) -> None:
    """One item that each of 1,000,000 users holds, and one ordinary item of each."""
    user = np.tile(np.arange(MILLION), 2)
    item = np.concatenate([np.zeros(MILLION, np.int64), generator.geometric(0.001, MILLION) % MILLION])
    _write(generator, path, user, item, _names(generator, MILLION, 20))


def long_names(generator: np.random.Generator, path: Path) -> None:
    """1,000 items with names of 1 MB, each held by one user, among ordinary rows."""
    user, item = _ordinary(generator)
    short, long = _names(generator, 10_000, 20), _names(generator, 1000, 1 << 20)
    user = np.concatenate([user, generator.integers(1, 100_001, 1000)])
    _write(
        generator,
        path,
        user,
        np.concatenate([item % 10_000, 10_000 + np.arange(1000)]),
        pa.concat_arrays([short, long]),
    )


def many_results(generator: np.random.Generator, path: Path) -> None:
    """1,000,000 items with three users each, all of which the small noise lets pass."""
    _write(generator, path, np.arange(3 * MILLION), np.tile(np.arange(MILLION), 3), _names(generator, MILLION, 20))


CASES = [
    Case("busy user", "busy-user", busy_user),
    Case("popular item", "popular-item", popular_item),
    Case("long names, dropped", "long-names", long_names),
    Case("long names, kept", "long-names", long_names, max_item_bytes=2 << 20),
    Case("many results", "many-results", many_results, epsilon=20, delta=1e-2, bound=1),
]


class Groups:
    """The bytes of every group at one GroupByKey."""

    def __init__(self) -> None:
        self.chunks: dict[int, list[bytes]] = {}

    def add(self, chunks: Iterable[tuple[int, bytes]]) -> None:
        for key, chunk in chunks:
            self.chunks.setdefault(key, []).append(chunk)

    def largest(self) -> float:
        """Megabytes of the largest group."""
        return max(sum(map(len, chunks)) for chunks in self.chunks.values()) / MILLION


def largest_groups(case: Case, path: Path) -> dict[str, float]:
    """Megabytes of the largest group at each GroupByKey of the job, if one worker reads all of the input."""
    inputs, columns = expand_inputs([str(path)]), columns_of("user", "item")
    types = column_types(inputs, columns)
    shards = shards_for(inputs.decoded(types), shared=True)
    users, hot = Groups(), HotShards(shards)
    for task in (task for file in inputs.files for task in split_file(file, inputs.format, columns)):
        for batch in read_batches(task, columns, types):
            contributions = contribution_batch(*batch.columns, max_item_bytes=case.max_item_bytes)
            users.add(hot.add(split_by_user(contributions, shards)))
    users.add(hot.rest())

    histogram = unbounded_histogram(Budget(case.epsilon, case.delta), bound=case.bound)
    key, label = bytes(32), "groups"
    subkeys = step_subkeys(key, label, label, histogram.steps)
    items, origins = Groups(), []
    for shard, chunks in users.chunks.items():
        bounded = bound_shard(gather(chunks), histogram.steps, subkeys, provenance(label, label, shards))
        batch = bounded.to_batch(shard)
        origins.append(Origin.of(batch))
        items.add(sum_items(batch, item_shards(shards)))
    noise = noise_subkey(key, label, label, histogram.plan, None)
    merged = [merge_sums(chunks, noise, str) for chunks in items.chunks.values()]
    evidence = Evidence.of([digest for _, digest in merged], origins)
    files = Groups()
    for sums, _ in merged:
        files.add(by_file(add_noise(sums, histogram.plan, noise, evidence), 1))
    return {"users": users.largest(), "items": items.largest(), "output": files.largest()}


class Cluster:
    """A Flink cluster of its own, and the peak memory of its processes while a job runs."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def call(self, *words: str) -> None:
        subprocess.run([FLINK, "--state", self._state, *words], check=True, stdout=subprocess.DEVNULL)

    def run(self, words: list[str]) -> tuple[float, dict[str, float]]:
        """Wall seconds of a job, and the peak megabytes of the largest task manager and of the largest worker."""
        peaks: dict[int, tuple[str, float]] = {}
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.2):
                peaks.update(self._peaks())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            start = time.monotonic()
            self.call("submit", *words)
            seconds = time.monotonic() - start
        finally:
            ended.set()
            watcher.join()
        kinds = ("task manager", "worker")
        return seconds, {kind: max(peak for known, peak in peaks.values() if known == kind) for kind in kinds}

    def _peaks(self) -> Iterator[tuple[int, tuple[str, float]]]:
        """The peak megabytes of each process of the task managers so far, by its number."""
        processes = json.loads((self._state / "state.json").read_text())["processes"]
        leaders = {process["pid"] for name, process in processes.items() if name.startswith("task-manager")}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with contextlib.suppress(OSError, TypeError):  # it ended meanwhile
                if os.getpgid(int(entry)) in leaders:
                    peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{entry}/status").read_text())[1]
                    yield int(entry), ("task manager" if int(entry) in leaders else "worker", int(peak) / 1024)


def measure(case: Case, args: argparse.Namespace, key: Path, cluster: Cluster | None) -> dict[str, str]:
    """One line of the table."""
    path = args.data / f"skew-{case.file}.parquet"
    # In a process of its own, since the peak of a job is never shown as less than what its parent holds.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        if not path.exists():
            print(f"generating {path}", file=sys.stderr, flush=True)
            args.data.mkdir(parents=True, exist_ok=True)
            other.submit(case.write, np.random.default_rng(1), path).result()
        groups = other.submit(largest_groups, case, path).result()
    line = {"case": case.name} | {f"{at}_mb": f"{size:.1f}" for at, size in groups.items()}
    with tempfile.TemporaryDirectory() as scratch:
        here, there = Path(scratch, "here"), Path(scratch, "there")
        seconds, _, peak = run(headcount(case.words(path, key, here)))
        line |= {"seconds": f"{seconds:.1f}", "peak_mb": f"{peak:.0f}"}
        if cluster is not None:
            seconds, peaks = cluster.run(case.words(path, key, there))
            line |= {"flink_seconds": f"{seconds:.1f}"}
            line |= {f"{kind.replace(' ', '_')}_mb": f"{size:.0f}" for kind, size in peaks.items()}
            name = "counts-00000-of-00001.csv"
            if (here / name).read_bytes() != (there / name).read_bytes():
                raise SystemExit(f"{case.name}: Flink gave other rows than this machine")
    return line


def main() -> None:
    """Generates what is missing, runs the cases, prints the table and writes it as CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=[case.name for case in CASES], metavar="NAME")
    parser.add_argument("--flink", action="store_true", help="also on a Flink cluster")
    parser.add_argument("--memory", default="1024", metavar="MB", help="that Flink sorts in (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=DATA, help="where generated logs are kept (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    unknown = set(args.cases) - {case.name for case in CASES}
    if unknown:
        parser.error(f"unknown cases {sorted(unknown)}; there are {[case.name for case in CASES]}")
    scratch = Path(tempfile.mkdtemp())
    cluster = Cluster(scratch / "flink") if args.flink else None
    try:
        write_key_file(scratch / "key")
        if cluster is not None:
            cluster.call("start", "--memory", args.memory)
        lines = []
        for case in CASES:
            if case.name in args.cases:
                lines.append(measure(case, args, scratch / "key", cluster))
                if len(lines) == 1:
                    print("  ".join(f"{name:>19}" for name in lines[0]))
                print("  ".join(f"{value:>19}" for value in lines[-1].values()), flush=True)
        write_csv(lines, args.out / "skew.csv")
    finally:
        if cluster is not None:
            cluster.call("stop")
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
