"""What conditions and public tables take, or save, where rows are read.

    python benchmarks/where.py --rows 1000000

Reads a generated log of visits, sorted by time, from the file to named contributions, in this process: all rows, then under
conditions and with public tables. The shown time is the least processor time of the repeats, and `times all` its ratio to
reading all rows.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from _shared import DATA, OUT, write_csv

from headcount.mechanisms.columns.preparation import Preparation, preparation
from headcount.mechanisms.columns.row_schema import asked
from headcount.pipelines.sources import synthetic
from headcount.pipelines.sources.columns import columns_of, place_of
from headcount.pipelines.sources.events import column_types, expand_inputs, read_batches, split_file

COUNTRIES = {
    "country": ["de", "fr", "it", "pl", "nl", "at", "ch", "se"],
    "region": ["a", "b", "c", "a", "b", "c", "a", "b"],
}
ROWS_PER_GROUP = 100_000


def sorted_log(rows: int, folder: Path) -> Path:
    """The generated log of visits in the order of time, as logs are written."""
    path = folder / f"visits-{rows}-sorted.parquet"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        plain = folder / f"visits-{rows}.parquet"
        if not plain.exists():
            synthetic.generate("visits", rows, None, None, 1, plain)
        table = pq.read_table(plain)
        pq.write_table(table.sort_by("viewed_at"), path, row_group_size=ROWS_PER_GROUP)
    return path


def cases(path: Path, keys: int) -> dict[str, tuple[list[str], Preparation]]:
    """{what is asked: (key columns, what is done to rows)}."""
    users = pc.unique(pq.read_table(path, columns=["user_id"]).column("user_id"))
    names = pa.concat_arrays([users, pa.array([f"x{k}" for k in range(max(0, keys - len(users)))])])
    large = pa.table(
        {"user_id": names, "plan": pa.array(["free", "paid"]).take(pa.array([k % 2 for k in range(len(names))]))}
    )
    return {
        "all rows": (["page"], Preparation()),
        "a condition that all rows meet": (["page"], preparation("age >= 0")),
        "a text, one row in 26": (["page"], preparation("country = se and device = phone")),
        "numbers and texts": (["page"], preparation("age >= 30 and (price > 0 or device in (phone, tablet))")),
        "one day of fourteen": (["page"], preparation("viewed_at = 2026-11-05")),
        "a table of 8 keys": (["region"], preparation(join=COUNTRIES, on="country")),
        f"a table of {keys:,} keys": (["plan"], preparation(join=large, on="user_id")),
    }


def read(path: Path, item: list[str], prepare: Preparation) -> tuple[float, int]:
    """Seconds to read the file and to name all keys, and the rows that are kept."""
    start, kept = time.process_time(), 0
    inputs, columns = expand_inputs([str(path)]), columns_of("user_id", item, prepare=prepare)
    types = column_types(inputs, columns)
    row_schema = asked("user_id", item).of_schema(types.schema)
    for task in (task for file in inputs.files for task in split_file(file, inputs.format, columns)):
        for batch in read_batches(task, columns, types):
            kept += row_schema.batch(batch, place_of(batch)).num_rows
    return time.process_time() - start, kept


def main() -> None:
    """Generates what is missing, measures all cases in turns, prints the table and writes it as CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000, help="of the large table (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path, default=DATA, help="where generated logs are kept (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    path = sorted_log(args.rows, args.data)
    asked_for = cases(path, args.keys)
    seen: dict[str, list[tuple[float, int]]] = {name: [] for name in asked_for}
    for _ in range(args.repeats):
        for name, (item, prepare) in asked_for.items():
            seen[name].append(read(path, item, prepare))
    least = {name: min(times)[0] for name, times in seen.items()}
    lines = [
        {
            "rows": name,
            "kept": f"{seen[name][0][1]:,}",
            "cpu, s": f"{least[name]:.3f}",
            "times all": f"{least[name] / least['all rows']:.2f}",
        }
        for name in asked_for
    ]
    for line in lines:
        print("  ".join(f"{value:>32}" for value in line.values()))
    write_csv(lines, args.out / "where.csv")


if __name__ == "__main__":
    main()
