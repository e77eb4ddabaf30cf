"""The plan of a report: what it costs is what a ledger adds up, and every period has the same budgets."""

import json

import pytest

import headcount
from headcount.pipelines.ledger import spending
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.records import COMMITTED, make_dataset
from headcount.pipelines.report_file.file import read_file
from headcount.pipelines.report_file.promised import budgets_of, dataset_of, example, make_plan
from tests.fixed_key import write_fixed_key
from tests.pipelines.refusals import refused

REPORT = """
data: {{input: {folder}/events.csv, user: user, time: at}}
key_file: {folder}/key
ledger: sqlite:///{folder}/ledger.db
dataset: visits
output: {folder}/{{period}}
promise: {{epsilon: 2, delta: 1e-6, per: year, runs: {runs}}}
releases:
  often: {{command: activity, bins: "1,2,3", noise: gaussian}}
  way: {{command: funnel, step: [item=a, item=b], noise: gaussian, weight: 2}}
"""


@pytest.fixture
def path(tmp_path):
    days = ((user, item, day) for user in range(60) for day, item in enumerate("abcd"[: 1 + user % 4], 1))
    rows = "".join(f"u{user},{item},2026-11-0{day}T00:00:00\n" for user, item, day in days)
    (tmp_path / "events.csv").write_text("user,item,at\n" + rows)
    write_fixed_key(tmp_path / "key")
    found = tmp_path / "report.yaml"
    found.write_text(REPORT.format(folder=tmp_path, runs=52))
    return found


@pytest.fixture
def ledger(path):
    found = open_ledger(f"sqlite:///{path.parent}/ledger.db")
    found.create(make_dataset("visits", "user", "add-remove", 2, 1e-6, "year"))
    return found


def test_a_plan_says_what_runs_cost_before_there_is_a_ledger(run, path):
    status, out, _ = run("plan", path)
    assert (
        status == 0 and "for 52 runs of 2 releases" in out and "way will show:" in out and "without often: way" in out
    )
    assert "holds no ledger: make one" in out and "nothing is spent" in out


def test_a_plan_is_what_the_ledger_adds_up(run, path, ledger):
    """52 runs of it are 99 % of the promise at least, fit in, and a 53rd does not."""
    told = json.loads(run("plan", path, "--json")[1])
    assert told["fits"] and told["adaptive"] is False and 1.98 <= told["all_runs"]["epsilon"] <= 2
    plan = make_plan(read_file(str(path)), "2026-W46", ledger.dataset("visits"))
    costs = [each.guarantee for each in plan.releases]
    assert [cost.epsilon for cost in costs] == [each["epsilon"] for each in told["releases"]]
    assert costs[1].epsilon == pytest.approx(2 * costs[0].epsilon, rel=1e-3)
    year = spending.Room(ledger.dataset("visits"), costs * 52)
    assert year.total.epsilon == pytest.approx(told["all_runs"]["epsilon"], rel=1e-9) and not year.fits(*costs)
    assert plan.sha256 == told["plan_sha256"]
    assert all(each["intervals"] < 1 for each in told["left_out"].values())


def test_a_plan_in_python_is_what_the_command_tells(run, path, ledger):
    found = headcount.plan(path, period="2026-W46")
    assert repr(found) == run("plan", path, "--period", "2026-W46")[1].rstrip("\n")
    assert found.told == json.loads(run("plan", path, "--json", "--period", "2026-W46")[1])
    assert found.table.column_names == ["name", "command", "weight", "epsilon", "delta"]
    assert found.table["name"].to_pylist() == ["often", "way"]
    with pytest.raises(headcount.HeadcountError, match="no such file"):
        headcount.plan(path.parent / "other.yaml")


