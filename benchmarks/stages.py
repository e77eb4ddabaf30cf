"""Where the time of a whole job goes: seconds by stage of the pipeline, and what of them does not depend on the rows.

    python benchmarks/stages.py histogram --input events.parquet --user user --item item --epsilon 1 --delta 1e-8

The words are those of `headcount`, without an output; the input is one Parquet file. The job runs twice on Beam's local runner,
each time in a process of its own: on all rows, and on the first thousand, which tells the fixed part. A stage is what the
runner executes at once, named by its steps. Its time is that of the wall, and that of the processor, with all threads.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import tempfile
import time
from pathlib import Path

from _shared import HERE, run

START = time.monotonic(), time.process_time()
FEW = 1000
AROUND = ("start, plan and graph", "end of the job")
# Steps as a stage's name has them: those of our own, and the ends of a shuffle.
_STEP = re.compile(r"ref_AppliedPTransform_(.+?)_\d+(?=\)|$)|\(([^()]+/(?:Read|Write)(?:/\d+)?)\)")


def record(out: Path, words: list[str]) -> None:
    """Runs a job in this process, and writes the seconds of its stages, in the order in which they began."""
    logging.disable()
    from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

    from headcount.pipelines.main import main as headcount

    seen: dict[str, tuple[float, float]] = {}
    last = list(START)

    def spent(name: str) -> None:
        now = time.monotonic(), time.process_time()
        before = seen.get(name, (0.0, 0.0))
        seen[name] = (before[0] + now[0] - last[0], before[1] + now[1] - last[1])
        last[:] = now

    execute = FnApiRunner._execute_bundle

    def timed(self: FnApiRunner, context: object, manager: object, bundle: object) -> object:
        spent(AROUND[0] if not seen else "between stages")
        result = execute(self, context, manager, bundle)
        spent(steps_of(manager.stage.name))  # type: ignore[attr-defined]
        return result

    FnApiRunner._execute_bundle = timed
    if code := headcount(words):
        sys.exit(code)
    spent(AROUND[1])
    out.write_text(json.dumps(list(seen.items())))


def steps_of(stage: str) -> str:
    """A stage's steps, without the label that all of them begin with."""
    found = [(step or end).replace("-", "/").split("/", 1)[-1].strip("/") for step, end in _STEP.findall(stage)]
    return " + ".join(name for name in found if name not in ("Read", "Write")) or stage


def first_rows(path: str, place: Path) -> tuple[int, Path]:
    """The number of rows of a file, and a file with the first of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    batch = next(file.iter_batches(FEW), None)
    pq.write_table(file.schema_arrow.empty_table() if batch is None else pa.Table.from_batches([batch]), place)
    return file.metadata.num_rows, place


def main() -> None:
    """Runs the job on all rows and on a few, and prints the stages that take the most."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=int, default=20, help="how many to show (default: %(default)s)")
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("words", nargs=argparse.REMAINDER, help="a command of headcount")
    args = parser.parse_args()
    if args.record is not None:
        record(args.record, args.words)
        return
    if "--input" not in args.words:
        parser.error("give a command of headcount with --input FILE")
    at = args.words.index("--input") + 1
    with tempfile.TemporaryDirectory() as scratch:
        rows, few = first_rows(args.words[at], Path(scratch, "few.parquet"))
        times = []
        for path in (args.words[at], str(few)):
            words = [*args.words[:at], path, *args.words[at + 1 :], "--output", f"{scratch}/out", "--overwrite"]
            seen = Path(scratch, "seen.json")
            run([sys.executable, str(HERE / "stages.py"), "--record", str(seen), *words])
            times.append(dict(json.loads(seen.read_text())))
    show(rows, *times, most=args.stages)


def show(rows: int, whole: dict[str, list[float]], fixed: dict[str, list[float]], most: int) -> None:
    """The table: wall and processor seconds, and those of the job on few rows."""
    lines = sorted(whole.items(), key=lambda line: -line[1][0])
    rest = lines[most:]
    shown = [*lines[:most], (f"{len(rest)} more", [sum(line[1][kind] for line in rest) for kind in (0, 1)])]
    left = [sum(fixed.get(name, [0.0, 0.0])[kind] for name, _ in rest) for kind in (0, 1)]
    print(f"{'wall':>7} {'cpu':>7} {'fixed':>7} {'cpu':>7}  stage")
    for name, spent in shown:
        few = left if name.endswith(" more") else fixed.get(name, [0.0, 0.0])
        print(f"{spent[0]:7.2f} {spent[1]:7.2f} {few[0]:7.2f} {few[1]:7.2f}  {name[:150]}")
    sums = [sum(each[kind] for each in times.values()) for times in (whole, fixed) for kind in (0, 1)]
    print("{:7.2f} {:7.2f} {:7.2f} {:7.2f}  all {} stages".format(*sums, len(whole)))
    by_row = [(sums[kind] - sums[kind + 2]) / max(1, rows - FEW) * 1e6 for kind in (0, 1)]
    print(f"a row more: {by_row[0]:.3f} us, {by_row[1]:.3f} us of the processor")


if __name__ == "__main__":
    main()
