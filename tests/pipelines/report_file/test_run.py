"""`headcount run`: a report from one file is what its single commands make, goes on after a kill, refuses before it reads."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headcount
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.main import main
from headcount.pipelines.report_file.file import read_file
from headcount.pipelines.report_file.jobs import cost_at, jobs
from tests.fixed_key import write_fixed_key

REPORT = """\
title: The shop
data:
  input: visits/{period}.parquet
  user: user
  time: at
key_file: key
ledger: sqlite:///ledger.db
dataset: shop
output: reports/{period}
defaults: {epsilon: 1, delta: 1e-8}
releases:
  pages: {command: histogram, item: page, where: age > 20}
  steps: {command: funnel, step: [page=a, page=b], label: "a, then b"}
  ages: {command: quantiles, value: age, lo: 0, hi: 100, quantile: 0.5}
  size: {command: total, of: users, format: csv}
  means: {command: aggregate, item: page, users: true, mean: age:0:100}
"""
NAMES = ["pages", "steps", "ages", "size", "means"]


def write_week(path: Path, seed: int = 5) -> None:
    """A log of 2,000 users with three rows each."""
    random, rows = np.random.default_rng(seed), 6000
    times = np.datetime64("2026-11-09", "us") + random.integers(0, 7 * 86_400, rows).astype("timedelta64[s]")
    table = {
        "user": [f"u{k % 2000}" for k in range(rows)],
        "page": random.choice(["a", "b", "c"], rows),
        "age": random.integers(10, 90, rows),
        "at": times,
    }
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(table), path)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A folder with a week, a key, a ledger and a report; the working directory."""
    monkeypatch.chdir(tmp_path)
    write_week(tmp_path / "visits/2026-W46.parquet")
    write_fixed_key(tmp_path / "key")
    create(tmp_path, 8)
    (tmp_path / "report.yaml").write_text(REPORT)
    return tmp_path


def create(folder: Path, limit: float, name: str = "ledger.db") -> None:
    limits = ["--limit-epsilon", str(limit), "--limit-delta", "1e-6", "--per", "year"]
    assert main(["ledger", "create", "shop", *limits, "--ledger", f"sqlite:///{folder / name}"]) == 0


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def entries(folder: Path) -> list[str]:
    return [f"{entry.request.label} {entry.state}" for entry in open_ledger(f"sqlite:///{folder}/ledger.db").entries()]


def test_a_report_is_what_its_single_commands_make(shop, run):
    status, out, err = run("run", "report.yaml", "--period", "2026-W46")
    assert (status, err) == (0, [])
    assert [line.split(":")[0] for line in out.splitlines()] == [*NAMES, "to look at"]
    assert entries(shop) == [f"{label} committed" for label in ("pages", "a, then b", "ages", "size", "means")]
    # The same command lines on another ledger of the same name.
    create(shop, 8, "other.db")
    for job in jobs(read_file("report.yaml"), "2026-W46"):
        words = [word.replace("ledger.db", "other.db").replace("reports/", "single/") for word in job.argv]
        assert main(words) == 0
    made = contents(shop / "reports/2026-W46")
    index = made.pop("index.html").decode()
    assert made == contents(shop / "single/2026-W46") and len(made) == 3 * len(NAMES)
    assert all(f'href="{name}/report.html"' in index for name in NAMES) and "The shop" in index and "2026-W46" in index


def test_what_a_release_costs_is_what_it_writes_into_the_ledger(shop, run):
    assert run("run", "report.yaml", "--period", "2026-W46")[0] == 0
    costs, report = cost_at(read_file("report.yaml"), "2026-W46"), read_file("report.yaml")
    told = [entry.request.guarantee for entry in open_ledger("sqlite:///ledger.db").entries()]
    # Without a promise the file's own budget holds, whatever is asked for.
    assert [costs(name, 9, 0.5) for name in report.weights] == [(guarantee,) for guarantee in told]


KILLED = """
import os, signal, sys
from headcount.pipelines.commands.report import run
from headcount.pipelines.main import main
run.told = lambda made: os.kill(os.getpid(), signal.SIGKILL)
main(["run", "report.yaml", "--period", "2026-W46"])
"""


def test_a_killed_run_goes_on(shop, run):
    killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True)
    assert killed.returncode == -signal.SIGKILL and entries(shop) == ["pages committed"]
    first = contents(shop / "reports/2026-W46")
    assert {name.split("/")[0] for name in first} == {"pages"}
    status, out, err = run("run", "report.yaml", "--period", "2026-W46")
    assert (status, err) == (0, [])
    done = ["already there, the same bytes:" in line for line in out.splitlines()]
    assert done == [True, False, False, False, False, False] and len(entries(shop)) == len(NAMES)
    after = contents(shop / "reports/2026-W46")
    assert {name: content for name, content in after.items() if name.startswith("pages/")} == first
    # Once more, all are there, and so is the page.
    status, out, err = run("run", "report.yaml", "--period", "2026-W46")
    assert (status, err, out.count("already there")) == (0, [], len(NAMES))
    assert contents(shop / "reports/2026-W46") == after and len(entries(shop)) == len(NAMES)