def test_many_releases_have_gaussian_noise_unless_it_is_given(path):
    """At 52 runs it is the same plan with and without the word; with Laplace noise budgets are far smaller."""
    texts = {"given": path.read_text()}
    texts |= {
        "free": texts["given"].replace(", noise: gaussian", ""),
        "laplace": texts["given"].replace("gaussian", "laplace"),
    }
    found = {}
    for name, text in texts.items():
        path.write_text(text)
        found[name] = make_plan(read_file(str(path)), "2026-W46", None)
    assert found["free"].sha256 == found["given"].sha256
    budget = {name: plan.releases[0].guarantee.epsilon for name, plan in found.items()}
    assert budget["free"] > 3 * budget["laplace"]
    path.write_text(texts["free"].replace("runs: 52", "runs: 3"))  # six releases in all
    assert all("noise" not in each.given for each in read_file(str(path)).releases)


def test_a_run_reserves_what_was_planned_and_one_too_many_is_refused(run, path, ledger):
    """With a promise for one run: the second finds no room, and reads nothing."""
    path.write_text(REPORT.format(folder=path.parent, runs=1))
    planned = json.loads(run("plan", path, "--json")[1])
    assert run("run", path, "--period", "2026-W46")[0] == 0
    entries = ledger.entries("visits")
    assert [entry.state for entry in entries] == [COMMITTED] * 2
    assert [entry.request.guarantee.as_dict() for entry in entries] == [
        each["guarantee"] for each in planned["releases"]
    ]
    year = spending.total(spending.spent(entries), ledger.dataset("visits"))
    assert year.epsilon == pytest.approx(planned["all_runs"]["epsilon"], rel=0.01)
    refused(run("run", path, "--period", "2026-W47"), "data set 'visits' has a limit", "nothing was read")
    assert not (path.parent / "2026-W47").exists()
    (path.parent / "events.csv").unlink()  # a plan needs no data
    assert json.loads(run("plan", path, "--json")[1])["fits"] is False


def test_every_period_of_a_kind_has_one_plan(path):
    report = read_file(str(path))
    assert [example(each) for each in (None, "2027-W50", "2024-02", "2024-02-29", "2025-Q3", "2031", "summer")] == [
        *("2026-W01", "2026-W01", "2026-01", "2026-01-01", "2026-Q1", "2026", "summer")
    ]
    assert make_plan(report, None, None).sha256 == make_plan(report, "2026-W46", None).sha256
    assert budgets_of(report, "2026-W46", None) == budgets_of(report, "2024-02", None)


def test_an_adaptive_data_set_has_the_budgets_that_its_totals_allow(path):
    found = open_ledger(f"sqlite:///{path.parent}/ledger.db")
    found.create(make_dataset("visits", "user", "add-remove", 2, 1e-6, "year", adaptive=True))
    report = read_file(str(path))
    dataset = dataset_of(report)
    plan, before = make_plan(report, None, dataset), make_plan(report, None, None)
    assert plan.adaptive and plan.releases[0].guarantee.epsilon < before.releases[0].guarantee.epsilon
    assert spending.Room(dataset, []).fits(*plan.year())


def test_a_run_of_a_plan_that_was_not_approved_is_refused_before_anything_is_reserved(run, path):
    found = open_ledger(f"sqlite:///{path.parent}/ledger.db")
    found.create(make_dataset("visits", "user", "add-remove", 2, 1e-6, "year", approved_only=True))
    url = f"sqlite:///{path.parent}/ledger.db"
    refused(run("run", path, "--period", "2026-W46"), "takes releases of approved plans alone, and no plan is approved")
    assert run("ledger", "approve", "visits", path, "--by", "me", "--ledger", url)[0] == 0
    assert "approved by me on" in run("plan", path)[1]
    text = path.read_text()
    path.write_text(text.replace("item=b", "item=c"))
    refused(run("run", path, "--period", "2026-W46"), "funnel 'way' has other parameters or another budget")
    assert found.entries() == []
    path.write_text(text)
    assert run("run", path, "--period", "2026-W46")[0] == 0
    assert [found.approval_of(entry.request.release_id).said_by for entry in found.entries()] == ["me"] * 2
