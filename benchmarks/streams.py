"""What a stream of rows takes against the batch job on the same rows, and the memory of its workers, window by window.

    deploy/flink/flink.sh --state build/streams start
    python benchmarks/streams.py --rows 10000000 --windows 100 --state build/streams

Both run on the cluster of the state directory, with one worker, and must give the same rows. All windows of the stream lie in
the past, so that it comes as fast as it is read. Seconds are those between the first frame that was read and the last window
that was written. Memory is that of a stream whose windows take a second each, by the clock, after each fifth of them: what the
Python worker has, and what is alive in the heap of the task managers after a full collection (`jcmd`, which comes with Java).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from _shared import OUT, write_csv
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from headcount.mechanisms import write_key_file
from headcount.transforms import Budget, Contributions, Histogram, KeyFile, Release, Windows

ROOT = Path(__file__).resolve().parents[1]
START, SIZE, SHARDS = 1_790_000_000, 10, 8
_AHEAD = 25  # seconds until a job has begun
_PARTS = 5  # of a stream, after each of which its memory is looked at
BUDGET = Budget(1, 1e-8)
SCHEMA = pa.schema({"user": pa.int64(), "item": pa.string()})
JOBS = {"histogram, one stage": {"method": "one-stage", "bound": 10}, "histogram": {}}


class _Frames(beam.DoFn):
    """A tick -> a frame of its second: visits of users, a tenth as many as rows, to items by a heavy tail."""

    def __init__(self, rows: int, notes: str) -> None:
        self._rows, self._notes = rows, notes

    def process(self, tick: Any, at: Any = beam.DoFn.TimestampParam) -> Iterator[TimestampedValue]:
        second = tick if isinstance(tick, int) else float(at)
        random = np.random.default_rng(int(SIZE * second))
        users = pa.array(random.integers(0, max(1, self._rows), self._rows))
        items = pa.array((random.pareto(1, self._rows) * 10).astype(np.int64) % 100_000)
        _note(self._notes, 0, 0, 0)
        frame = pa.RecordBatch.from_arrays([users, items.cast(pa.string())], schema=SCHEMA)
        yield TimestampedValue(frame, second)


class _Note(beam.DoFn):
    def __init__(self, notes: str) -> None:
        self._notes = notes

    def process(self, file: tuple[int, pa.RecordBatch], window: Any = beam.DoFn.WindowParam) -> None:
        _note(self._notes, int(window.end), _resident(), zlib.crc32(repr(file[1].to_pylist()).encode()))


def _note(notes: str, end: int, memory: int, digest: int) -> None:
    with open(f"{notes}/{os.getpid()}", "a") as file:
        file.write(json.dumps([time.time(), end, memory, digest]) + "\n")


def _resident(process: int | str = "self") -> int:
    """MB of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") // 2**20


