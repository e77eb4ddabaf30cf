"""A report that anybody may have written: `headcount verify` compares it, and does nothing that it says."""

from __future__ import annotations

import argparse
import json
import socket
import sys

import pyarrow.parquet as pq
import pytest

import headcount
from headcount.pipelines import parser
from headcount.pipelines.command import COMMANDS, JobCommand, load
from headcount.pipelines.commands.outputs import again
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.sinks.finished import sealed
from tests.golden.events import events
from tests.pipelines.commands.test_verify import copied, flags, place  # noqa: F401
from tests.pipelines.refusals import refused


class Watch:
    """What this process opens and connects to, seen by an audit hook, which Python never takes off again: it is turned off."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.on = False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple) -> None:
        if self.on and event in ("open", "sqlite3.connect", "socket.connect", "socket.getaddrinfo", "os.mkdir"):
            self.seen.append(f"{event} {args!r}")

    def __enter__(self) -> list[str]:
        self.seen, self.on = [], True
        return self.seen

    def __exit__(self, *_: object) -> None:
        self.on = False


@pytest.fixture(scope="module")
def watch():
    return Watch()


@pytest.fixture
def listener():
    """A port that nobody may knock at."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.setblocking(False)
        yield server
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_report_is_never_obeyed(run, place, tmp_path, watch, listener):  # noqa: F811
    """One that names a ledger, a host, files: none is opened or written, nothing is charged, and the report was changed."""
    out = tmp_path / "out"
    out.mkdir()
    copied(place, out)
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    limit = ["--limit-epsilon", "8", "--limit-delta", "1e-6"]
    assert run("ledger", "create", "visits", *limit, "--ledger", ledger)[0] == 0
    canary = tmp_path / "canary"
    canary.write_text("i1\n")
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    report = json.loads((out / "report.json").read_text())
    port = listener.getsockname()[1]
    for named in (
        {"ledger": ledger, "dataset": "visits"},
        {"ledger": f"postgresql://u:p@127.0.0.1:{port}/d", "dataset": "visits"},
        {"bound_from": str(canary)},
        {"output": str(tmp_path / "elsewhere"), "overwrite": True},
        {"input": [str(canary)], "domain": [str(canary)], "key_file": str(canary), "shards": 60_000, "help": True},
        {"key_secret": f"http://127.0.0.1:{port}/key", "input": f"http://127.0.0.1:{port}/events.parquet"},
    ):
        changed = json.loads(json.dumps(report))
        changed["details"]["parameters"] |= named
        (out / "report.json").write_bytes(sealed(changed))
        with watch as seen:
            result = run("verify", out, *flags(place))
        if "bound_from" in named:  # which names another release, and has no part in the rows
            assert result[0] == 0
        else:
            parts = ", ".join(sorted(f"details.parameters.{name}" for name in named))
            refused(result, "changed: ", f"report.json says other than their job does, in: {parts}")
        assert [line for line in seen if "canary" in line or "ledger.db" in line or "elsewhere" in line] == []
        assert [line for line in seen if str(port) in line] == []
    (out / "report.json").write_bytes(kept[out / "report.json"])
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == kept
    assert open_ledger(ledger).entries("visits") == []


def test_no_parameter_of_a_report_names_a_place(watch, listener, tmp_path):
    """Every flag of every job, stated by a report as a file and as a URL: whatever comes of it, nothing is opened."""
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/canary"
    (tmp_path / "canary").write_text("[]")
    given = argparse.Namespace(**dict.fromkeys(again._GIVEN_AGAIN))
    for name in COMMANDS:
        command = load(name)
        if not isinstance(command, JobCommand):
            continue
        for action in parser.make_parser(command)._actions:
            for value in (str(tmp_path / "canary"), url):
                parameters = {"user": "u", "epsilon": 1.0, action.dest: value}
                report = {"command": name, "release_id": "r", "details": {"parameters": parameters}}
                with watch as seen:
                    try:
                        args = again.arguments(report, given, "out")
                    except headcount.InputError:
                        args = argparse.Namespace()
                assert [line for line in seen if "canary" in line or "connect" in line] == [], (name, action.dest)
                if action.dest in again.NOT_STATED:
                    assert value not in map(str, vars(args).values()), (name, action.dest)


def test_counters_are_not_released_by_a_report(run, tmp_path):
    """A file of counters is changed by its release: a report of it does not bring that about."""
    pq.write_table(events(), tmp_path / "events.parquet")
    made = "--epsilon 1 --buckets 1200 --salt s".split()
    state, released = tmp_path / "counters", tmp_path / "released"
    assert run("counters", "--state", state, *made, "--start")[0] == 0
    released.write_bytes(state.read_bytes())
    shape = ["shape", "--model", "pan-private", *made, "--samples", "300"]
    assert run(*shape, "--input", released, "--output", tmp_path / "out")[0] == 0
    assert run("verify", tmp_path / "out", "--input", released)[0] == 0
    before = state.read_bytes()
    refused(run("verify", tmp_path / "out", "--input", state), "--input holds counters that are not released")
    assert state.read_bytes() == before
