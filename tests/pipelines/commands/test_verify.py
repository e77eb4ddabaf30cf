"""`headcount verify` with the input and the key: the release again, compared and never kept."""

from __future__ import annotations

import argparse
import json
import tempfile
from importlib import metadata
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import headcount
from headcount.mechanisms.batches.domain import public_domain
from headcount.pipelines import parser
from headcount.pipelines.command import COMMANDS, JobCommand, load
from headcount.pipelines.commands.outputs import again, verify
from headcount.pipelines.commands.outputs.complete import Complete, DataFile
from headcount.pipelines.flags import options
from headcount.pipelines.jobs.signals import Stopped
from headcount.pipelines.reports.report import versions
from headcount.pipelines.sinks import digests, output
from headcount.pipelines.sinks.finished import sealed
from headcount.pipelines.sinks.repeated import REPORT_MARK
from headcount.pipelines.storage import stores
from tests.fixed_key import write_fixed_key
from tests.golden.events import events
from tests.pipelines.refusals import refused
from tests.runners.jobs import JOBS, STORED, column, domain_of

DOMAIN = public_domain([f"i{i}" for i in range(1, 200, 3)], str)
FILES = {"domain": "d.txt", "table": "t.csv", "messages": "m.jsonl", "counters": "c.json"}


def planned(words: str, again_from: dict | None = None):
    """The arguments of a job, its mechanism and its plan; from its own flags, or from a report."""
    name, *own = words.format(**FILES).split()
    command = load(name)
    if again_from is None:
        source = [] if "--model" in own else ["--user", "user", *column(name, own)]
        args, _ = parser.parse(command, [*source, *own])
    else:
        args, _ = parser.parse(command, again.rebuilt(again_from))
    if getattr(args, "domain", None) or "--domain" in own:
        given = domain_of(own)[1]
        args = argparse.Namespace(**vars(args) | {"domain": [given] if "=" in given else DOMAIN})
    command.check(args)
    item_type = options.item_type(args)
    mechanism = command.make_mechanism(args, item_type)
    return args, mechanism, command.plan(args, mechanism, item_type)


@pytest.mark.parametrize("job", JOBS | STORED)
def test_a_report_states_what_its_release_is_made_of(job):
    """The flags that follow from it give the same mechanism: so the same rows, as the rest is input, key and id."""
    words = (JOBS | STORED)[job]
    args, mechanism, plan = planned(words)
    parameters = json.loads(json.dumps({name: value for name, value in plan.parameters.items() if value is not None}))
    report = {"command": words.split()[0], "release_id": "r", "details": {"parameters": parameters}}
    if args.label is not None:
        report["label"] = args.label
    args_again, mechanism_again, plan_again = planned(words, report)
    # Where a method was left to it, and one is stated: what is drawn by the one that it took.
    assert mechanism_again == mechanism or mechanism_again.plans() == mechanism.plans()
    assert plan_again == plan
    beside = (
        "label",
        "suppress_below",
        "max_relative_error",
        "format",
        "output_files",
        "user",
        "item",
        "value",
        "salt",
    )
    assert [getattr(args_again, name, None) for name in beside] == [getattr(args, name, None) for name in beside]


def test_every_flag_of_a_job_is_stated():
    """One that is not could change rows, and nobody would know of it: it joins a report, or NOT_STATED."""
    stated: dict[str, set[str]] = {}
    for words in (JOBS | STORED).values():
        stated.setdefault(words.split()[0], set()).update(planned(words)[2].parameters)
    for name in COMMANDS:
        command = load(name)
        if isinstance(command, JobCommand):
            flags = {action.dest for action in parser.make_parser(command)._actions}
            assert flags - again.NOT_STATED <= stated[name], name


def complete(**parts) -> Complete:
    report = {REPORT_MARK: metadata.version("headcount"), "release_id": "r", "rows": 3, "command": "histogram"}
    return Complete("/out", report | parts, [DataFile("counts-00000-of-00001.csv", "aa")], "bb")


