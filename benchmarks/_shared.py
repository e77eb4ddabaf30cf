"""What the benchmarks of whole jobs share: generated logs, both jobs' command lines, a process measured, and tables."""

from __future__ import annotations

import csv
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE / "out"
DATA = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headcount" / "benchmarks"


def run(command: Sequence[str]) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak megabytes of a command; its failure is ours, with the end of what it said."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as said:
        start = time.monotonic()
        actions = [(os.POSIX_SPAWN_DUP2, said.fileno(), descriptor) for descriptor in (1, 2)]
        child = os.posix_spawn(command[0], list(command), environment, file_actions=actions)
        _, status, usage = os.wait4(child, 0)
        seconds = time.monotonic() - start
        if status:
            said.seek(0)
            end = "\n".join(said.read().decode(errors="replace").splitlines()[-20:])
            raise SystemExit(f"{end}\nfailed with status {os.waitstatus_to_exitcode(status)}: {' '.join(command)}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def event_log(law: str, rows: int, folder: Path, items: int | None = None) -> Path:
    """A generated log with the columns user and item, kept in the folder for later runs."""
    path = folder / (f"{law}-{rows}.parquet" if items is None else f"{law}-{rows}-{items}.parquet")
    if not path.exists():
        print(f"generating {path}", file=sys.stderr, flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        words = ["generate", "--law", law, "--rows", str(rows), "--seed", "1", "--output", str(path)]
        run(headcount(words if items is None else [*words, "--items", str(items)]))
    return path


def private_job(
    path: Path,
    output: Path,
    user: str = "user",
    item: str | Sequence[str] = "item",
    bound: int | str = 10,
    method: str = "one-stage",
) -> list[str]:
    """The words of the private job after `headcount`, or after `flink.sh submit`."""
    items = [word for each in ([item] if isinstance(item, str) else item) for word in ("--item", each)]
    words = ["histogram", "--input", str(path), "--user", user, *items, "--bound", str(bound)]
    words += ["--of", "events", "--method", method]
    return [*words, "--epsilon", "1", "--delta", "1e-8", "--output", str(output), "--overwrite"]


def default_job(path: Path, output: Path, user: str = "user", item: str = "item") -> list[str]:
    """The words of the default: users of each item, with everything chosen."""
    words = ["histogram", "--input", str(path), "--user", user, "--item", item]
    return [*words, "--epsilon", "1", "--delta", "1e-8", "--output", str(output), "--overwrite"]


def headcount(words: Sequence[str]) -> list[str]:
    """The command of a job on this machine."""
    return [sys.executable, "-m", "headcount.pipelines.main", *words]


def plain_job(path: Path, output: Path, item: str = "item", flags: Sequence[str] = ()) -> list[str]:
    """The command of the plain job; Beam's flags choose another runner than the local one."""
    return [sys.executable, str(HERE / "plain_count.py"), str(path), str(output), item, *flags]


def write_csv(lines: Sequence[dict[str, str]], path: Path) -> None:
    """A table of lines that have the same columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys())
        writer.writeheader()
        writer.writerows(lines)