def run(args: argparse.Namespace, flags: list[str]) -> None:
    """One job, as a stream or in batch."""
    paced = args.mode == "paced"
    public = Windows(int(time.time()) + _AHEAD, 1, args.windows) if paced else Windows(START, SIZE, args.windows)
    release = Release(KeyFile(args.key_file), "streams", windows=public)
    frames = beam.ParDo(_Frames(args.rows // (args.windows * SIZE), args.notes)).with_output_types(pa.RecordBatch)
    with beam.Pipeline(options=PipelineOptions(flags, streaming=args.mode != "batch")) as pipeline:
        if args.mode != "batch":
            ticks = pipeline | PeriodicImpulse(public.start, public.last + SIZE, 1 / SIZE if paced else 1)
        else:
            ticks = pipeline | beam.Create(range(public.start, public.last))
        rows = ticks | frames | beam.WindowInto(FixedWindows(public.size)) | Contributions(schema=SCHEMA)
        histogram = Histogram(BUDGET, release=release, shards=SHARDS, output_files=1, **JOBS[args.job])
        rows | "Count" >> histogram | beam.ParDo(_Note(args.notes))


def _alive(manager: int) -> float:
    """MB that are alive in the heap of a Java process: a full collection comes before they are counted."""
    listed = subprocess.run(["jcmd", str(manager), "GC.class_histogram"], capture_output=True, text=True, check=True)
    return int(listed.stdout.splitlines()[-1].split()[2]) / 2**20


def _lines(folder: str) -> list[list[Any]]:
    """What workers noted: (seconds, end of the window or 0, MB, digest), in the order of time."""
    every = [line for path in Path(folder).iterdir() for line in path.read_text().splitlines(keepends=True)]
    return sorted(json.loads(line) for line in every if line.endswith("\n"))


def measured(
    args: argparse.Namespace, key: str, job: str, mode: str
) -> tuple[float, dict[int, int], list[tuple[int, int, float]]]:
    """Of a job in a process of its own: seconds, a digest of each window, and (windows, MB of the worker, MB alive in the task
    managers)."""
    sys.path.append(str(ROOT / "deploy" / "flink"))
    import cluster

    state = json.loads((Path(args.state) / "state.json").read_text())
    flags = cluster.beam_flags(state["job_endpoint"], 1, f"streams-{mode}", None)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--mode", mode, "--job", job, "--notes", folder, "--rows", str(args.rows)]
        command += ["--windows", str(args.windows), "--key-file", key, *map(_with_path, flags)]
        command += (
            ["--max_bundle_time_mills=50", f"--max_parallelism={args.max_parallelism}"] if mode != "batch" else []
        )
        managers = [each["pid"] for name, each in state["processes"].items() if name.startswith("task-manager")]
        memory: list[tuple[int, int, float]] = []
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as client:
            while client.poll() is None:
                written = [line for line in _lines(folder) if line[1]]
                if mode == "paced" and len(written) >= (len(memory) + 1) * args.windows // _PARTS:
                    memory.append((len(written), written[-1][2], sum(map(_alive, managers))))
                time.sleep(0.2)
        assert client.returncode == 0, "the job failed"
        lines = _lines(folder)
    written = [line for line in lines if line[1]]
    return written[-1][0] - lines[0][0], {line[1]: line[3] for line in written}, memory


def _with_path(flag: str) -> str:
    """Workers must find this module."""
    name, _, value = flag.partition("=")
    if name != "--environment_config":
        return flag
    config = json.loads(value)
    config["env"]["PYTHONPATH"] = f"{Path(__file__).parent}:{ROOT}"
    return f"{name}={json.dumps(config)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--windows", type=int, default=100)
    parser.add_argument("--state", help="the state directory of deploy/flink/flink.sh")
    parser.add_argument("--job", choices=JOBS)
    parser.add_argument("--max-parallelism", type=int, default=1, help="of Flink, by which the state of a source grows")
    for name in ("--mode", "--notes", "--key-file"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    args, flags = parser.parse_known_args()
    if args.mode:
        run(args, flags)
        return
    chosen = [args.job] if args.job else list(JOBS)
    table = []
    with tempfile.TemporaryDirectory() as folder:
        key = f"{folder}/key"
        write_key_file(key)
        runs = {job: [measured(args, key, job, mode) for mode in ("batch", "stream", "paced")] for job in chosen}
    for job, ((batch, expected, _), (stream, found, _), (*_, memory)) in runs.items():
        assert found == expected, "a stream must give the rows of the batch job"
        print(f"{job}: {batch:.1f} s in batch, {stream:.1f} s as a stream, ratio {stream / batch:.2f}", flush=True)
        for windows, worker, heap in memory:
            print(f"after {windows} windows: worker {worker} MB, alive in the heap {heap:.1f} MB", flush=True)
        row = {"job": job, "rows": args.rows, "batch": f"{batch:.1f}", "stream": f"{stream:.1f}"}
        for windows, worker, heap in memory:
            told = {"windows": windows, "worker MB": worker, "heap MB": f"{heap:.1f}"}
            table.append({name: str(value) for name, value in (row | told).items()})
    write_csv(table, OUT / "streams.csv")


if __name__ == "__main__":
    import streams  # by its name, since workers import it

    streams.main()