def test_a_verdict_is_one_of_four():
    found, same = complete(), {"counts-00000-of-00001.csv": "aa"}
    good = "complete and unchanged, and it came from this input with this key: 1 file, 3 rows, release r"
    assert verify.verdict(found, same, [], "") == verify.verdict(found, same, [], "made by others") == good
    with pytest.raises(
        headcount.InputError, match="^the files are unchanged, but this input .* gives other rows: [^;]*$"
    ):
        verify.verdict(found, {"counts-00000-of-00001.csv": "bb"}, ["shown"], "")
    with pytest.raises(headcount.InputError, match="gives other rows: .*; it was made by numpy 1"):
        verify.verdict(found, {"counts-00000-of-00001.csv": "bb"}, ["shown"], "it was made by numpy 1")
    with pytest.raises(
        headcount.InputError, match="^changed: .* report.json says other than their job does, in: promise$"
    ):
        verify.verdict(found, same, ["promise"], "")
    with pytest.raises(headcount.InputError, match="--domain is not that of this release"):
        verify.verdict(found, {}, ["details.parameters.domain_digest", "rows"], "")
    assert verify.verdict(found, same, ["promise"], "it was made by x").splitlines()[1] == (
        "report.json has other words than now in: promise; it was made by x"
    )


def test_other_versions_are_named():
    now = versions()
    assert again.other_versions(complete(details={"versions": now}).report, now) == ""
    old = complete(details={"versions": now | {"numpy": "1.0"}}, **{REPORT_MARK: "0.0.1"})
    words = again.other_versions(old.report, now)
    assert "headcount 0.0.1 (now" in words and f"numpy 1.0 (now {now['numpy']})" in words and "pyarrow" not in words


def test_the_parts_of_a_report():
    report = {
        REPORT_MARK: "1",
        "promise": "p",
        "details": {"versions": {}, "parameters": {"epsilon": 1.0}, "chosen": {}},
    }
    parts = digests.part_digests(report)
    assert set(parts) == {"promise", "details.parameters.epsilon", "details.chosen"}
    other = json.loads(json.dumps(report).replace("1.0", "1.00000000001"))
    assert digests.part_digests(other) == parts, "the last digits are the processor's"
    assert digests.part_digests(json.loads(json.dumps(report).replace("1.0", "1.001"))) != parts


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The golden events as a file, a key, and a release of them by a call."""
    place = tmp_path_factory.mktemp("verify")
    table = events()
    pq.write_table(table, place / "events.parquet")
    pq.write_table(table.slice(1), place / "other.parquet")
    (place / "domain.txt").write_text("".join(f"i{i}\n" for i in range(1, 60)))
    write_fixed_key(place / "key")
    write_fixed_key(place / "other-key", byte=8)
    given = {"user": "user", "item": "item", "epsilon": 1, "key_file": place / "key", "label": "shops"}
    headcount.histogram(table, **given, delta=1e-6, method="one-stage", bound=5).save(
        place / "out", format="csv", output_files=2
    )
    headcount.histogram(table, **given, method="one-stage", bound=5, domain=place / "domain.txt").save(place / "public")
    return place


def copied(place, to):
    """The output, without its page."""
    for path in (place / "out").iterdir():
        if path.suffix != ".html":
            (to / path.name).write_bytes(path.read_bytes())


def flags(place, input="events.parquet", key="key"):
    return ["--input", place / input, "--key-file", place / key]


def test_what_came_from_this_input_with_this_key(run, place, monkeypatch):
    written, write = [], stores.write
    monkeypatch.setattr(stores, "write", lambda path, content: (written.append(path), write(path, content)))
    before = {path: path.read_bytes() for path in (place / "out").iterdir()}
    status, said, err = run("verify", place / "out", *flags(place))
    assert (status, err) == (0, []) and said.count("\n") == 2
    assert said.startswith("complete and unchanged, and it came from this input with this key: 2 files, ")
    assert [Path(path).name for path in written] == ["digests.json"], "no row of the second run is written"
    assert not Path(written[0]).parent.exists()
    assert {path: path.read_bytes() for path in (place / "out").iterdir()} == before


def test_rows_that_are_kept_would_be_seen(run, place, monkeypatch):
    """The check above, on a target that keeps files: it sees them."""
    written, write = [], stores.write
    monkeypatch.setattr(stores, "write", lambda path, content: (written.append(path), write(path, content)))
    monkeypatch.setattr(digests.DigestTarget, "keep", output.Target.keep)
    run("verify", place / "out", *flags(place))
    assert any("counts-" in path for path in written)
    for left in Path(tempfile.gettempdir()).glob("headcount-verify-*.tmp-*"):
        for file in left.iterdir():
            file.unlink()
        left.rmdir()


@pytest.mark.parametrize("given", [{"input": "other.parquet"}, {"key": "other-key"}])
def test_another_input_or_key(run, place, given):
    result = run("verify", place / "out", *flags(place, **given))
    refused(result, "the files are unchanged, but this input with this key gives other rows")


def test_a_promise_that_no_job_made(run, place, tmp_path):
    """Words in the report alone are changed, and the files are as they were: its own digest tells, or, if that was made for
    the changed words, a second run."""
    copied(place, tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    other = report | {"promise": report["promise"].replace("1", "0.1")}
    (tmp_path / "report.json").write_text(json.dumps(other))
    for command in ("verify", "statement"):
        refused(run(command, tmp_path), "changed: report.json is not as its job wrote it", str(tmp_path))
    (tmp_path / "report.json").write_bytes(sealed(other))
    assert run("verify", tmp_path)[0] == 0
    refused(run("verify", tmp_path, *flags(place)), "changed: ", "report.json says other", "in: promise")
    report["details"]["parameters"]["epsilon"] = 0.5
    (tmp_path / "report.json").write_bytes(sealed(report))
    refused(run("verify", tmp_path, *flags(place)), "gives other rows")


def forged(tmp_path, **parts):
    """A report with other parts, and a digest of its own that fits them."""
    report = json.loads((tmp_path / "report.json").read_text())
    (tmp_path / "report.json").write_bytes(sealed(report | parts))


@pytest.mark.parametrize("name", ["date", "label", "period", "dataset", "details.parameters.bound_from"])
def test_what_no_input_tells_is_named(run, place, tmp_path, name):
    """The bug: of a report with a forged part it said no more than `unchanged`."""
    copied(place, tmp_path)
    details = json.loads((tmp_path / "report.json").read_text())["details"]
    details["parameters"]["bound_from"] = "r"
    forged(tmp_path, **({"details": details} if "." in name else {name: "2031-01-01"}))
    status, said, _ = run("verify", tmp_path, *flags(place))
    (line,) = [line for line in said.splitlines() if line.startswith("not compared, as no input tells them: ")]
    assert status == 0 and name in line.partition(": ")[2].partition(";")[0].split(", ") and "--ledger" in line


@pytest.fixture
def kept(run, place, tmp_path):
    """The folder of a job on the account of a ledger, and the flags of the ledger."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    assert run("ledger", "create", "shops", "--limit-epsilon", 9, "--limit-delta", 1e-3, "--ledger", url)[0] == 0
    words = ["--user", "user", "--item", "item", "--epsilon", 1, "--delta", 1e-6, "--label", "shops", *flags(place)]
    account = ["--ledger", url, "--dataset", "shops", "--period", "2026-11", "--release-id", "auto"]
    assert run("histogram", *words, *account, "--output", tmp_path / "out")[0] == 0
    (tmp_path / "out" / "report.html").unlink()
    return tmp_path / "out", ["--ledger", url]


