"""What a key of two columns takes beside the same key glued into one beforehand.

    python benchmarks/keys.py --rows 1000000 10000000

Both jobs read the same file and count the same items; each is a process of its own, start-up included, and they take turns. The
shown time is the least of the repeats, and the ratio is that of the times shown. `read` is the time to read and name the keys
alone, without a job and its start-up.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from _shared import DATA, OUT, event_log, headcount, private_job, run, write_csv

from headcount.mechanisms.columns.row_schema import asked
from headcount.pipelines.sources.columns import columns_of, place_of
from headcount.pipelines.sources.events import column_types, expand_inputs, read_batches, split_file

KEYS = {"glued": ["item"], "two columns": ["page", "country"]}


def keyed_log(law: str, rows: int, folder: Path) -> Path:
    """The generated log, with the name of its item in two columns beside the whole."""
    path = folder / f"{law}-{rows}-keys.parquet"
    if not path.exists():
        table = pq.read_table(event_log(law, rows, folder))
        item = table.column("item").cast(pa.string())
        page, country = pc.utf8_slice_codeunits(item, 0, -2), pc.utf8_slice_codeunits(item, -2)
        glued = pc.binary_join_element_wise(page, country, "/")
        pq.write_table(pa.table({"user": table.column("user"), "item": glued, "page": page, "country": country}), path)
    return path


def read(path: Path, item: list[str]) -> float:
    """Seconds to read the file and to name all keys."""
    start = time.monotonic()
    inputs, columns = expand_inputs([str(path)]), columns_of("user", item)
    types = column_types(inputs, columns)
    row_schema = asked("user", item).of_schema(types.schema)
    for task in (task for file in inputs.files for task in split_file(file, inputs.format, columns)):
        for batch in read_batches(task, columns, types):
            row_schema.batch(batch, place_of(batch))
    return time.monotonic() - start


def compare(name: str, path: Path, args: argparse.Namespace) -> list[dict[str, str]]:
    """One line for each key; they take turns, `repeats` times."""
    seen: dict[str, list[tuple[float, float, float]]] = {key: [] for key in KEYS}
    named: dict[str, list[float]] = {key: [] for key in KEYS}
    for _ in range(args.repeats):
        for key, item in KEYS.items():
            words = private_job(path, args.out / "keys", "user", item, args.bound, args.method)
            seen[key].append(run(headcount(words)))
            named[key].append(read(path, item))
    wall = {key: min(times)[0] for key, times in seen.items()}
    return [
        {
            "data": name,
            "key": key,
            "seconds": f"{wall[key]:.2f}",
            "read": f"{min(named[key]):.2f}",
            "peak_mb": f"{max(peak for _, _, peak in seen[key]):.0f}",
            "times_glued": f"{wall[key] / wall['glued']:.2f}",
            "read_times_glued": f"{min(named[key]) / min(named['glued']):.2f}",
        }
        for key in KEYS
    ]


def main() -> None:
    """Generates what is missing, runs all pairs, prints the table and writes it as CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--laws", nargs="+", default=["tail", "spread"])
    parser.add_argument("--bound", default="10")
    parser.add_argument("--method", default="one-stage")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, default=DATA, help="where generated logs are kept (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, str]] = []
    for rows in args.rows:
        for law in args.laws:
            for line in compare(f"{law} {rows}", keyed_log(law, rows, args.data), args):
                if not lines:
                    print("  ".join(f"{name:>16}" for name in line))
                lines.append(line)
                print("  ".join(f"{value:>16}" for value in line.values()), flush=True)
    write_csv(lines, args.out / "keys.csv")


if __name__ == "__main__":
    main()