def test_a_changed_week_is_refused(shop, run):
    assert run("run", "report.yaml", "--period", "2026-W46")[0] == 0
    before = contents(shop / "reports")
    write_week(shop / "visits/2026-W46.parquet", seed=6)
    status, out, (line,) = run("run", "report.yaml", "--period", "2026-W46")
    assert (status, out) == (2, "")
    assert line.startswith("headcount: report.yaml:12: releases.pages: release 'auto-")
    assert "so nothing is published: the input changed since" in line
    assert contents(shop / "reports") == before


def test_a_run_that_does_not_fit_is_refused_before_a_row_is_read(shop, run):
    """Each release fits by itself, and all together do not."""
    (shop / "ledger.db").unlink()
    create(shop, 2)
    run("ledger", "show", "--ledger", "sqlite:///ledger.db")
    week = pq.read_table("visits/2026-W46.parquet")
    no_page = pa.nulls(week.num_rows, pa.string())  # which a job that reads it refuses
    pq.write_table(week.set_column(1, "page", no_page), "visits/2026-W46.parquet")
    status, out, (line,) = run("run", "report.yaml", "--period", "2026-W46")
    assert (status, out) == (2, "") and line.startswith("headcount: report.yaml:7: data set 'shop' has a limit")
    assert "with the 5 releases of this run it would be" in line and "nothing was read" in line
    assert not (shop / "reports").exists() and entries(shop) == []


def test_a_check_says_what_will_be_and_changes_nothing(shop, run):
    before = contents(shop)
    status, out, err = run("run", "report.yaml", "--period", "2026-W46", "--check")
    assert (status, err) == (0, [])
    assert "reads 1 file of parquet: user (string)" in out and "epsilon = 0 of 8 is spent" in out
    assert out.count("differential privacy under adding or removing") == len(NAMES)
    assert out.rstrip().endswith("report.yaml can be run: no row was read, and nothing is spent")
    assert {name: content for name, content in contents(shop).items() if "ledger" not in name} == {
        name: content for name, content in before.items() if "ledger" not in name
    }
    assert entries(shop) == []


def changed(shop: Path, old: str, new: str) -> None:
    text = (shop / "report.yaml").read_text()
    assert text.count(old) == 1
    (shop / "report.yaml").write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("item: page, where", "item: pgae, where", "report.yaml:12: releases.pages: "),
        ("value: age", "value: agee", "report.yaml:14: releases.ages: visits/2026-W46.parquet: no column 'agee'"),
        ("user: user", "user: usr", "report.yaml:4: releases.pages: visits/2026-W46.parquet: no column 'usr'"),
        ("visits/{period}", "views/{period}", "report.yaml:3: releases.pages: no such file or folder: 'views/2026-W46"),
        ("key_file: key", "key_file: none", "report.yaml:6: "),
        ("dataset: shop", "dataset: shp", "report.yaml:7: no data set 'shp' is in the ledger; did you mean shop?"),
        ("output: reports/", "output: key/", "report.yaml:9: output 'key/2026-W46/pages' cannot be made: "),
    ],
)
def test_a_check_finds_what_is_not_there(shop, run, old, new, words):
    changed(shop, old, new)
    status, out, (line,) = run("run", "report.yaml", "--period", "2026-W46", "--check")
    assert (status, out) == (2, "") and line.startswith(f"headcount: {words}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_check_finds_an_output_that_may_not_be_written(shop, run):
    (shop / "reports").mkdir(mode=0o500)
    status, _, (line,) = run("run", "report.yaml", "--period", "2026-W46", "--check")
    assert status == 2 and "may not be written to" in line


def test_without_a_ledger_a_report_is_a_new_one_each_time(shop, run):
    changed(shop, "ledger: sqlite:///ledger.db\ndataset: shop\n", "")
    assert run("run", "report.yaml", "--period", "2026-W46")[0] == 0
    status, _, (line,) = run("run", "report.yaml", "--period", "2026-W46")
    assert status == 2 and "holds an output already" in line
    shutil.rmtree(shop / "reports")
    assert run("run", "report.yaml", "--period", "2026-W46")[0] == 0


def test_the_call_gives_results_by_name(shop):
    made = headcount.run("report.yaml", period="2026-W46")
    assert [*made] == NAMES and len(made) == len(NAMES) and made.page.endswith("reports/2026-W46/index.html")
    week = pq.read_table("visits/2026-W46.parquet")
    call = {"user": "user", "epsilon": 1, "delta": 1e-8, "key_file": "key", "period": "2026-W46"}
    single = headcount.histogram(
        week, item="page", where="age > 20", label="pages", release_id=made["pages"].report["release_id"], **call
    )
    assert made["pages"].table.equals(single.table) and str(made["pages"]) == str(single)
    assert made["pages"].to_pandas().equals(single.to_pandas())
    assert made["pages"]._repr_html_() == single._repr_html_() and single._repr_html_() in made._repr_html_()
    total = headcount.total(week, of="users", label="size", release_id=made["size"].report["release_id"], **call)
    assert made["size"].table.to_pylist() == total.table.to_pylist()  # from CSV, and typed again
    with pytest.raises(ParameterError, match=r"^report.yaml:9: output has \{period\}, and no period is given"):
        headcount.run("report.yaml")


def test_a_command_without_a_file(run):
    status, _, (line,) = run("run")
    assert status == 2 and line.startswith("headcount: missing FILE, the report to run")