@pytest.mark.parametrize("name", ["date", "label", "period", "dataset", "headcount"])
def test_a_ledger_tells_what_no_input_does(run, place, kept, name):
    out, ledger = kept
    for given in ([], flags(place)):
        status, said, _ = run("verify", out, *given, *ledger)
        assert status == 0 and said.splitlines()[-1].startswith("the ledger has the same: headcount, "), said
        assert "not compared" not in said
    forged(out, **{name: "2031-01-01"})
    for given in ([], flags(place)):
        refused(run("verify", out, *given, *ledger), "changed: the ledger knows another report.json")


def test_what_a_call_told_the_ledger_is_compared(run, place, tmp_path, kept):
    """It may be saved later, in other files: then its words and its result are compared, and its date is not."""
    _, (flag, url) = kept
    given = {"user": "user", "item": "item", "epsilon": 1, "delta": 1e-6, "key_file": place / "key", "label": "mine"}
    headcount.histogram(events(), **given, ledger=url, dataset="shops").save(tmp_path / "saved")
    (tmp_path / "saved" / "report.html").unlink(missing_ok=True)
    status, said, _ = run("verify", tmp_path / "saved", flag, url)
    assert status == 0 and "the ledger has the same: " in said and "dataset" in said and "label" in said
    for parts, words in (
        ({"label": "yours"}, "knows another label"),
        ({"label": "mine", "promise": "nothing"}, "knows another result"),
        ({"release_id": "r9"}, "has no release 'r9' that counts"),
    ):
        forged(tmp_path / "saved", **parts)
        refused(run("verify", tmp_path / "saved", flag, url), words)


