"""What tests of the ledger share: a ledger with a data set, and calls and jobs on its account."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import headcount
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.pipelines.ledger import processes
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.records import Request, make_dataset
from tests.fixed_key import write_fixed_key

FRAME = {"user": [f"u{k % 400}" for k in range(4000)], "item": ["a", "b", "c", "d"] * 1000}
CALL = {"user": "user", "item": "item", "domain": ["a", "b", "c"], "method": "one-stage", "bound": 2, "epsilon": 1.0}


@pytest.fixture
def ledger(url):
    """A ledger with a data set that has room for two releases of epsilon 1."""
    found = open_ledger(url)
    found.create(make_dataset("visits", "user", "add-remove", 2.5, 1e-6, None))
    return found


@pytest.fixture
def key(tmp_path):
    write_fixed_key(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def call(url, ledger, key):
    """A histogram on the account of visits, with a key."""

    def made(frame=FRAME, **given):
        return headcount.histogram(frame, **{**CALL, "ledger": url, "dataset": "visits", "key_file": key} | given)

    return made


@pytest.fixture
def job(run, url, ledger, key, tmp_path):
    """The same as a command."""
    write_csv(tmp_path / "events.csv", FRAME)
    (tmp_path / "domain.txt").write_text("a\nb\nc\n")

    def made(out, *more, user="user", dataset="visits"):
        words = ["--input", tmp_path / "events.csv", "--user", user, "--item", "item", "--epsilon", 1, "--bound", 2]
        words += ["--method", "one-stage", "--domain", tmp_path / "domain.txt", "--key-file", key, "--format", "csv"]
        return run("histogram", *words, "--ledger", url, "--dataset", dataset, "--output", tmp_path / out, *more)

    return made


def write_csv(path, frame):
    rows = zip(frame["user"], frame["item"], strict=True)
    path.write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in rows))


def states(ledger):
    return [entry.state for entry in ledger.entries()]


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def promise(epsilon=1.0, delta=0.0, unit="user", relation=Relation.ADD_REMOVE):
    return Guarantee(epsilon, delta, relation, (), unit)


def request(id="r", **given):
    whole = {"dataset": "visits", "release_id": id, "command": "histogram", "guarantee": promise()}
    return Request(
        **whole | {"parameters_sha256": "0" * 64, "user_column": "user", "process": processes.this_process()} | given
    )


def dead():
    """A process that has ended."""
    code = "import json; from headcount.pipelines.ledger.processes import this_process as p; print(json.dumps(p()))"
    return json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