def test_the_page_is_compared(run, place, tmp_path):
    copied(place, tmp_path)
    assert run("show", tmp_path, "--html")[0] == run("verify", tmp_path)[0] == 0
    page, report = ((tmp_path / name).read_text() for name in ("report.html", "report.json"))
    assert page == (place / "out" / "report.html").read_text() and "epsilon" in page
    (tmp_path / "report.json").write_bytes(sealed(json.loads(report.replace("epsilon = 1,", "epsilon = 0.1,"))))
    refused(run("verify", tmp_path), "changed: ", "report.html")  # a report that says other than its page
    (tmp_path / "report.json").write_text(report)
    (tmp_path / "report.html").write_text(page.replace("epsilon", "Epsilon"))
    refused(run("verify", tmp_path), "changed: ", "report.html' is not the page of this release", "show OUT --html")
    (tmp_path / "report.json").write_bytes(sealed(json.loads(report) | {REPORT_MARK: "0.0.1"}))
    assert "report.html beside it was not compared: headcount 0.0.1 made it and this is" in run("verify", tmp_path)[1]


def test_a_domain_is_given_again(run, place, tmp_path):
    out, domain = place / "public", ["--domain", place / "domain.txt"]
    refused(run("verify", out, *flags(place)), "give it again by --domain")
    assert run("verify", out, *flags(place), *domain)[0] == 0
    (tmp_path / "domain.txt").write_text("i1\ni2\n")
    refused(run("verify", out, *flags(place), "--domain", tmp_path / "domain.txt"), "--domain is not that of this")
    refused(run("verify", place / "out", *flags(place), *domain), "--domain is of no use")


def test_what_is_refused_before_anything_runs(run, place, tmp_path):
    refused(run("verify", place / "out", "--key-file", place / "key"), "--key-file is of use with --input alone")
    refused(run("verify", place / "out", "--input", place / "events.parquet"), "needs the key of that release")
    refused(run("verify", place / "out", *flags(place, input="none.parquet")), "none.parquet")
    copied(place, tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    for parts, words in (
        ({"command": "another"}, "no such job"),
        ({"details": {}}, "states no parameters"),
        ({"details": {"parameters": {"epsilon": "x"}}}, "states parameters that no job has: --epsilon"),
    ):
        (tmp_path / "report.json").write_bytes(sealed(report | parts))
        refused(run("verify", tmp_path, *flags(place)), words)
    (tmp_path / "report.json").write_text(json.dumps(report))
    next(tmp_path.glob("*.csv")).write_bytes(b"item\n")
    refused(run("verify", tmp_path, *flags(place)), "changed: ", ".csv")


def test_a_stopped_run_leaves_nothing(place, monkeypatch):
    folders = []

    def stop(self, args, beam_flags, sink):
        folders.append(Path(args.output))
        assert folders[0].is_dir() and folders[0].stat().st_mode & 0o777 == 0o700
        raise Stopped(15)

    monkeypatch.setattr(JobCommand, "outcome", stop)
    report = json.loads((place / "out" / "report.json").read_text())
    given = {"input": [str(place / "events.parquet")], "key_file": str(place / "key"), "output": str(place / "out")}
    names = ("input_format", "delimiter", "domain", "join", "key_env", "key_secret")
    with pytest.raises(Stopped):
        again.run_again(report, argparse.Namespace(**dict.fromkeys(names), **given), [])
    assert not folders[0].exists()


def test_on_another_runner(run, place):
    """Beam's own job service in this process: the digests lie beside the output meanwhile, and are gone at the end."""
    elsewhere = ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK"]
    status, said, states = run("verify", place / "out", *flags(place), *elsewhere)
    assert status == 0 and said.startswith("complete and unchanged, and it came from this input with this key: ")
    assert states[0].startswith("headcount: job job-") and states[0].endswith(" on PortableRunner")
    assert states[-1].startswith("headcount: DONE after ")
    assert [path.name for path in place.iterdir() if "verify-" in path.name] == []


def test_workers_elsewhere_leave_digests_beside_the_output(place):
    assert again._place(str(place / "out"), []) == ("", False)
    folder, remote = again._place(str(place / "out"), ["--runner=PrismRunner"])
    assert remote and folder.startswith(f"{place / 'out'}.verify-")
